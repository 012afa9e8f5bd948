"""What the loop around the step makes of its numbers, at once and late, on one rank and on several."""

import json
from pathlib import Path
from typing import Any

import pytest

from stages.pretrain import loop, setup
from stages.pretrain.checkpoints.checkpoint import scan
from stages.pretrain.job import RunDirectory, read_lines
from stages.pretrain.monitor.records import Records
from stages.pretrain.optimise.loss_scale import FIRST
from stages.pretrain.step import NonFinite, Wish
from stages.pretrain.supervision.notices import Left, Requests
from tests.stages.pretrain import micro, overflowing
from tests.stages.pretrain.conftest import Build
from tests.stages.pretrain.forked import run_ranks

STEPS = 6


class Late(loop.Loop):
    """Reads the numbers of a step when the next one has been launched, as on a GPU."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._reads_at_once = False


def left(build: Build, run: RunDirectory, **changes: Any) -> tuple[list[dict[str, Any]], str, list[int]]:
    """What a training leaves: its metrics, its digest, and the steps of its checkpoints."""
    training, state = build(micro.config(num_steps=STEPS, checkpoint_every_steps=4, **changes))
    with Records(run, writes=True) as records:
        state = loop.train(training, state, records)
    return read_lines(run.metrics), state.state_digest, list(scan(training.checkpoints).complete)


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """The one that `build` trains in."""
    (tmp_path / "run").mkdir()
    return RunDirectory(tmp_path / "run")


def test_numbers_that_are_read_late_make_the_same_training(
    build: Build, run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = left(build, run)
    for path in (*run.checkpoints.iterdir(), run.metrics, run.timing):
        path.rename(run.path.parent / path.name)
    monkeypatch.setattr(loop, "Loop", Late)
    assert left(build, run) == at_once
    assert [line["step"] for line in at_once[0]] == [1, 2, 3, 4, 5, 6] and at_once[2] == [4, 6]


def test_a_checkpoint_that_is_wanted_late_is_of_a_step_that_has_been_read(
    build: Build, run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "Loop", Late)
    _, _, saved = left(build, run, checkpoint_seconds=1e-9, asynchronous_checkpoints=False)
    assert saved == [2, 4, 6]


@pytest.mark.parametrize("late", [False, True])
def test_a_run_that_is_asked_to_leave_does_so_behind_a_checkpoint_of_all_that_it_did(
    build: Build, run: RunDirectory, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    """While another checkpoint is under way; and the last step is an end like any other."""
    if late:
        monkeypatch.setattr(loop, "Loop", Late)

    def asked(point: str, step: int, rank: int, value: Any) -> Any:
        if (point, step) == ("begin", 3):
            Requests(run.request).ask_to_leave("a test")
        return value

    monkeypatch.setattr(setup, "load_hook", lambda name: asked)
    undisturbed = dict(num_steps=STEPS, checkpoint_every_steps=2)
    training, state = build(micro.config(**undisturbed))
    with Records(run, writes=True) as records, pytest.raises(Left) as raised:
        loop.train(training, state, records)
    reached = raised.value.step
    assert reached == (4 if late else 3), "a wish is read with the numbers of its step"
    assert list(scan(run.checkpoints).complete)[-1] == reached
    assert [line["step"] for line in read_lines(run.metrics)] == list(range(1, reached + 1))

    training, state = build(micro.config(**{**undisturbed, "checkpoint_every_steps": STEPS}), resume_step=reached)
    run.request.unlink()
    monkeypatch.setattr(loop.Loop, "_wish", lambda self: Wish.LEAVE if self.state.step == STEPS - 1 else Wish.NOTHING)
    with Records(run, writes=True) as records:
        assert loop.train(training, state, records).step == STEPS


@pytest.mark.parametrize("late", [False, True])
def test_a_step_that_is_not_finite_ends_the_training_and_leaves_neither_a_line_nor_a_checkpoint(
    build: Build, run: RunDirectory, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    if late:
        monkeypatch.setattr(loop, "Loop", Late)

    def spoilt(point: str, step: int, rank: int, value: Any) -> Any:
        return value * float("nan") if (point, step) == ("loss", 4) else value

    monkeypatch.setattr(setup, "load_hook", lambda name: spoilt)
    with pytest.raises(NonFinite, match="step 4") as raised:
        left(build, run)
    assert raised.value.draw == 3
    assert [line["step"] for line in read_lines(run.metrics)] == [1, 2, 3]
    assert not scan(run.checkpoints).complete


@pytest.mark.slow
def test_an_overflow_of_fp16_skips_the_same_step_on_every_rank_and_the_scale_recovers(
    tokens: Path, tmp_path: Path
) -> None:
    """In each kind of layout; and what goes on from a checkpoint behind it goes on with its scale and count."""
    layouts = ("none", "optimizer", "full")
    run_ranks(overflowing.run_all, str(tokens), str(tmp_path), layouts, size=overflowing.RANKS, log=tmp_path / "log")
    for layout in layouts:
        for rank in range(overflowing.RANKS):
            seen = json.loads((tmp_path / layout / f"{rank}.json").read_text())
            assert seen["skipped"] == [overflowing.STEP], (layout, rank)
            assert seen["scales"] == [FIRST / 2, FIRST], (layout, rank)
            assert seen["updates"] == overflowing.STEPS - 1, (layout, rank)
            assert seen["resumes"], (layout, rank)
        lines = read_lines(tmp_path / layout / "metrics.jsonl")
        assert [line["step"] for line in lines if line["gradient_norm"] is None] == [overflowing.STEP], layout
        assert lines[-1]["loss"] < lines[0]["loss"], layout
