"""One training process. The launcher forks it; it reads job.json, trains, and says how it ended by exit code and a
record in failures/rank-<n>.json.

Exit codes: 0 done, 1 a defect, 2 bad input, 70 rollback wanted, 71 hardware suspected, 72 out of memory, 75 try again,
76 left on request.
"""

import fcntl
import gc
import os
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from data.errors import InputError
from stages import out_of_memory
from stages.disk import says_full
from stages.errors import BAD_INPUT, FAILED, OK, TRY_AGAIN
from stages.files import write_json
from stages.pretrain.job import Job, RunDirectory
from stages.pretrain.parallel.ranks import SLOT
from stages.pretrain.supervision.beats import Heart, Phase
from stages.pretrain.supervision.notices import Left
from stages.pretrain.supervision.supervise import LEFT, OUT_OF_MEMORY, ROLL_BACK

if TYPE_CHECKING:
    from stages.pretrain.monitor.records import Records
    from stages.pretrain.step import Training


def main(job_path: str) -> int:
    """Train as job.json says. Returns the exit code, after having put down why if it is not 0."""
    job = Job.read(Path(job_path))
    slot = int(os.environ.get(SLOT, "0"))
    try:
        with only_worker(job.run, slot):
            work(job, heart_of(job, slot))
        return OK
    except Left:
        return LEFT
    except BaseException as raised:
        code = exit_code(raised)
        error = out_of_memory.explained(raised, "pretrain", job.config) if code == OUT_OF_MEMORY else raised
        with suppress(OSError):  # the disk of the log may be full too: the exit code alone has to do
            record_failure(job.run, slot, code, error)
            if code == FAILED:
                traceback.print_exc()
            else:
                print(f"rank {slot}: {error}", file=sys.stderr)
        return code


def heart_of(job: Job, slot: int) -> Heart | None:
    """What tells the supervisor where this rank is, if one has asked."""
    if not job.run.beats.exists():
        return None
    return Heart(job.run.beats, slot, seconds=job.config.collective_timeout_seconds, stacks=job.run.stacks)


def work(job: Job, heart: Heart | None = None) -> None:
    """Build everything, load the checkpoint that the job names, and train to the end."""
    gc.disable()  # what is imported and set up stays; looking through it for garbage takes a sixth of the time
    from stages.pretrain.loop import train
    from stages.pretrain.setup import set_up

    training, state = set_up(job, heart)
    gc.freeze()
    gc.enable()
    ranks = training.ranks
    with records_of(job, training, state.step) as records:
        train(training, state, records)
        peak_bytes = records.peak_memory(ranks.peak_memory_bytes())
    if training.is_main:
        result = {
            "parameters": sum(parameter.numel() for parameter in training.model.parameters()),
            "peak_memory_bytes": peak_bytes,
            "device": ranks.device.type,
            "num_processes": job.config.num_processes,
            "threads": job.config.threads,
        }
        write_json(job.run.result, result)
    if heart is not None:
        heart.beat(Phase.LEAVING, state.step, job.config.collective_timeout_seconds)
    ranks.leave()


@contextmanager
def records_of(job: Job, training: "Training", step: int) -> "Iterator[Records]":
    """The records of this rank; trackers get what comes after `step`."""
    from stages.pretrain.monitor.records import Records
    from stages.pretrain.monitor.trackers import Trackers
    from stages.pretrain.parallel.redundant_records import SharedRecords

    is_main = training.ranks.is_main
    names, settings = job.config.trackers if is_main else (), job.config.model_dump(mode="json")

    def trackers(step: int) -> Trackers:
        return Trackers(names, job.run.trackers, resumed_step=step, settings=settings)

    if training.replicas is not None and is_main:
        with SharedRecords(job.run, trackers=trackers) as shared:
            yield shared
        return
    with trackers(step) as opened, Records(job.run, writes=is_main, trackers=opened) as records:
        yield records


def exit_code(error: BaseException) -> int:
    """The exit code that says what kind of end `error` is."""
    from stages.pretrain.step import NonFinite

    if isinstance(error, InputError):
        return BAD_INPUT
    if isinstance(error, NonFinite):
        return ROLL_BACK
    if says_full(error):
        return TRY_AGAIN
    if out_of_memory.says_so(error):
        return OUT_OF_MEMORY
    return FAILED


def record_failure(run: RunDirectory, rank: int, code: int, error: BaseException) -> None:
    """Put down why this process ends, for the supervisor."""
    try:
        run.failures.mkdir(parents=True, exist_ok=True)
        write_json(
            run.failures / f"rank-{rank:05d}.json",
            {
                "rank": rank,
                "exit_code": code,
                "error": type(error).__name__,
                "message": str(error),
                "draw": getattr(error, "draw", None),
                "traceback": "".join(traceback.format_exception(error)),
                "clock": time.monotonic(),
            },
        )
    except OSError as second:
        print(f"rank {rank}: cannot record the failure: {second}", file=sys.stderr)


@contextmanager
def only_worker(run: RunDirectory, rank: int) -> Iterator[None]:
    """Hold the run directory, so that ranks of an attempt that was just killed are gone before those of the next one
    write."""
    with open(f"{run.lock}-{rank:05d}", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
