"""Trainings in fp16 of which one step overflows on one rank, for `test_loop`."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from stages.pretrain.checkpoints.checkpoint import StepState
from stages.pretrain.checkpoints.tensors import here, state_digest
from stages.pretrain.loop import Loop
from stages.pretrain.monitor.records import Records
from stages.pretrain.optimise import loss_scale
from stages.pretrain.optimise.groups import local
from stages.pretrain.setup import set_up
from stages.pretrain.step import Training
from tests.stages.pretrain import micro
from tests.stages.pretrain.parallel.on_ranks import forget

STEPS, STEP, SAVED = 8, 2, 4  # all, the one that overflows, and one with a checkpoint
CLEAN_STEPS = 4  # until the loss scale rises: before the last step, and behind the checkpoint
RANKS = 2


def spoilt_gradient(point: str, step: int, rank: int, value: Any) -> Any:
    """The hook of a training: on the last rank the gradient of one step is infinite while its loss is not."""
    if (point, step, rank) == ("loss", STEP, RANKS - 1):
        value.register_hook(lambda gradient: gradient * float("inf"))
    return value


def run_all(tokens: str, folder: str, layouts: Sequence[str]) -> None:
    """On this rank; what each has seen goes to <folder>/<layout>/<rank>.json."""
    loss_scale.GROWTH_STEPS = CLEAN_STEPS  # in this process, which is one of its own
    for layout in layouts:
        run(Path(tokens), Path(folder) / layout, layout)


def run(tokens: Path, folder: Path, layout: str) -> None:
    config = micro.config(
        precision="fp16", num_processes=RANKS, sharding=layout, num_steps=STEPS, checkpoint_every_steps=SAVED
    )
    job = micro.worker_job(config, tokens, folder)
    training, state = set_up(job)
    training = dataclasses.replace(training, hook=spoilt_gradient)
    with Records(job.run, writes=training.ranks.is_main) as records:
        loop = Loop(training, state, records)
        seen = {"skipped": steps(loop, training, 0, SAVED), "scales": [loop.state.loss_scale.scale]}
        loop.save(durable=True)
        loop.finish()
        seen["skipped"] += steps(loop, training, SAVED, STEPS)
        seen["scales"].append(loop.state.loss_scale.scale)
    seen["updates"] = training.optimizer.tensors()["optimizer.step"].item()
    digest = digest_of(training, loop.state)
    forget()
    training, state = set_up(job.model_copy(update={"resume_step": SAVED}))
    with Records(job.run, writes=False) as records:
        seen["resumes"] = resumed_digest(training, state, records) == digest
    forget()
    (folder / f"{training.ranks.rank}.json").write_text(json.dumps(seen))


def resumed_digest(training: Training, state: StepState, records: Records) -> str:
    """Of a training that has gone on from a checkpoint to its end; "" but on the main rank."""
    loop = Loop(training, state, records)
    steps(loop, training, SAVED, STEPS)
    return digest_of(training, loop.state)


def digest_of(training: Training, state: StepState) -> str:
    """Of all that a checkpoint holds; "" but on the main rank."""
    return state_digest(training.tensors(), state.model_dump(mode="json"), reads=training.ranks.is_main)


def steps(loop: Loop, training: Training, first: int, last: int) -> list[int]:
    """Make these steps, counted from 0. Those, counted from 1, that have changed nothing on this rank."""
    skipped = []
    for step in range(first, last):
        before = [local(tensor).clone() for tensor in here(training.tensors()).values()]
        loop.take(training.train_feed.place(training.train.batch(step)), 0.0)
        after = [local(tensor) for tensor in here(training.tensors()).values()]
        if all(map(torch.equal, before, after)):
            skipped.append(step + 1)
    return skipped
