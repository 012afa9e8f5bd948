"""One process of `train_options`, alone or under torchrun: measures the options that it is given, one after the other.

python -m tests.benchmarks.train_options_rank TOKENS FOLDER RESULT (recompute | layouts) SETTINGS

SETTINGS: JSON, {name of the option: settings of pretrain}. RESULT: JSON that the main rank leaves, {name: figures}.
"""

import gc
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from stages.pretrain.checkpoints.tensors import here
from stages.pretrain.config import ModelConfig, PretrainConfig
from stages.pretrain.monitor.communication import Profile
from stages.pretrain.setup import set_up
from stages.pretrain.step import Training, result, train_step
from tests.held import Held
from tests.stages.pretrain import micro

MODEL = ModelConfig(
    hidden_size=256, num_layers=6, num_heads=16, num_kv_heads=16, intermediate_size=768, context_tokens=256
)
WARM_UP_STEPS = 2


def config_of(**settings: Any) -> PretrainConfig:
    return micro.config(
        model=MODEL.model_dump(), sequence_tokens=256, batch_sequences=8, cross_document_attention=True, **settings
    )


def step_of(training: Training, step: int) -> None:
    fed = training.train_feed.place(training.train.batch(step - 1))
    numbers = train_step(training, fed, step=step)
    result(training, numbers, step=step, draw=training.draw(step - 1))


def recompute(trainings: dict[str, Training], *, rounds: int) -> dict[str, dict[str, Any]]:
    """Bytes of tensors that are held between the two passes of a micro-batch, and at the most in them, weights and
    optimizer states aside; CPU seconds of a step, as a list over rounds in which the options take turns."""
    found: dict[str, dict[str, Any]] = {}
    for name, training in trainings.items():
        rows = training.train_feed.place(training.train.batch(0)).micro_batches[0]
        arguments = training.attention.arguments(rows.positions)
        with Held() as held:
            objective, _ = training.model(input_ids=rows.inputs, targets=rows.targets, **arguments)
            kept = held.num_bytes
            objective.backward()
        training.optimizer.zero_grad()
        del objective
        found[name] = {"kept_bytes": kept, "peak_bytes": held.peak_bytes, "cpu_seconds": []}
    for step in range(1, WARM_UP_STEPS + rounds + 1):
        for name, training in trainings.items():
            started = time.process_time()
            step_of(training, step)
            if step > WARM_UP_STEPS:
                found[name]["cpu_seconds"].append(time.process_time() - started)
    return found


def layout(training: Training, *, rounds: int) -> dict[str, Any]:
    """Bytes of the optimizer on this rank; and medians of a step: seconds in which a collective ran, those of them in
    which this rank computed nothing, and seconds of the whole step."""
    states = [tensor for name, tensor in here(training.tensors()).items() if not name.startswith("model.")]
    local = [tensor.to_local() if isinstance(tensor, DTensor) else tensor for tensor in states]
    steps = []
    for step in range(1, WARM_UP_STEPS + rounds + 1):
        watched = Profile(training.ranks.device, all_reduce_ranks=training.ranks.size)
        started = time.perf_counter()
        step_of(training, step)
        seconds = time.perf_counter() - started
        traffic = watched.stop()
        if step > WARM_UP_STEPS:
            steps.append((traffic.seconds, traffic.exposed_seconds, seconds))
    in_collectives, exposed, whole = (statistics.median(column) for column in zip(*steps, strict=True))
    return {
        "optimizer_bytes": sum(tensor.numel() * tensor.element_size() for tensor in local),
        "collective_seconds": in_collectives,
        "exposed_seconds": exposed,
        "step_seconds": whole,
        "sent_bytes": sum(traffic.sent_bytes.values()),
    }


def main(tokens: Path, folder: Path, target: Path, kind: str, options: dict[str, dict[str, Any]], rounds: int) -> None:
    def training_of(name: str) -> Training:
        return set_up(micro.worker_job(config_of(**options[name]), tokens, folder / name))[0]

    if kind == "recompute":
        target.write_text(json.dumps(recompute({name: training_of(name) for name in options}, rounds=rounds)))
        return
    found = {}
    for name in options:
        training = training_of(name)
        ranks, found[name] = training.ranks, layout(training, rounds=rounds)
        most = torch.tensor([found[name]["optimizer_bytes"]])
        torch.distributed.all_reduce(most, torch.distributed.ReduceOp.MAX)
        found[name]["optimizer_bytes"] = int(most.item())
        del training
        gc.collect()
    if ranks.is_main:
        target.write_text(json.dumps(found))
    ranks.leave()


if __name__ == "__main__":
    paths, (kind, options, rounds) = map(Path, sys.argv[1:4]), sys.argv[4:]
    main(*paths, kind, json.loads(options), int(rounds))
