"""The supervising side of pretraining: launches workers, watches them through the run directory, decides, and publishes
what is healthy.

Imports no torch, and what reads tokens only where it is used. The workers detect; this side decides (see
`stages.pretrain.supervision.supervise`).
"""

import json
import os
import shutil
import statistics
import time
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data.errors import InputError
from stages.base import Facts, Inputs
from stages.errors import BAD_INPUT, TRY_AGAIN, TryAgain
from stages.files import fsync_file
from stages.journal import Journal, torn
from stages.pretrain.batches.exclusions import Exclusion, draws, read_exclusions, write_exclusions
from stages.pretrain.checkpoints import checkpoint
from stages.pretrain.checkpoints.health import is_proven
from stages.pretrain.checkpoints.keeper import Keeper, always, choose
from stages.pretrain.config import PretrainConfig
from stages.pretrain.job import METRICS, TIMING, Job, RunDirectory, make_job, read_lines
from stages.pretrain.monitor.records import cut_back
from stages.pretrain.monitor.summary import summary
from stages.pretrain.monitor.tail import MetricsTail
from stages.pretrain.supervision.attempt import Workers, explain, log_tail
from stages.pretrain.supervision.supervise import Action, Decision, Ending, decide
from stages.store import Store

if TYPE_CHECKING:
    from stages.pretrain.batches.sequences import Sequences

MOST_WAITING = 0.05  # of the time of the steps, for data, before the journal warns


def pretrain(config: PretrainConfig, inputs: Inputs, out: Path, journal: Journal, *, hook: str = "") -> Facts:
    """Train the model of the recipe, or go on with it; `hook`: a test's fault injector (see `stages.pretrain.faults`).

    Raises InputError, TryAgain, or RuntimeError with the end of the workers' log.
    """
    from stages.pretrain.batches.sequences import open_train

    tokens = inputs["tokens"]
    job = make_job(
        config,
        tokens=tokens.path,
        facts=tokens.facts,
        tokens_digest=tokens.digest,
        config_fingerprint=inputs.key,
        directory=inputs.store.runs_path(inputs.key),
        hook=hook,
    )
    sequences = open_train(config, tokens.path, local=True)
    for warning in sequences.warnings:
        journal.warning(warning)
    keeper = Keeper(config, inputs, job.run, job.vocabulary_size, journal)
    supervise(job, journal, keeper, sequences)
    return collect(job, keeper, sequences, out, journal)


def forget(store: Store, key: str) -> None:
    """Remove the run directory, so that the next run trains from the first step. Durable checkpoints stay artifacts,
    and each step that is made again is compared with its own."""
    run = store.runs_path(key)
    if run.exists():
        store.remove(run)


def supervise(job: Job, journal: Journal, keeper: Keeper, sequences: "Sequences") -> None:
    """Launch attempts until the last step is done and every durable checkpoint is published, or until `decide` says
    stop."""
    config, run = job.config, job.run
    history: list[Ending] = []
    exclusions = read_exclusions(run.excluded)
    step = choose(run, journal, wanted=always)
    while True:
        cut_back(run, step)
        keeper.forget(step)
        # What an earlier supervisor left healthy and unpublished is made good here.
        keeper.poll(step)
        if step == config.num_steps and run.result.exists():
            return
        tail = MetricsTail(run, config, journal, resumed_step=step)
        ending = attempt(job.at(step, draws(exclusions)), tail, keeper)
        decision = decide(
            ending,
            history,
            max_relaunches=config.max_relaunches,
            max_exclusions=config.max_exclusions,
            excluded_steps=[exclusion.step for exclusion in exclusions],
        )
        if decision.action is Action.DONE:
            assert ending.step == config.num_steps, f"the workers are done at step {ending.step} of {config.num_steps}"
            return
        record_incident(run, journal, ending, decision, attempt_number=len(history) + 1, resumed_step=step)
        history.append(ending)
        if decision.action is Action.STOP:
            raise stop(run, decision)
        if decision.action is Action.EXCLUDE:
            exclusions = exclude(run, journal, ending, exclusions, sequences)
        goes_back = decision.action in (Action.ROLL_BACK, Action.EXCLUDE)
        wanted = partial(is_proven, reached=ending.step, config=config) if goes_back else always
        step = choose(run, journal, wanted=wanted)


def exclude(
    run: RunDirectory,
    journal: Journal,
    ending: Ending,
    exclusions: tuple[Exclusion, ...],
    sequences: "Sequences",
) -> tuple[Exclusion, ...]:
    """Leave out the batch that was not finite from here on, and say which documents it held, or why that cannot be
    said. Returns all exclusions."""
    assert ending.draw is not None, "nothing to exclude"
    made = Exclusion(first=ending.draw, last=ending.draw + 1, step=ending.step + 1)
    # The event first: a kill between the two repeats it, and no batch is left out without having been told of.
    journal.event("excluded", **made.model_dump(), **_documents(sequences, ending.draw))
    exclusions = (*exclusions, made)
    write_exclusions(run.excluded, exclusions)
    return exclusions


def _documents(sequences: "Sequences", draw: int) -> dict[str, Any]:
    """Of a batch, for the journal. The training goes on without the batch whether its documents have names or not."""
    from stages.pretrain.batches.documents import documents_of_draw

    try:
        return {"documents": documents_of_draw(sequences, draw)}
    except Exception as error:
        return {"documents": {}, "unread": f"{type(error).__name__}: {error}"}


def attempt(job: Job, tail: MetricsTail, keeper: Keeper) -> Ending:
    """Run the workers once, publishing and telling meanwhile."""
    job.write()
    with Workers(job) as workers:
        returned = workers.wait(lambda: keeper.poll(tail.poll()))
    end = explain(job.run, returned)
    newest = max(checkpoint.scan(job.run.checkpoints).complete, default=0)
    return Ending(exit_code=end.code, cause=end.cause, step=tail.reached, checkpoint_step=newest, draw=end.draw)


def record_incident(
    run: RunDirectory, journal: Journal, ending: Ending, decision: Decision, *, attempt_number: int, resumed_step: int
) -> None:
    """One line in incidents.jsonl with the whole context, behind whatever a full disk has cut off, and one event."""
    incident: dict[str, Any] = {
        "attempt": attempt_number,
        "exit_code": ending.exit_code,
        "cause": ending.cause,
        "resumed_step": resumed_step,
        "step": ending.step,
        "checkpoint_step": ending.checkpoint_step,
        "draw": ending.draw,
        "decision": decision.action.value,
        "reason": decision.reason,
    }
    with open(run.incidents, "ab") as file:
        line = {"time": round(time.time(), 3), **incident, "log": log_tail(run)}
        start = b"\n" if torn(run.incidents) else b""
        file.write(start + json.dumps(line, ensure_ascii=False).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())
    journal.event("incident", **incident)


def stop(run: RunDirectory, decision: Decision) -> Exception:
    """The error with which the supervisor gives up."""
    if decision.exit_code == BAD_INPUT:
        return InputError(decision.reason)
    if decision.exit_code == TRY_AGAIN:
        return TryAgain(decision.reason)
    return RuntimeError(f"training stopped: {decision.reason}\n{log_tail(run)}")


def collect(job: Job, keeper: Keeper, sequences: "Sequences", out: Path, journal: Journal) -> Facts:
    """Put the records of the finished run into the artifact and say what it amounts to."""
    run = job.run
    artifacts = keeper.require_all()
    for source, name in ((run.metrics, METRICS), (run.timing, TIMING)):
        shutil.copyfile(source, out / name)
        fsync_file(out / name)
    metrics, timing = read_lines(run.metrics), read_lines(run.timing)
    losses = [line["loss"] for line in metrics if line["loss"] is not None]
    result = json.loads(run.result.read_text(encoding="utf-8"))
    facts = {
        "num_steps": len(metrics),
        "tokens": metrics[-1]["tokens"],
        "first_loss": losses[0],
        "final_loss": losses[-1],
        "heldout_loss": artifacts[-1].facts["heldout_loss"],
        "parameters": result.pop("parameters"),
        "packing": {
            "kind": job.config.packing,
            "cross_document_attention": job.config.cross_document_attention,
            "domains": sequences.packing_facts(),
        },
        "mixture": sequences.mixture_facts(len(metrics)),
        "excluded": [exclusion.model_dump() for exclusion in read_exclusions(run.excluded)],
        "checkpoints": [{"step": a.facts["step"], "key": a.key, "digest": a.digest} for a in artifacts],
    }
    measured = measurements(metrics, timing, run, result)
    warn_of_waiting(journal, measured["data_wait_ratio"])
    return Facts(facts=facts, measurements=measured, measured_files=(TIMING,))


def warn_of_waiting(journal: Journal, data_wait_ratio: float) -> None:
    """Say so if the training was starved of data."""
    if data_wait_ratio > MOST_WAITING:
        journal.warning(
            f"{data_wait_ratio:.1%} of the time of the steps was spent waiting for data: raise pretrain.reader_threads "
            "or pretrain.prefetch_batches, or bring the shards nearer"
        )


def measurements(
    metrics: list[dict[str, Any]], timing: list[dict[str, Any]], run: RunDirectory, result: dict[str, Any]
) -> dict[str, Any]:
    """Speed and memory. Seconds are wall seconds inside steps, those of the attempt whose result was kept; checkpoints,
    held-out losses and starts are not in them. `metrics`, `timing`: a line for each step. `result`: the peak of all
    attempts, and the layout and device of the last one. tokens_per_second: that were predicted, padding left out, in
    the median step. data_wait_ratio: share of the time of the steps in which the process that waited longest for its
    data did so. The rest: see `summary`."""
    seconds = [line["seconds"] for line in timing]
    totals = [0, *(line["tokens"] for line in metrics)]
    speeds = [(after - before) / step for (before, after), step in zip(pairwise(totals), seconds, strict=True)]
    waited = sum(line["data_wait_seconds"] for line in timing)
    return {
        **result,
        "step_seconds": sum(seconds),
        "median_step_seconds": statistics.median(seconds),
        "tokens_per_second": statistics.median(speeds),
        "data_wait_seconds": waited,
        "data_wait_ratio": waited / sum(seconds),
        "incidents": len(read_lines(run.incidents)),
        **summary(timing),
    }
