"""One training process. The supervisor starts it; it reads job.json, trains, and says how it ended by exit code and a
record.

    python -m stages.pretrain.worker runs/<key>/job.json

Exit codes: 0 done, 1 a defect, 2 bad input, 70 rollback wanted, 71 hardware suspected, 75 try again. torchrun hides
them, so they stand in failures/rank-<n>.json as well.
"""

import fcntl
import gc
import os
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from data.errors import InputError
from stages.disk import says_full
from stages.errors import BAD_INPUT, FAILED, OK, TRY_AGAIN
from stages.files import write_json
from stages.pretrain.job import Job, RunDirectory
from stages.pretrain.supervision.processes import die_with_parent
from stages.pretrain.supervision.supervise import ROLL_BACK


def main(job_path: str) -> int:
    """Train as job.json says. Returns the exit code, after having put down why if it is not 0."""
    job = Job.read(Path(job_path))
    rank = int(os.environ.get("RANK", "0"))
    try:
        with only_worker(job.run, rank):
            work(job)
        return OK
    except BaseException as error:
        code = exit_code(error)
        record_failure(job.run, rank, code, error)
        if code == FAILED:
            traceback.print_exc()
        else:
            print(f"rank {rank}: {error}", file=sys.stderr)
        return code


def work(job: Job) -> None:
    """Build everything, load the checkpoint that the job names, and train to the end."""
    gc.disable()  # what is imported and set up stays; looking through it for garbage takes a sixth of the time
    from stages.pretrain.loop import train
    from stages.pretrain.monitor.records import Records
    from stages.pretrain.monitor.trackers import Trackers
    from stages.pretrain.setup import set_up

    training, state = set_up(job)
    gc.freeze()
    gc.enable()
    ranks = training.ranks
    names, settings = job.config.trackers if ranks.is_main else (), job.config.model_dump(mode="json")
    with (
        Trackers(names, job.run.trackers, resumed_step=state.step, settings=settings) as trackers,
        Records(job.run, writes=ranks.is_main, trackers=trackers) as records,
    ):
        train(training, state, records)
        peak_bytes = records.peak_memory(ranks.peak_memory_bytes())
    if ranks.is_main:
        result = {
            "parameters": sum(parameter.numel() for parameter in training.model.parameters()),
            "peak_memory_bytes": peak_bytes,
            "device": ranks.device.type,
            "num_processes": ranks.size,
            "threads": job.config.threads,
        }
        write_json(job.run.result, result)
    ranks.leave()


def exit_code(error: BaseException) -> int:
    """The exit code that says what kind of end `error` is."""
    from stages.pretrain.step import NonFinite

    if isinstance(error, InputError):
        return BAD_INPUT
    if isinstance(error, NonFinite):
        return ROLL_BACK
    if says_full(error):
        return TRY_AGAIN
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
                "time": time.time(),
            },
        )
    except OSError as second:  # a full disk: the exit code alone has to do
        print(f"rank {rank}: cannot record the failure: {second}", file=sys.stderr)


@contextmanager
def only_worker(run: RunDirectory, rank: int) -> Iterator[None]:
    """Hold the run directory, so that ranks of an attempt that was just killed are gone before those of the next one
    write."""
    with open(f"{run.lock}-{rank:05d}", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    die_with_parent()
    status = main(sys.argv[1])
    sys.stdout.flush()
    sys.stderr.flush()
    # Everything is on the disk. Threads of a collective that will never complete must not keep a failed process, and
    # taking torch down in order takes seconds.
    os._exit(status)
