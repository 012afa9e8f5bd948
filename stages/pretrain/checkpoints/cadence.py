"""How often to save: an exact model of a run that fails now and then, and what follows from it.

Failures are a Poisson process and may hit anything, saves and restarts among it. After each `interval` seconds of work
the training stands still for `save` seconds; the checkpoint is there `latency` seconds after the save began, and the
training goes on meanwhile. A failure costs `restart` seconds, from the failure to the first new work, and all work
since the newest checkpoint that was there. With l failures a second the share of wall time that is kept work is

    l interval / (exp(l (interval + latency + restart)) (1 - exp(-l (interval + save))))

For latency = save, which is a save that the training waits for, this is Daly, A higher order estimate of the optimum
checkpoint interval for restart dumps (2006), section 3, equation 13. The rest follows in the same way: from the moment
at which a checkpoint is there the next one takes interval + save seconds, but interval + latency seconds after a
restart. All times are in seconds.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stages.pretrain.checkpoints.settings import CheckpointSettings

DAY_SECONDS = 86_400.0
# Local checkpoints: more often would only wear the disk, less often would make a run of hours lose much at its first
# failure, before any rate is known.
LEAST_LOCAL_SECONDS, MOST_LOCAL_SECONDS = 10.0, 600.0
# Durable ones: below, storage and held-out measuring cost more than they give; above, losing a machine loses too much.
LEAST_DURABLE_SECONDS, MOST_DURABLE_SECONDS = 3600.0, 7200.0
COUNTED_SAVES = 20


def efficiency(
    interval: float, *, save: float, restart: float, failures_per_second: float, latency: float | None = None
) -> float:
    """Share of the wall time of a long run that is work which is kept; see above. latency: as `save` if not given.
    Where it is longer than interval + save, the next save waits for it, so that is the interval then."""
    interval, latency = _settled(interval, save, latency)
    rate = failures_per_second
    if rate == 0:
        return interval / (interval + save)
    exponent = rate * (interval + latency + restart)
    # Beyond this nothing is ever finished.
    return rate * interval * math.exp(-exponent) / -math.expm1(-rate * (interval + save)) if exponent < 700 else 0.0


def best_interval(*, save: float, failures_per_second: float, latency: float | None = None) -> float:
    """The interval with the highest `efficiency`; infinite without failures. It does not depend on the restart, and on
    the latency only as its lower bound: with x = l interval, the derivative is zero where
    x = 1 - exp(-(x + l save)), which has one solution."""
    least, _ = _settled(0.0, save, latency)
    if failures_per_second == 0:
        return math.inf
    low, high = 0.0, 1.0
    while (middle := (low + high) / 2) not in (low, high):
        if middle + math.expm1(-(middle + failures_per_second * save)) < 0:
            low = middle
        else:
            high = middle
    return max(least, low / failures_per_second)


def _settled(interval: float, save: float, latency: float | None) -> tuple[float, float]:
    """The interval that comes about, and the latency."""
    latency = save if latency is None else max(latency, save)
    return max(interval, latency - save), latency


def local_interval(*, save: float, failures_per_second: float, latency: float | None = None) -> float:
    """Seconds between local checkpoints: the best ones, at least 10 and at most 600."""
    best = best_interval(save=save, failures_per_second=failures_per_second, latency=latency)
    return min(max(best, LEAST_LOCAL_SECONDS), MOST_LOCAL_SECONDS)


def failure_rate(*, prior_per_day: float, failures: int, seconds: float) -> float:
    """Failures a second, estimated from `failures` in `seconds` of running: the mean of the posterior, where the prior
    is a Gamma distribution of shape 1 (exponential) with mean `prior_per_day`. It counts as one failure seen in the
    time in which the prior expects one."""
    return (1 + failures) / (DAY_SECONDS / prior_per_day + seconds)


@dataclass(frozen=True)
class Cost:
    """What a checkpoint costs. save: seconds in which the training stands still, for a durable one those of the
    held-out loss among them; latency: seconds from the begin of the save until the checkpoint is there."""

    save: float
    latency: float


def measured_cost(saves: Sequence[Mapping[str, Any]], *, durable: bool) -> Cost | None:
    """Medians over the latest lines of saves.jsonl; None if there is none of the kind."""
    lines = [line for line in saves if line["durable"] == durable][-COUNTED_SAVES:]
    if not lines:
        return None
    held = [line["blocked_seconds"] + line["heldout_seconds"] for line in lines]
    return Cost(statistics.median(held), statistics.median(line["seconds"] for line in lines))


@dataclass(frozen=True, kw_only=True)
class Advice:
    """About durable checkpoints, in seconds and in steps. interval: as the recipe says; least, most: what is advised;
    warning: one sentence, or ""."""

    interval_seconds: float
    least_seconds: float
    most_seconds: float
    least_steps: int
    most_steps: int
    warning: str


def advice(
    config: CheckpointSettings,
    *,
    num_steps: int,
    step_seconds: float,
    cost: Cost | None = None,
    failures_per_second: float | None = None,
) -> Advice:
    """Between one and two hours; where cost and failures have been measured, also as far as the interval that is best
    for them. Silent about runs that are shorter than an hour."""
    least, most = LEAST_DURABLE_SECONDS, MOST_DURABLE_SECONDS
    if cost is not None and failures_per_second is not None:
        best = best_interval(save=cost.save, failures_per_second=failures_per_second, latency=cost.latency)
        least, most = min(least, best), max(most, best)
    interval = min(config.checkpoint_every_steps, num_steps) * step_seconds
    fewest = max(1, math.ceil(least / step_seconds))
    highest = max(fewest, math.floor(min(most, num_steps * step_seconds) / step_seconds))
    warning = ""
    if num_steps * step_seconds >= LEAST_DURABLE_SECONDS and not least <= interval <= most:
        consequence = (
            "less often, and the loss of the machine loses more work"
            if interval > most
            else "more often, and held-out losses and copies cost more than they give"
        )
        warning = (
            f"pretrain.checkpoint_every_steps = {config.checkpoint_every_steps} makes a durable checkpoint every "
            f"{_hours(interval)} at {step_seconds:.3g} s a step; advised is every {_hours(least)} to {_hours(most)}, "
            f"which is {fewest} to {highest} steps: {consequence}"
        )
    return Advice(
        interval_seconds=interval,
        least_seconds=least,
        most_seconds=most,
        least_steps=fewest,
        most_steps=highest,
        warning=warning,
    )


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.0f} min"
