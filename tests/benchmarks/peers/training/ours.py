"""This project's own worker, as a run launches it, on a tokens artifact."""

import json
import os
from pathlib import Path
from typing import Any

from stages import manifest
from stages.pretrain.config import ModelConfig, PretrainConfig
from stages.pretrain.faults import ALLOWED
from stages.pretrain.job import make_job, read_lines
from stages.pretrain.supervision.attempt import log_tail, train_once
from tests.benchmarks.peers.training import steps

FOLDER = "LONGHAUL_BENCH_STEPS"
MODEL = ModelConfig(
    hidden_size=steps.HIDDEN,
    num_layers=steps.LAYERS,
    num_heads=steps.HEADS,
    num_kv_heads=steps.HEADS,
    intermediate_size=steps.FEED_FORWARD,
    context_tokens=steps.TOKENS,
    tie_embeddings=False,
)
_times: steps.Steps | None = None


def hook(point: str, step: int, rank: int, value: Any) -> Any:
    """Takes the time where a step ends; put into the worker as tests put their faults in."""
    global _times
    if point == "end":
        _times = _times or steps.Steps(Path(os.environ[FOLDER]))
        _times.ended()
    return value


def train(tokens: Path, folder: Path, settings: dict[str, Any]) -> list[dict[str, Any]]:
    """Run the worker. tokens: the artifact. Returns the lines of timing.jsonl."""
    config = PretrainConfig.model_validate(
        {
            "model": MODEL.model_dump(),
            "sequence_tokens": steps.TOKENS,
            "batch_sequences": steps.ROWS,
            "micro_batch_sequences": steps.ROWS,
            "num_steps": steps.STEPS,
            "checkpoint_every_steps": steps.STEPS,
            "heldout_sequences": steps.ROWS,
            "healthy_steps": 1,
            "learning_rate": steps.LEARNING_RATE,
            "weight_decay": steps.WEIGHT_DECAY,
            "gradient_clip_norm": steps.CLIP_NORM,
            "precision": "fp32",
            "compile": True,
            "device": "cpu",
            # One sample among the steps that count, so more of them than a training takes that says nothing.
            "monitor_every_steps": steps.STEPS - steps.SKIPPED,
            "threads": 1,
            **settings,
        }
    )
    found = manifest.read(tokens)
    assert found is not None, f"{tokens} is no artifact"
    job = make_job(
        config,
        tokens=tokens,
        facts=found.facts,
        tokens_digest=found.digest,
        config_fingerprint="bench",
        directory=folder / "run",
        hook=f"{__name__}:hook",
    )
    os.environ |= {ALLOWED: "1", FOLDER: str(folder.absolute())}
    end = train_once(job)
    if end.code:
        raise RuntimeError(f"{end.cause}\n{log_tail(job.run)}")
    losses = [line["loss"] for line in read_lines(job.run.metrics)]
    (folder / "losses.json").write_text(json.dumps(losses))
    return read_lines(job.run.timing)
