"""A user relies on: a checkpoint that is written beside the training is of its step, and one that cannot be written is
told of."""

import errno
import json
import threading
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from stages.errors import OK, TRY_AGAIN
from stages.pretrain import loop, setup
from stages.pretrain.checkpoints import checkpoint
from stages.pretrain.checkpoints.checkpoint import StepState, read_state, scan
from stages.pretrain.checkpoints.saver import Saver
from stages.pretrain.checkpoints.staging import Staging
from stages.pretrain.checkpoints.tensors import here, state_digest, wholes
from stages.pretrain.faults import Hook
from stages.pretrain.job import RunDirectory, read_lines
from stages.pretrain.monitor.records import Records
from stages.pretrain.step import Training, Wish
from stages.pretrain.worker import exit_code
from tests.stages.pretrain import micro
from tests.stages.pretrain.checkpoints.at_once import save_at_once
from tests.stages.pretrain.checkpoints.on_ranks import RANKS, copy_fails, save_all
from tests.stages.pretrain.conftest import Build
from tests.stages.pretrain.forked import run_ranks
from tests.stages.pretrain.one_step import one_step

WAIT_SECONDS = 30.0  # for another thread, before a test has failed


def contents(training: Training) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in here(training.tensors()).items()}


def stored(training: Training, step: int) -> dict[str, torch.Tensor]:
    """The tensors of a checkpoint, as they are in its file."""
    found = {name: torch.empty_like(tensor) for name, tensor in contents(training).items()}
    checkpoint.fill(training.checkpoints / checkpoint.step_name(step) / "dcp", found)
    return found


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    assert one.keys() == other.keys()
    return all(torch.equal(one[name], other[name]) for name in one)


def hooked(monkeypatch: pytest.MonkeyPatch, hook: Callable[[str, int], None]) -> None:
    """Trainings that are built from here on call it at each point."""

    def wrapped(point: str, step: int, rank: int, value: Any) -> Any:
        hook(point, step)
        return value

    chosen: Hook = wrapped
    monkeypatch.setattr(setup, "load_hook", lambda name: chosen)


class Slow:
    """A copy that waits to be let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go = threading.Event()
        fill = Staging._fill

        def slowly(staging: Staging, sources: Any) -> None:
            assert self.go.wait(WAIT_SECONDS)
            fill(staging, sources)

        monkeypatch.setattr(Staging, "_fill", slowly)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_checkpoint_holds_its_own_step_and_nothing_of_the_next(
    build: Build, monkeypatch: pytest.MonkeyPatch, optimizer: str
) -> None:
    """Weights, moments, the average, and the number of updates; however late the copy is made."""
    slow = Slow(monkeypatch)
    training, state = build(micro.config(optimizer=optimizer, ema_decay=0.9))
    one_step(training, step=1)
    before = contents(training)
    training.saver.begin(training.tensors(), state.model_copy(update={"step": 1}), durable=False)
    step = threading.Thread(target=one_step, args=(training,), kwargs={"step": 2})
    step.start()
    step.join(0.5)
    assert step.is_alive() and same(contents(training), before), "weights change under the copy"
    slow.go.set()
    step.join(WAIT_SECONDS)
    training.saver.finish()
    assert same(stored(training, 1), before)
    assert not any(torch.equal(contents(training)[name], before[name]) for name in ("optimizer.step",))


def test_without_the_wait_the_next_step_would_be_in_it(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow(monkeypatch)
    training, state = build(micro.config())
    before = contents(training)
    training.saver.begin(training.tensors(), state, durable=False)
    monkeypatch.setattr(training.saver, "staged", lambda: None)
    one_step(training, step=1)
    slow.go.set()
    training.saver.finish()
    assert not same(stored(training, 0), before)


def test_what_is_written_late_is_what_was_copied(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a second save waits for the first, whose copy it would overwrite."""
    go, begun = threading.Event(), threading.Event()

    def hook(point: str, step: int) -> None:
        if (point, step) == ("staged", 1):
            begun.set()
            assert go.wait(WAIT_SECONDS)

    hooked(monkeypatch, hook)
    training, state = build(micro.config())
    one_step(training, step=1)
    first = contents(training)
    training.saver.begin(training.tensors(), state.model_copy(update={"step": 1}), durable=False)
    assert begun.wait(WAIT_SECONDS) and training.saver.in_flight
    one_step(training, step=2)
    second = contents(training)
    threading.Timer(0.2, go.set).start()
    training.saver.begin(training.tensors(), state.model_copy(update={"step": 2}), durable=True)
    one_step(training, step=3)
    training.saver.finish()
    assert same(stored(training, 1), first) and same(stored(training, 2), second)
    one, two = read_lines(training.checkpoints.parent / "saves.jsonl")
    assert one["waited_seconds"] < two["waited_seconds"] <= two["blocked_seconds"] < two["seconds"]


def test_a_local_checkpoint_is_not_wanted_while_one_is_under_way(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()

    def hook(point: str, step: int) -> None:
        assert point != "staged" or go.wait(WAIT_SECONDS)

    hooked(monkeypatch, hook)
    training, state = build(micro.config(checkpoint_seconds=1e-9))
    with Records(RunDirectory(training.checkpoints.parent), writes=True) as records:
        running = loop.Loop(training, state, records)
        wishes = []
        for step in range(3):
            if step == 2:
                go.set()
                training.saver.finish()
            wishes.append(running.take(training.train_feed.place(training.train.batch(step)), 0.0))
            if wishes[-1] is Wish.SAVE and step == 0:
                running.save(durable=False)
    assert wishes == [Wish.SAVE, Wish.NOTHING, Wish.SAVE]


@pytest.mark.parametrize("step", [4, 6], ids=["in the middle", "the last one"])
@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_checkpoint_that_cannot_be_written_ends_the_run_and_leaves_those_before_it(
    build: Build, monkeypatch: pytest.MonkeyPatch, step: int, asynchronous: bool
) -> None:
    def hook(point: str, at: int) -> None:
        if (point, at) == ("written", step):
            raise OSError(errno.ENOSPC, "No space left on device")

    hooked(monkeypatch, hook)
    config = micro.config(num_steps=6, checkpoint_every_steps=2, asynchronous_checkpoints=asynchronous)
    training, state = build(config)
    with Records(RunDirectory(training.checkpoints.parent), writes=True) as records, pytest.raises(OSError) as raised:
        loop.train(training, state, records)
    assert exit_code(raised.value) == TRY_AGAIN != OK
    assert list(scan(training.checkpoints).complete) == list(range(2, step, 2))
    assert not checkpoint.problems(training.checkpoints / checkpoint.step_name(step - 2))
    written = read_lines(training.checkpoints.parent / "metrics.jsonl")
    assert written[-1]["step"] == step if not asynchronous else step <= written[-1]["step"]


def test_a_copy_that_fails_does_not_hold_the_training_up_for_ever(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(staging: Staging, sources: Any) -> None:
        raise MemoryError("no memory for the copy")

    monkeypatch.setattr(Staging, "_fill", fails)
    training, state = build(micro.config())
    training.saver.begin(training.tensors(), state, durable=False)
    one_step(training, step=1)
    with pytest.raises(MemoryError, match="no memory for the copy"):
        training.saver.finish()
    with pytest.raises(MemoryError):
        training.saver.poll()


def left(build: Build, folder: Path, **changes: Any) -> tuple[dict[str, Any], dict[str, torch.Tensor], list[Any]]:
    """State and tensors of the last checkpoint of a training, and its saves.jsonl."""
    training, state = build(micro.config(num_steps=4, checkpoint_every_steps=2, checkpoint_seconds=1e9, **changes))
    run = RunDirectory(training.checkpoints.parent)
    with Records(run, writes=True) as records:
        end = loop.train(training, state, records)
    last = training.checkpoints / checkpoint.step_name(4)
    assert read_state(last) == end and end.state_digest
    found = end.model_dump(), stored(training, 4), read_lines(run.saves)
    lines = read_lines(run.timing)
    assert ["heldout_seconds" in line for line in lines] == [False, False, True, False]
    assert "checkpoint_seconds" in lines[2] and "checkpoint_seconds" not in lines[1]
    run.path.rename(folder)
    return found


def test_a_training_that_waits_for_its_checkpoints_leaves_the_same_ones(build: Build, tmp_path: Path) -> None:
    beside = left(build, tmp_path / "beside")
    waiting = left(build, tmp_path / "waiting", asynchronous_checkpoints=False)
    assert beside[0] == waiting[0] and same(beside[1], waiting[1])
    for lines in (beside[2], waiting[2]):
        assert [(line["step"], line["durable"]) for line in lines] == [(2, True), (4, True)]
        assert all(line["heldout_seconds"] > 0 and line["bytes"] > 1e4 for line in lines)
        assert all(0 <= line["staged_seconds"] <= line["seconds"] for line in lines)
    assert all(line["blocked_seconds"] == line["seconds"] for line in waiting[2])


def test_a_line_about_a_save_stands_behind_one_that_was_cut_off(tmp_path: Path) -> None:
    from stages.pretrain.parallel.ranks import Ranks

    log = tmp_path / "saves.jsonl"
    log.write_text('{"step": 1}\n{"ste')
    state = StepState(step=2, tokens_seen=0, vocabulary_size=3, config_fingerprint="", data_fingerprint="")
    saver = Saver(tmp_path / "made", Ranks(0, 1, torch.device("cpu")), {}, log=log)
    saver.begin({"model.weight": torch.ones(3)}, state, durable=False)
    saver.finish()
    assert [line["step"] for line in read_lines(log)] == [1, 2]


def test_statistics_of_guards_and_residuals_come_back(tmp_path: Path) -> None:
    """Whatever tensors a state consists of."""
    from stages.pretrain.parallel.ranks import Ranks

    alone = Ranks(0, 1, torch.device("cpu"))
    state = StepState(
        step=3, tokens_seen=0, vocabulary_size=3, config_fingerprint="", data_fingerprint="d", guard={"loss": 0.1},
    )  # fmt: skip
    tensors = {
        "model.weight": torch.arange(6.0).view(3, 2),
        "residual.weight": torch.randn(4, dtype=torch.float64).to(torch.bfloat16),
        "optimizer.step": torch.tensor(7.0),
        "optimizer.codes": torch.arange(5, dtype=torch.uint8),
    }
    save_at_once(tmp_path, tensors, state, {}, alone)
    found = {name: torch.zeros_like(tensor) for name, tensor in tensors.items()}
    assert checkpoint.load(tmp_path, 3, found, data_fingerprint="d", excluded=()) == state
    assert same(found, tensors)


def test_no_tensor_is_left_out_that_was_not_there_at_first(tmp_path: Path) -> None:
    from stages.pretrain.parallel.ranks import Ranks

    state = StepState(step=2, tokens_seen=0, vocabulary_size=3, config_fingerprint="", data_fingerprint="")
    saver = Saver(tmp_path, Ranks(0, 1, torch.device("cpu")), {})
    tensors = {"model.weight": torch.ones(3)}
    saver.begin(tensors, state, durable=False)
    saver.finish()
    with pytest.raises(AssertionError, match="another state"):
        saver.begin({**tensors, "residual.weight": torch.ones(3)}, state, durable=False)


LAYOUTS: list[dict[str, Any]] = [
    {"sharding": "none"},
    {"sharding": "optimizer"},
    {"sharding": "full"},
    {"sharding": "hybrid", "shard_processes": 2},
    {"sharding": "gradients"},
]


@pytest.mark.slow
def test_every_layout_saves_each_number_once_and_loads_what_another_has_saved(tokens: Path, tmp_path: Path) -> None:
    """With the same digest as one that is made of all tensors where they are; each rank has a share to write. And where
    one cannot be written, the one before is as it was."""
    run_ranks(save_all, str(tokens), str(tmp_path), LAYOUTS, size=RANKS, log=tmp_path / "log")
    seen = [json.loads((tmp_path / f"{number}.json").read_text()) for number in range(len(LAYOUTS))]
    for layout, found in zip(LAYOUTS, seen, strict=True):
        assert found["digest"] == found["whole"] and found["moved"], layout
        assert min(found["shares"]) > 0 and max(found["shares"]) < 0.6 * sum(found["shares"]), layout
    assert len({sum(found["shares"]) for found in seen}) == 1
    for before, after in pairwise(seen):
        assert after["loads"] == before["digest"]
    assert seen[-1]["full"] == RANKS, "a disk that is full for one rank is told of on every rank"
    left = scan(tmp_path / f"run-{len(LAYOUTS) - 1}" / "checkpoints")
    assert list(left.complete) == [1] and [path.name for path in left.unfinished] == ["step-00000003.tmp"]


def test_a_rank_that_cannot_copy_its_share_does_not_leave_the_others_waiting(tokens: Path, tmp_path: Path) -> None:
    run_ranks(copy_fails, str(tokens), str(tmp_path), size=2, log=tmp_path / "log")
    heard = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    assert heard[1] == "MemoryError" and heard[0]
    assert list(scan(tmp_path / "run" / "checkpoints").complete) == [0]


def test_what_several_ranks_have_is_dealt_out_evenly() -> None:
    state = {f"model.{name}": torch.zeros(size) for name, size in zip("abcdef", (60, 50, 40, 30, 20, 10), strict=True)}
    dealt = wholes(state, 3)
    assert list(dealt) == sorted(state)
    loads = Counter[int]()
    for whole in dealt.values():
        loads.update({part.rank: part.shape[0] for part in whole.parts})
    assert loads == {0: 70, 1: 70, 2: 70}
    assert state_digest(state, {}) == state_digest(dict(reversed(state.items())), {})
