import numpy as np
import pytest

from eval.compare.clusters import clustered


def test_errors_are_over_clusters() -> None:
    scores = np.array([1.0, 1, 1, 0, 0, 0, 1, 0])
    single = clustered(scores, [str(i) for i in range(8)]).standard_error
    assert single == pytest.approx(scores.std(ddof=1) / 8**0.5), "one cluster an item: the usual error"
    doubled = clustered(np.repeat(scores, 2), [str(i) for i in range(8) for _ in range(2)]).standard_error
    assert doubled == pytest.approx(single), "each item twice is no new evidence"
    assert clustered(scores, ["one"] * 8).standard_error is None
