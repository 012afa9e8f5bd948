"""What a run directory says of the cost of its checkpoints and of its failures, and how often to save by that."""

import json
import statistics
from pathlib import Path
from typing import Any

from stages.files import last_bytes
from stages.pretrain.checkpoints import cadence
from stages.pretrain.config import PretrainConfig
from stages.pretrain.job import RunDirectory, read_lines


def last_lines(path: Path) -> list[dict[str, Any]]:
    """The last whole JSON objects of a .jsonl file, as many as 64 KiB hold; empty if there is no file."""
    found = []
    for line in last_bytes(path).splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:  # cut off, here or by a kill
            continue
    return [line for line in found if isinstance(line, dict)]  # the rest of a line may be a number


def step_seconds(run: RunDirectory) -> float | None:
    """Seconds of the median step among the latest ones; None before the first."""
    seconds = [line["seconds"] for line in last_lines(run.timing)]
    return statistics.median(seconds) if seconds else None


def failures_per_second(config: PretrainConfig, run: RunDirectory, reached: int) -> float:
    """Estimated from the relaunches so far and the time that `reached` steps take."""
    relaunches = sum(line["decision"] == "relaunch" for line in read_lines(run.incidents))
    seconds = reached * (step_seconds(run) or 0.0)
    return cadence.failure_rate(prior_per_day=config.failures_per_day, failures=relaunches, seconds=seconds)


def local_seconds(config: PretrainConfig, run: RunDirectory, reached: int) -> float | None:
    """Seconds between local checkpoints: as the recipe says, or the best ones for what has been measured so far; None
    before that."""
    if config.checkpoint_seconds is not None:
        return config.checkpoint_seconds
    saves = last_lines(run.saves)
    cost = cadence.measured_cost(saves, durable=False) or cadence.measured_cost(saves, durable=True)
    if cost is None:
        return None
    rate = failures_per_second(config, run, reached)
    return cadence.local_interval(save=cost.save, failures_per_second=rate, latency=cost.latency)


def durable_warning(config: PretrainConfig, run: RunDirectory, reached: int) -> str:
    """That durable checkpoints are too far apart or too close for the measured time of a step, or ""."""
    seconds = step_seconds(run)
    if seconds is None:
        return ""
    return cadence.advice(
        config,
        num_steps=config.num_steps,
        step_seconds=seconds,
        cost=cadence.measured_cost(last_lines(run.saves), durable=True),
        failures_per_second=failures_per_second(config, run, reached),
    ).warning
