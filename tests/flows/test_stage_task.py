"""A user relies on: cancelling a flow leaves a training the time for its last checkpoint."""

from flows.process import GRACE_SECONDS
from flows.stage_task import grace_seconds
from stages.recipe import load
from tests.end_to_end.shell import TINY


def test_a_training_that_is_cancelled_has_its_own_grace_time_first() -> None:
    recipe = load(TINY, ["pretrain.grace_seconds=90"])
    assert grace_seconds(recipe, "pretrain") == 90 + GRACE_SECONDS
    assert grace_seconds(recipe, "curate") == GRACE_SECONDS
