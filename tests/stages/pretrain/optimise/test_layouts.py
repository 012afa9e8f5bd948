"""A user relies on: an optimizer does the same whatever the layout, and skips a step on every rank or on none."""

from pathlib import Path

import pytest

from tests.stages.pretrain.forked import run_ranks
from tests.stages.pretrain.optimise import on_ranks

RANKS = 4  # two groups of two for hybrid sharding; 7 and 3 rows are cut unevenly, or not everywhere


@pytest.mark.slow
def test_every_layout_makes_the_steps_of_one_process(tmp_path: Path) -> None:
    """Weights, states, averages and norms, after steps of which one is skipped; see `on_ranks`."""
    log = tmp_path / "log"
    run_ranks(on_ranks.main, size=RANKS, log=log)
    assert log.read_text() == ""
