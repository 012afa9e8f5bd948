"""The line over the logarithm of tokens, against scipy, and the words that it is told in."""

import numpy as np
import pytest
from scipy.stats import linregress

from eval.charts.frame import Point
from eval.charts.trend import fit


def points(x: np.ndarray, y: np.ndarray) -> list[Point]:
    return [Point(x=a, value=b, low=b, high=b) for a, b in zip(x.tolist(), y.tolist(), strict=True)]


def test_a_power_law_is_found_with_its_factor_for_each_doubling() -> None:
    x = np.array([1e6, 2e6, 5e6, 8e6])
    line = fit(points(x, 4 * x**-0.25), logarithmic=True)
    assert line is not None
    assert line.per_doubling == pytest.approx(2**-0.25 - 1)
    assert line.low == pytest.approx(line.per_doubling, abs=1e-6) and line.at(2e6) == pytest.approx(4 * 2e6**-0.25)


def test_slope_and_interval_are_those_of_linear_regression() -> None:
    x, noise = np.geomspace(1e5, 1e7, 9), np.random.default_rng(1).normal(0, 0.05, 9)
    y = 0.4 + 0.03 * np.log2(x) + noise
    line, expected = fit(points(x, y), logarithmic=False), linregress(np.log2(x), y)
    assert line is not None
    reach = 2.364624 * expected.stderr  # Student's t, 7 degrees of freedom
    assert (line.per_doubling, line.low, line.high) == pytest.approx(
        (expected.slope, expected.slope - reach, expected.slope + reach)
    )


@pytest.mark.parametrize(
    "x, y", [([1, 2, 4], [1, 1, 1]), ([1, 2, 4, 4], [1, 2, 3, 4]), ([0, 1, 2, 4], [1, 2, 3, 4]), ([], [])]
)
def test_too_few_places_have_no_line(x: list[float], y: list[float]) -> None:
    assert fit(points(np.array(x, float), np.array(y, float)), logarithmic=False) is None


def test_what_has_no_logarithm_has_no_line_through_logarithms() -> None:
    x, y = np.array([1.0, 2, 4, 8]), np.array([1.0, 0.5, 0.0, 0.25])
    assert fit(points(x, y), logarithmic=True) is None and fit(points(x, y), logarithmic=False)
