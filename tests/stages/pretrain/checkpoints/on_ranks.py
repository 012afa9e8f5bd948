"""Checkpoints of each layout on four ranks, and of two of which one fails, for `test_saver`."""

import errno
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from stages.disk import says_full
from stages.pretrain.checkpoints.checkpoint import TENSORS, StepState, fill, step_name
from stages.pretrain.checkpoints.staging import Staging
from stages.pretrain.checkpoints.tensors import poison, state_digest, vouched_for, wholes
from stages.pretrain.setup import set_up
from stages.pretrain.step import Training
from tests.stages.pretrain import micro
from tests.stages.pretrain.one_step import one_step
from tests.stages.pretrain.parallel.on_ranks import forget

RANKS = 4
Layout = dict[str, Any]


def save_all(tokens: str, folder: str, layouts: Sequence[Layout]) -> None:
    """In each layout: a step, a save with the next step beside it, and a load of what the layout before has saved; what
    the main rank has seen goes to <folder>/<number>.json."""
    before: Path | None = None
    for number, layout in enumerate(layouts):
        config = micro.config(num_processes=RANKS, ema_decay=0.9, optimizer_states="8bit", **layout)
        job = micro.worker_job(config, Path(tokens), Path(folder) / f"run-{number}")
        training, state = set_up(job)
        seen = _saved(training, state.model_copy(update={"step": 1}))
        if before is not None:
            seen["loads"] = _digest(training, before)
        before = training.checkpoints / step_name(1)
        if number == len(layouts) - 1:
            seen["full"] = training.ranks.sum(training.ranks.tensor([_fails(training, state)])).item()
        training.ranks.barrier()
        if training.ranks.is_main:
            (Path(folder) / f"{number}.json").write_text(json.dumps(seen))
        forget()


def _saved(training: Training, state: StepState) -> dict[str, Any]:
    one_step(training, step=1)
    ranks, tensors = training.ranks, training.tensors()
    own = vouched_for(tensors, wholes(tensors, ranks.size), ranks.rank)
    shares = [0.0] * ranks.size
    shares[ranks.rank] = float(sum(tensor.nbytes for tensor in own.values()))
    whole = state_digest(tensors, state.model_dump(mode="json"), reads=ranks.is_main)
    training.saver.begin(tensors, state, durable=True)
    one_step(training, step=2)
    saved = training.saver.finish()
    assert saved is not None
    return {
        "digest": saved.state_digest,
        "whole": whole,
        "moved": state_digest(training.tensors(), state.model_dump(mode="json"), reads=ranks.is_main) != whole,
        "shares": ranks.sum(ranks.tensor(shares)).tolist(),
    }


def _fails(training: Training, state: StepState) -> bool:
    """Whether a save that cannot be written on one rank says so here."""

    def full(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    if training.ranks.rank == 1:
        torch.save = full  # of this process, which is at its end
    try:
        training.saver.begin(training.tensors(), state.model_copy(update={"step": 3}), durable=False)
        training.saver.finish()
    except BaseException as error:
        return says_full(error)
    return False


def _digest(training: Training, directory: Path) -> str:
    """Of what a layout makes of the checkpoint of another one."""
    tensors = training.tensors()
    poison({name: tensor for name, tensor in tensors.items() if not hasattr(tensor, "holder")})  # type: ignore[misc]
    fill(directory / TENSORS, tensors)
    content = json.loads((directory / "state.json").read_text())
    return state_digest(tensors, {**content, "state_digest": ""}, reads=training.ranks.is_main)


def copy_fails(tokens: str, folder: str) -> None:
    """The last of the ranks cannot copy what it vouches for, and goes; what each of them hears of it goes to
    <folder>/<rank>.json."""
    config = micro.config(num_processes=2, sharding="full", collective_timeout_seconds=120)
    training, state = set_up(micro.worker_job(config, Path(tokens), Path(folder) / "run"))
    training.saver.begin(training.tensors(), state, durable=False)
    one_step(training, step=1)
    training.saver.finish()
    rank, heard = training.ranks.rank, ""

    def fails(staging: Staging, sources: Any) -> None:
        raise MemoryError("no memory for the copy")

    if rank == 1:
        Staging._fill = fails  # type: ignore[method-assign]
    training.saver.begin(training.tensors(), state.model_copy(update={"step": 1}), durable=True)
    one_step(training, step=2)
    try:
        training.saver.finish()
    except Exception as error:
        heard = type(error).__name__
    (Path(folder) / f"{rank}.json").write_text(json.dumps(heard))
    os._exit(0)  # without a word to the other, as at the end of a worker
