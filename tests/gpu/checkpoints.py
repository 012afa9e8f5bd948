"""Checkpoints beside a training on a GPU: whether they hold their own step, and how long they hold the training up."""

import time
from pathlib import Path
from typing import Any

import torch

from stages.pretrain.checkpoints.checkpoint import TENSORS, fill, step_name
from stages.pretrain.checkpoints.tensors import here
from stages.pretrain.loop import Loop
from stages.pretrain.monitor.records import Records
from stages.pretrain.setup import set_up
from tests.stages.pretrain import micro

MODEL = micro.MODEL.model_copy(
    update={"hidden_size": 1024, "num_layers": 12, "num_heads": 16, "num_kv_heads": 8, "intermediate_size": 3584}
)
SAVES, STEPS_BETWEEN = 4, 6


def checkpoints(folder: Path, **changes: Any) -> dict[str, Any]:
    """The best of several saves that the training waits for, and of several beside it, whose tensors are compared bit
    by bit with those of their step."""
    micro.write_tokens(folder / "tokens")
    seconds: dict[bool, list[float]] = {False: [], True: []}
    for asynchronous in (False, True):
        settings = {"model": MODEL.model_dump(), "device": "cuda", "asynchronous_checkpoints": asynchronous, **changes}
        config = micro.config(**settings, num_steps=10_000, checkpoint_every_steps=10_000)
        job = micro.worker_job(config, folder / "tokens", folder / f"run-{asynchronous}")
        training, state = set_up(job)
        saver, step = training.saver, 0
        with Records(job.run, writes=True) as records:
            loop = Loop(training, state, records)
            for _ in range(SAVES):
                for _ in range(STEPS_BETWEEN):
                    loop.take(training.train_feed.place(training.train.batch(step)), 0.0)
                    step += 1
                loop.settle()
                expected = {name: tensor.clone() for name, tensor in here(training.tensors()).items()}
                before, began = saver.blocked_seconds, time.perf_counter()
                loop.save(durable=False)
                loop.take(training.train_feed.place(training.train.batch(step)), 0.0)
                step += 1
                seconds[asynchronous].append(saver.blocked_seconds - before)
                saver.finish()
                found = {name: torch.empty_like(tensor) for name, tensor in expected.items()}
                fill(job.run.checkpoints / step_name(step - 1) / TENSORS, found)
                wrong = [name for name in expected if not torch.equal(found[name], expected[name])]
                assert not wrong, f"the checkpoint holds another step's {wrong[:3]}"
                print(f"{'beside' if asynchronous else 'waiting'}: there after {time.perf_counter() - began:.2f} s")
            loop.settle()
    waiting, beside = (min(seconds[asynchronous]) for asynchronous in (False, True))
    return {"save_seconds": waiting, "save_blocked_seconds": beside, "checkpoint_blocked_share": beside / waiting}
