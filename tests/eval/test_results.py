import numpy as np
import pytest

from eval.results import clustered_standard_error


def test_errors_are_over_clusters() -> None:
    scores = np.array([1.0, 1, 1, 0, 0, 0, 1, 0])
    single = clustered_standard_error(scores, [str(i) for i in range(8)])
    assert single == pytest.approx(scores.std(ddof=1) / 8**0.5), "one cluster an item: the usual error"
    doubled = clustered_standard_error(np.repeat(scores, 2), [str(i) for i in range(8) for _ in range(2)])
    assert doubled == pytest.approx(single), "each item twice is no new evidence"
    assert clustered_standard_error(scores, ["one"] * 8) is None
