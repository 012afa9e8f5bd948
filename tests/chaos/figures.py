"""What many disturbed runs amount to: the harm done, how fast faults were noticed and made good, and the goodput
against the best that the renewal model allows.

Goodput is judged on the runs whose processes are killed by a Poisson process: seconds of the steps that are in the
final weights, divided by the wall time from the first step to the end of the last. The optimum is that of
`stages.pretrain.checkpoints.cadence.efficiency` over all intervals, for what these runs measured: the time for which a
save stops the training, and until it is there; the kills of a training that was under way, for each second in which it
was; and the outages, from such a kill to the first step after it, with all kills that came on the way. Restarts differ
(a rank is forked, a supervisor imports everything anew) and are killed less often, which has no formula; but the model
says of an outage that it takes (exp(l restart) - 1) / l seconds on average, so the restart that stands for all of them
follows from the mean outage.
"""

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from stages.pretrain.checkpoints.cadence import best_interval, efficiency
from tests.chaos import plan
from tests.chaos.outcome import Outcome

KILLED = (plan.RANK, plan.LAUNCHER, plan.SUPERVISOR, plan.EVERYTHING)


def harm(outcomes: Sequence[Outcome], reference: Outcome) -> dict[str, int]:
    """The counts that have to be 0."""
    return {
        "digest_mismatches": sum(_mismatches(outcome, reference) for outcome in outcomes),
        "samples_lost": sum(outcome.samples_lost for outcome in outcomes),
        "samples_doubled": sum(outcome.samples_doubled for outcome in outcomes),
        "orphans": sum(outcome.orphans for outcome in outcomes),
        "stale_leases": sum(outcome.stale_leases for outcome in outcomes),
        "leftovers": sum(len(outcome.leftovers) for outcome in outcomes),
        "unexpected_ends": sum(outcome.unexpected_ends for outcome in outcomes),
    }


def _mismatches(outcome: Outcome, reference: Outcome) -> int:
    """Artifacts that are not those of the undisturbed run. One that is missing is a mismatch too, unless it was lost
    with its machine: then the durable store has it, and the training's artifact names its digest."""
    names = outcome.digests.keys() | reference.digests.keys()
    if any(happened.kind == plan.LOST for happened in outcome.happened):
        names = outcome.digests.keys() | {plan.TRAINED}
    return sum(outcome.digests.get(name) != reference.digests.get(name) for name in names)


def figures(outcomes: Sequence[Outcome], reference: Outcome) -> dict[str, Any]:
    """All that is measured; a figure that no fault has given is None."""
    step = statistics.median([seconds for outcome in [*outcomes, reference] for seconds in outcome.step_seconds] or [0])
    noticed = {
        kind: [found for outcome in outcomes for found in _noticed(outcome, kind)]
        for kind in (plan.RANK, plan.LAUNCHER, plan.STOP_RANK, plan.CUT_LINK)
    }
    cold = [
        outcome.first_step_at - outcome.starts[0]
        for outcome in [*outcomes, reference]
        if outcome.first_step_at and not (outcome.happened and outcome.happened[0].at < outcome.first_step_at)
    ]
    restarts = {
        kind: [
            happened.resumed_at - happened.at
            for outcome in outcomes
            for happened in outcome.happened
            if happened.kind == kind and happened.resumed_at is not None
        ]
        for kind in KILLED
    }
    return {
        "step_seconds": step,
        "cold_start_seconds": _middle(cold),
        "dead_rank_noticed_seconds": _spread(noticed[plan.RANK]),
        "dead_launcher_noticed_seconds": _spread(noticed[plan.LAUNCHER]),
        "hang_noticed_steps": _spread([seconds / step for seconds in noticed[plan.STOP_RANK]]),
        "cut_link_noticed_steps": _spread([seconds / step for seconds in noticed[plan.CUT_LINK]]),
        "stalled_store_told_seconds": _spread([found for outcome in outcomes for found in _stalls_told(outcome)]),
        "kill_to_first_step_seconds": {kind: _spread(found) for kind, found in restarts.items()},
        "kill_to_first_step_share_of_cold_start": {
            kind: _middle(found) / _middle(cold) if found and cold else None for kind, found in restarts.items()
        },
        **_goodput(outcomes),
    }


def _goodput(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    runs = [outcome for outcome in outcomes if outcome.family == plan.KILLS and outcome.last_step_at]
    outages = [seconds for outcome in runs for seconds in _outages(outcome)]
    saves = [save for outcome in runs for save in outcome.saves]
    if not outages or not saves:
        return {"goodput": None, "goodput_optimum": None, "goodput_share_of_optimum": None}
    wall = sum(outcome.last_step_at - outcome.first_step_at for outcome in runs)
    rate = len(outages) / (wall - sum(outages))
    restart = math.log1p(rate * statistics.mean(outages)) / rate
    save = statistics.mean(line["blocked_seconds"] + line.get("heldout_seconds", 0.0) for line in saves)
    latency = statistics.mean(line["seconds"] for line in saves)
    interval = best_interval(save=save, failures_per_second=rate, latency=latency)
    optimum = efficiency(interval, save=save, restart=restart, failures_per_second=rate, latency=latency)
    goodput = sum(sum(outcome.step_seconds) for outcome in runs) / wall
    return {
        "kills_per_minute": 60 * rate,
        "save_seconds": save,
        "save_latency_seconds": latency,
        "outage_seconds": statistics.mean(outages),
        "restart_seconds": restart,
        "goodput": goodput,
        "goodput_optimum": optimum,
        "goodput_share_of_optimum": goodput / optimum,
    }


def _outages(outcome: Outcome) -> Iterator[float]:
    """Seconds from each kill of a training that was under way to the first step after it, kills of the restart
    included."""
    began: float | None = None
    for happened in outcome.happened:
        if not outcome.first_step_at <= happened.at <= outcome.last_step_at:
            continue
        began = happened.at if began is None else began
        if happened.resumed_at is not None:
            yield happened.resumed_at - began
            began = None


def _noticed(outcome: Outcome, kind: str) -> list[float]:
    """Seconds from each fault of a kind, done while all ranks trained, to when the supervisor noticed it."""
    found = []
    following = [happened.at for happened in outcome.happened[1:]] + [math.inf] * bool(outcome.happened)
    for happened, until in zip(outcome.happened, following, strict=True):
        moments = [incident["noticed"] for incident in outcome.incidents if happened.at <= incident["noticed"] < until]
        if happened.kind == kind and not happened.is_starting and moments:
            found.append(moments[0] - happened.at)
    return found


def _stalls_told(outcome: Outcome) -> list[float]:
    """Seconds from each stall of the durable store to the event that told of it."""
    found = []
    following = [happened.wall for happened in outcome.happened[1:]] + [math.inf] * bool(outcome.happened)
    for happened, until in zip(outcome.happened, following, strict=True):
        moments = [told["time"] for told in outcome.told if happened.wall <= told["time"] < until]
        if happened.kind == plan.STORE_STALL and moments:
            found.append(moments[0] - happened.wall)
    return found


def _spread(values: Sequence[float]) -> dict[str, float] | None:
    if not values:
        return None
    return {"median": statistics.median(values), "low": min(values), "high": max(values), "count": len(values)}


def _middle(values: Sequence[float]) -> float:
    return statistics.median(values) if values else 0.0
