"""The supervising side of pretraining: has attempts run, decides what comes after each, and publishes what is healthy.

Imports no torch, and what reads tokens only where it is used. The workers detect; this side decides (see
`stages.pretrain.supervision.supervise`).
"""

import json
import os
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data.errors import InputError
from stages.base import Facts, Inputs
from stages.errors import BAD_INPUT, TRY_AGAIN, TryAgain
from stages.journal import Journal, torn
from stages.pretrain.batches.exclusions import Draws, Exclusion, draws, read_exclusions, write_exclusions
from stages.pretrain.checkpoints.choose import always, choose
from stages.pretrain.checkpoints.health import is_proven
from stages.pretrain.checkpoints.keeper import Keeper
from stages.pretrain.checkpoints.tier import begin_anew
from stages.pretrain.config import PretrainConfig
from stages.pretrain.job import Job, RunDirectory, make_job
from stages.pretrain.monitor.records import cut_back
from stages.pretrain.monitor.tail import MetricsTail
from stages.pretrain.supervision.account import Account
from stages.pretrain.supervision.attempt import POLL_SECONDS, launcher_for, log_tail
from stages.pretrain.supervision.capacity import Capacity, with_processes
from stages.pretrain.supervision.collect import collect
from stages.pretrain.supervision.groups import Launcher
from stages.pretrain.supervision.healing import Healing
from stages.pretrain.supervision.launchers import Launchers
from stages.pretrain.supervision.moments import Kind, kind_of
from stages.pretrain.supervision.notices import Notices
from stages.pretrain.supervision.running import Attempt
from stages.pretrain.supervision.supervise import Action, Decision, Ending, decide
from stages.store import Store

if TYPE_CHECKING:
    from stages.pretrain.batches.sequences import Sequences


ON_REQUEST = (Kind.REQUEST, Kind.RESIZE)  # ends that were wanted, and are no incidents


@dataclass(frozen=True, kw_only=True)
class Means:
    """What a supervisor works with, for the whole of a run."""

    journal: Journal
    keeper: Keeper
    launcher: Launcher | Launchers
    notices: Notices
    account: Account
    capacity: Capacity
    sequences: "Sequences"


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
    with (
        Notices() as notices,
        Keeper(
            config,
            inputs,
            job.run,
            job.vocabulary_size,
            journal,
            interrupt=lambda: require_going_on(notices),
        ) as keeper,
        # It imports while the rest is looked at, and ends with all ranks before the keeper has done what it is at.
        launcher_for(job) as launcher,
    ):
        sequences = open_train(config, tokens.path, local=True)
        for warning in sequences.warnings:
            journal.warning(warning)
        keeper.recover()
        account = Account(job.run, journal)
        means = Means(
            journal=journal,
            keeper=keeper,
            launcher=launcher,
            notices=notices,
            account=account,
            capacity=Capacity(config, job.run.processes),
            sequences=sequences,
        )
        try:
            supervise(job, means)
            return collect(job, keeper, sequences, account, out, journal)
        finally:
            account.closed()


def forget(store: Store, key: str) -> None:
    """Remove the run directory, so that the next run trains from the first step. Durable checkpoints stay artifacts,
    and each step that is made again is compared with its own."""
    run = store.runs_path(key)
    if run.exists():
        store.remove(run)
    begin_anew(run)


def supervise(job: Job, means: Means) -> None:
    """Launch attempts until the last step is done and every durable checkpoint is published, or until `decide` says
    stop."""
    config, run, keeper, account = job.config, job.run, means.keeper, means.account
    history: list[Ending] = []
    exclusions = read_exclusions(run.excluded)
    wanted, processes = always, config.num_processes
    while True:
        step = choose(run, means.journal, wanted=wanted, fetch=keeper.fetch)
        account.resuming(step)
        cut_back(run, step)
        keeper.forget(step)
        # What an earlier supervisor left healthy and unpublished is made good here.
        keeper.poll(step)
        if step == config.num_steps and run.result.exists():
            return
        this = next_job(job, means, step, draws(exclusions))
        if this.config.num_processes != processes:
            before, processes = processes, this.config.num_processes
            noun = "process" if processes == 1 else "processes"
            means.journal.event("note", text=f"{processes} {noun} instead of {before}")
        if step or history:
            means.journal.event("note", text=f"goes on from step {step:,}" if step else "begins from the first step")
        account.began(num_processes=processes)
        ending = attempt(this, means)
        decision = decide(
            ending,
            history,
            max_relaunches=config.max_relaunches,
            max_exclusions=config.max_exclusions,
            excluded_steps=[exclusion.step for exclusion in exclusions],
            may_shrink=means.capacity.may_lose_another(),
        )
        account_for(account, ending, decision)
        if decision.action is Action.DONE:
            assert ending.step == config.num_steps, f"the workers are done at step {ending.step} of {config.num_steps}"
            return
        if kind_of(ending.exit_code, ending.requested) not in ON_REQUEST:
            record_incident(run, means.journal, ending, decision, attempt_number=len(history) + 1, resumed_step=step)
        history.append(ending)
        if decision.action is Action.STOP:
            raise stop(run, decision)
        if decision.action is Action.EXCLUDE:
            exclusions = exclude(run, means.journal, ending, exclusions, means.sequences)
        if decision.without is not None:
            means.capacity.suspected.add(means.capacity.place_of(decision.without))
        pause(decision.delay_seconds, means.notices)
        goes_back = decision.action in (Action.ROLL_BACK, Action.EXCLUDE)
        wanted = partial(is_proven, reached=ending.step, config=config) if goes_back else always


def next_job(job: Job, means: Means, step: int, excluded: Draws) -> Job:
    """The job of the next attempt, from the checkpoint of `step`, whose bytes have all been verified, on what there is
    now. Raises TryAgain where that is too little, or if the run is to stop."""
    require_going_on(means.notices)
    processes = means.capacity.possible()
    if not processes:
        raise TryAgain(f"{means.capacity.too_few()}; the same command goes on when they can")
    return job.model_copy(
        update={
            "config": with_processes(job.config, processes),
            "resume_step": step,
            "excluded": excluded,
            "verified": step > 0,
            "checkpoint_seconds": means.keeper.checkpoint_seconds(),
        }
    )


def require_going_on(notices: Notices) -> None:
    """Raises TryAgain if the run has been asked to stop, while no attempt runs."""
    if notices.received is not None:
        raise TryAgain(f"stopped on request ({notices.received.name}); the same command goes on from there")


def pause(seconds: float, notices: Notices) -> None:
    """Before the next attempt; cut short by a notice."""
    until = time.monotonic() + seconds
    while notices.received is None and time.monotonic() < until:
        time.sleep(min(POLL_SECONDS, max(until - time.monotonic(), 0)))


def attempt(job: Job, means: Means) -> Ending:
    """Run the ranks once, publishing and telling meanwhile."""
    tail = MetricsTail(job.run, job.config, means.journal, resumed_step=job.resume_step)

    def look() -> None:
        means.keeper.poll(tail.poll())
        means.account.poll()

    healing = Healing(job, means.journal, means.account, reached=lambda: tail.reached)
    running = Attempt(
        job,
        launcher=means.launcher,
        journal=means.journal,
        notices=means.notices,
        capacity=means.capacity,
        grouping=healing if job.config.redundant else None,
    )
    return running.run(look, reached=lambda: tail.reached)


def account_for(account: Account, ending: Ending, decision: Decision) -> None:
    """Tell the account of the end of an attempt."""
    account.ended(
        kind_of(ending.exit_code, ending.requested),
        cause=ending.cause,
        step=ending.step,
        decision=decision.action.value,
        delay_seconds=decision.delay_seconds,
        noticed_at=ending.noticed_at,
        silent_seconds=ending.silent_seconds,
    )


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
        "rank": ending.rank,
        "decision": decision.action.value,
        "reason": decision.reason,
        "delay_seconds": decision.delay_seconds,
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
