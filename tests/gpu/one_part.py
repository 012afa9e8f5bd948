"""One part of `tests.gpu.parts`, in a process of its own: prints its figures as one JSON object, last.

python -m tests.gpu.one_part PART FIGURES_OF_THE_PARTS_BEFORE
"""

import contextlib
import importlib.util
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from data.shards.files import ShardHeader
from stages.plan.memory import memory
from stages.pretrain.config import ModelConfig, PretrainConfig
from stages.pretrain.loop import Loop
from stages.pretrain.model.counts import flops
from stages.pretrain.monitor.records import Records
from stages.pretrain.setup import set_up
from tests.stages.pretrain import micro

VOCABULARY = 32_768
HEADER = ShardHeader(vocabulary_size=VOCABULARY, padded_vocabulary_size=VOCABULARY, end_id=2, vocabulary_digest="gpu")
MODEL = ModelConfig(
    hidden_size=2048,
    num_layers=20,
    num_heads=16,
    num_kv_heads=8,
    intermediate_size=7168,
    context_tokens=4096,
    tie_embeddings=False,
)
SEQUENCES, STEPS, WARM_UP = 8, 24, 8


def large(**changes: Any) -> PretrainConfig:
    """The 1.2 B model on one GPU."""
    settings = {
        "model": MODEL.model_dump(),
        "sequence_tokens": MODEL.context_tokens,
        "batch_sequences": SEQUENCES,
        "micro_batch_sequences": SEQUENCES,
        "num_steps": STEPS,
        "cross_document_attention": True,
        "precision": "bf16",
        "compile": True,
        "device": "cuda",
        "threads": 4,
        "learning_rate": 3e-4,
        "monitor_every_steps": 1000,
    }
    return micro.config(**{**settings, **changes})


def tokens_per_second(config: PretrainConfig, folder: Path) -> tuple[float, int]:
    """Of the median step behind the warm-up; and the most bytes that the device has held."""
    micro.write_tokens(folder / "tokens", header=HEADER, num_tokens=2_000_000)
    job = micro.worker_job(config, folder / "tokens", folder / "run").model_copy(
        update={"vocabulary_size": VOCABULARY, "padded_vocabulary_size": VOCABULARY}
    )
    training, state = set_up(job)
    seconds = []
    with Records(job.run, writes=True) as records:
        loop = Loop(training, state, records)
        with training.train.read_ahead(first_step=0, num_steps=config.num_steps, depth=4, readers=2) as batches:
            loop.start()
            for batch in training.train_feed.ahead(batches):
                began = time.perf_counter()
                loop.take(batch, 0.0)
                seconds.append(time.perf_counter() - began)
        loop.settle()
    return config.batch_places(1) / statistics.median(seconds[WARM_UP:]), training.ranks.peak_memory_bytes()


def matrix_rate() -> float:
    """Floating-point operations per second of a bf16 matrix product of 8192 x 8192 x 8192, random values."""
    import torch

    size = 8192
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    for _ in range(5):
        a @ b
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(20):
        a @ b
    torch.cuda.synchronize()
    return 20 * 2 * size**3 / (time.perf_counter() - began)


def equality(folder: Path, before: dict[str, Any]) -> dict[str, Any]:
    losses: dict[str, list[float]] = {}
    micro.write_tokens(folder / "tokens")
    for device in ("cpu", "cuda"):
        job = micro.worker_job(
            micro.config(device=device, num_steps=20, checkpoint_every_steps=20, learning_rate=3e-3, warmup_ratio=0.5),
            folder / "tokens",
            folder / device,
        )
        from stages.pretrain.supervision.attempt import log_tail, train_once

        end = train_once(job)
        assert end.code == 0, f"{end.cause}\n{log_tail(job.run)}"
        losses[device] = [json.loads(line)["loss"] for line in job.run.metrics.read_text().splitlines()]
    worst = max(abs(gpu / cpu - 1) for gpu, cpu in zip(losses["cuda"], losses["cpu"], strict=True))
    assert worst < 1e-4, f"losses differ by {worst}"
    return {"largest_relative_loss_difference": worst}


def speed(folder: Path, before: dict[str, Any]) -> dict[str, Any]:
    rate, peak = tokens_per_second(large(), folder)
    matrix = matrix_rate()
    mfu = rate * flops(MODEL, VOCABULARY, MODEL.context_tokens).per_token / matrix
    return {"tokens_per_second": rate, "mfu": mfu, "matrix_tflops": matrix / 1e12, "peak_memory_bytes": peak}


def memory_part(folder: Path, before: dict[str, Any]) -> dict[str, Any]:
    planned = memory(MODEL, large(), VOCABULARY)
    on_device = planned.total - planned.process
    return {"planned_memory_bytes": on_device, "ratio_memory_plan": on_device / before["peak_memory_bytes"]}


def float8(folder: Path, before: dict[str, Any]) -> dict[str, Any]:
    if importlib.util.find_spec("torchao") is None:
        return {"float8": "torchao is not installed"}
    rate, _ = tokens_per_second(large(precision="fp8"), folder)
    return {"float8_tokens_per_second": rate, "ratio_float8_bf16": rate / before["tokens_per_second"]}


def torchtitan(folder: Path, before: dict[str, Any]) -> dict[str, Any]:
    if importlib.util.find_spec("torchtitan") is None:
        return {"torchtitan": "is not installed"}
    from tests.gpu.titan import tokens_per_second as titan_tokens_per_second

    rate = titan_tokens_per_second(MODEL, VOCABULARY, sequences=SEQUENCES, steps=STEPS, folder=folder)
    return {"torchtitan_tokens_per_second": rate, "ratio_torchtitan": before["tokens_per_second"] / rate}


def checkpoint(folder: Path, before: dict[str, Any]) -> dict[str, Any]:
    from tests.gpu.checkpoints import checkpoints

    return checkpoints(folder)


def main(part: str, before: dict[str, Any]) -> None:
    run = {
        "equality": equality,
        "speed": speed,
        "memory": memory_part,
        "float8": float8,
        "torchtitan": torchtitan,
        "checkpoint": checkpoint,
    }[part]
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
        found = run(Path(folder), before)
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
