"""How a score goes with the number of tokens: a straight line through logarithms, and how sure its slope is."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eval.charts.frame import Point

LEAST_POINTS = 4  # two for the line, two to tell how well it fits


@dataclass(frozen=True, kw_only=True)
class Trend:
    """A least-squares line of a value, or of its logarithm, over log2 of the tokens seen.

    per_doubling: what twice the tokens add to the value or, if `logarithmic`, the factor that they multiply it with,
    less one. low, high: 95 % interval of it by Student's t; it knows nothing of the schedule of the learning rate.
    """

    intercept: float
    slope: float
    logarithmic: bool
    per_doubling: float
    low: float
    high: float

    def at(self, tokens: float) -> float:
        """The line's value."""
        value = self.intercept + self.slope * math.log2(tokens)
        return 2**value if self.logarithmic else value


def fit(points: Sequence[Point], *, logarithmic: bool) -> Trend | None:
    """None for fewer than LEAST_POINTS places on the x axis, or where a logarithm does not exist."""
    kept = [point for point in points if point.x > 0]
    if len({point.x for point in kept}) < LEAST_POINTS or (logarithmic and any(point.value <= 0 for point in kept)):
        return None
    x = np.log2([point.x for point in kept])
    values = np.array([point.value for point in kept])
    y = np.log2(values) if logarithmic else values
    centred = x - x.mean()
    slope = float(centred @ y / (centred @ centred))
    intercept = float(y.mean() - slope * x.mean())
    residuals = y - intercept - slope * x
    freedom = len(x) - 2
    error = math.sqrt(float(residuals @ residuals) / freedom / float(centred @ centred))
    from scipy.stats import t

    reach = float(t.ppf(0.975, freedom)) * error
    ends = (slope, slope - reach, slope + reach)
    per_doubling, low, high = (2**end - 1 for end in ends) if logarithmic else ends
    return Trend(
        intercept=intercept, slope=slope, logarithmic=logarithmic, per_doubling=per_doubling, low=low, high=high
    )
