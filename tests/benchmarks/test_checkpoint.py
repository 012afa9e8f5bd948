"""A reader of `make bench-checkpoint` relies on: the slower process counts, and ratios are of one round."""

import pytest

from tests.benchmarks.checkpoint import rows_and_figures


def test_the_slower_process_counts_in_each_round() -> None:
    def rank(*rounds: tuple[float, float, float, list[float]]) -> dict[str, object]:
        names = ("blocked", "synchronous", "undisturbed", "beside")
        saves = [{"seconds": 9.0, "staged_seconds": 0.5} for _ in rounds]
        return {"rounds": [dict(zip(names, of, strict=True)) for of in rounds], "saves": saves, "bytes": 100}

    found = [
        rank((0.1, 4.0, 1.0, [1.0, 2.0]), (0.3, 3.0, 1.0, [1.0])),
        rank((0.2, 3.0, 0.5, [1.5, 1.0]), (0.1, 1.0, 2.0, [3.0])),
    ]
    rows, figures = rows_and_figures(found)
    assert figures["checkpoint_blocked_share"] == pytest.approx({"median": 0.075, "low": 0.05, "high": 0.1})
    assert figures["step_slowdown_during_save"] == pytest.approx({"median": 1.625, "low": 1.5, "high": 1.75})
    assert figures["extra_seconds_per_save"]["high"] == pytest.approx(1.5)
    assert figures["state_bytes"] == 200
    assert rows[1] == pytest.approx(["ours", 0.25, 9.0, 1.25])
