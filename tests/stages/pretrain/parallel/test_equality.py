from pathlib import Path

import pytest

from tests.stages.pretrain.parallel.equality import MODEL, SHORT, Case, run
from tests.stages.pretrain.parallel.on_ranks import WAITED


@pytest.mark.slow
def test_layouts_make_the_steps_of_one_process_and_share_what_they_say(tmp_path: Path) -> None:
    differences, seen = run(SHORT, tmp_path)
    for case, found, left in zip(SHORT, differences, seen, strict=True):
        assert found.is_small, (case.name, found)
        facts, sharding = left.facts, case.settings["sharding"]
        assert facts["waited"] == max(WAITED[: case.processes]) and facts["leaves"], case.name
        assert facts["reductions"][:-1] == [0] * (len(facts["reductions"]) - 1), case.name
        assert facts["reductions"][-1] > 0, case.name
        assert facts["gathers"] == gathers(case, len(facts["reductions"])), case.name
        shards = {"none": 1, "optimizer": 1, "hybrid": 2}.get(sharding, case.processes)
        assert abs(facts["local_share"] - 1 / shards) < 0.05, (case.name, facts["local_share"])


def gathers(case: Case, num_micro_batches: int) -> list[int]:
    """How often parameters are gathered for each micro-batch of a step: the root's once, those of the layers in each
    forward and backward pass, unless they stay."""
    if case.settings["sharding"] in ("none", "optimizer"):
        return [0] * num_micro_batches
    units = -(-MODEL.num_layers // case.settings.get("layers_per_unit", 1))
    if case.settings["sharding"] == "gradients":
        return [1 + units] + [0] * (num_micro_batches - 1)
    return [1 + 2 * units] + [2 * units] * (num_micro_batches - 1)
