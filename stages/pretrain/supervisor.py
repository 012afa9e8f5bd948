"""The supervising side of pretraining: launches workers, watches them through the run directory, decides, and publishes
what is healthy.

Imports no torch. The workers detect; this side decides (see `stages.pretrain.supervise`).
"""

import json
import os
import shutil
import statistics
import time
from functools import partial
from pathlib import Path
from typing import Any

from data.errors import InputError
from stages.base import Facts, Inputs
from stages.errors import BAD_INPUT, TRY_AGAIN, TryAgain
from stages.files import fsync_file
from stages.journal import Journal, torn
from stages.pretrain import checkpoint
from stages.pretrain.attempt import Workers, explain, log_tail
from stages.pretrain.config import PretrainConfig
from stages.pretrain.health import is_proven
from stages.pretrain.job import METRICS, TIMING, Job, RunDirectory, make_job, read_lines
from stages.pretrain.keeper import Keeper, always, choose
from stages.pretrain.records import cut_back
from stages.pretrain.streams import TRAIN, open_sequences
from stages.pretrain.supervise import Action, Decision, Ending, decide
from stages.pretrain.tail import MetricsTail
from stages.store import Store


def pretrain(config: PretrainConfig, inputs: Inputs, out: Path, journal: Journal, *, hook: str = "") -> Facts:
    """Train the model of the recipe, or go on with it; `hook`: a test's fault injector (see `stages.pretrain.faults`).

    Raises InputError, TryAgain, or RuntimeError with the end of the workers' log.
    """
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
    for warning in open_sequences(config, Path(job.tokens), TRAIN).warnings:
        journal.warning(warning)
    keeper = Keeper(config, inputs, job.run, job.vocabulary_size, journal)
    supervise(job, journal, keeper)
    return collect(job, keeper, out)


def forget(store: Store, key: str) -> None:
    """Remove the run directory, so that the next run trains from the first step. Durable checkpoints stay artifacts,
    and each step that is made again is compared with its own."""
    run = store.runs_path(key)
    if run.exists():
        store.remove(run)


def supervise(job: Job, journal: Journal, keeper: Keeper) -> None:
    """Launch attempts until the last step is done and every durable checkpoint is published, or until `decide` says
    stop."""
    config, run = job.config, job.run
    history: list[Ending] = []
    step = choose(run, journal, wanted=always)
    while True:
        cut_back(run, step)
        keeper.forget(step)
        # What an earlier supervisor left healthy and unpublished is made good here.
        keeper.poll(step)
        if step == config.num_steps and run.result.exists():
            return
        ending = attempt(job.at(step), MetricsTail(run, config, journal, resumed_step=step), keeper)
        decision = decide(ending, history, max_relaunches=config.max_relaunches)
        if decision.action is Action.DONE:
            assert ending.step == config.num_steps, f"the workers are done at step {ending.step} of {config.num_steps}"
            return
        record_incident(run, journal, ending, decision, attempt_number=len(history) + 1, resumed_step=step)
        history.append(ending)
        if decision.action is Action.STOP:
            raise stop(run, decision)
        wanted = (
            partial(is_proven, reached=ending.step, config=config) if decision.action is Action.ROLL_BACK else always
        )
        step = choose(run, journal, wanted=wanted)


def attempt(job: Job, tail: MetricsTail, keeper: Keeper) -> Ending:
    """Run the workers once, publishing and telling meanwhile."""
    job.write()
    with Workers(job) as workers:
        returned = workers.wait(lambda: keeper.poll(tail.poll()))
    code, cause = explain(job.run, returned)
    newest = max(checkpoint.scan(job.run.checkpoints).complete, default=0)
    return Ending(exit_code=code, cause=cause, step=tail.reached, checkpoint_step=newest)


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


def collect(job: Job, keeper: Keeper, out: Path) -> Facts:
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
        "checkpoints": [{"step": a.facts["step"], "key": a.key, "digest": a.digest} for a in artifacts],
    }
    return Facts(facts=facts, measurements=measurements(job.config, timing, run, result), measured_files=(TIMING,))


def measurements(
    config: PretrainConfig, timing: list[dict[str, Any]], run: RunDirectory, result: dict[str, Any]
) -> dict[str, Any]:
    """Speed and memory. Seconds are wall seconds inside steps, those of the attempt whose result was kept; checkpoints,
    held-out losses and starts are not in them. `result`: the peak of all attempts, and the layout and device of the
    last one."""
    seconds = [line["seconds"] for line in timing]
    return {
        **result,
        "step_seconds": sum(seconds),
        "median_step_seconds": statistics.median(seconds),
        "tokens_per_second": config.batch_tokens / statistics.median(seconds),
        "data_wait_seconds": sum(line["data_wait_seconds"] for line in timing),
        "incidents": len(read_lines(run.incidents)),
    }
