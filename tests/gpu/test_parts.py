"""The parts of the GPU run, as far as a CPU can go through them."""

from pathlib import Path

from tests.gpu import checkpoints, one_part, parts
from tests.stages.pretrain import micro


def test_the_speed_of_a_training_is_measured(tmp_path: Path) -> None:
    config = one_part.large(
        model=micro.MODEL.model_dump(),
        sequence_tokens=16,
        num_steps=one_part.WARM_UP + 2,
        checkpoint_every_steps=20,
        compile=False,
        device="cpu",
    )
    rate, peak = one_part.tokens_per_second(config, tmp_path)
    assert rate > 0 and peak > 1e8


def test_the_plan_of_the_large_model_is_compared_with_what_was_measured(tmp_path: Path) -> None:
    found = one_part.memory_part(tmp_path, {"peak_memory_bytes": 100e9})
    assert 0.5 < found["ratio_memory_plan"] < 2


def test_checkpoints_beside_a_training_are_compared_with_its_state(tmp_path: Path) -> None:
    found = checkpoints.checkpoints(tmp_path, model=micro.MODEL.model_dump(), device="cpu")
    assert found["save_blocked_seconds"] > 0 and found["save_seconds"] > 0


def test_each_part_has_a_function_and_a_limit() -> None:
    assert set(parts.LIMIT_SECONDS) == set(parts.PARTS) and sum(parts.LIMIT_SECONDS.values()) <= 9 * 60 + 30
