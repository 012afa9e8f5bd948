"""The end of a desk: watch, worker, the flow runs on this machine, server; nothing of it stays.

A flow run takes its last checkpoint; what has not left in time is killed.
"""

import signal
from collections.abc import Callable, Sequence
from pathlib import Path

from flows.desk.client import Client, ServerError
from flows.desk.names import FLOW_RUN
from flows.desk.processes.parts import PART_VARIABLE, part_played
from flows.desk.processes.process import Process, of_desk, roots, wait_until
from flows.desk.watch.resumes import STOPPED

FLOW_SECONDS = 90.0  # a stage has 30 to take its checkpoint
PART_SECONDS = 15.0
ENDED_BY_ITSELF = ("COMPLETED", "FAILED", "CANCELLED")

Say = Callable[[str], None]


def stop_desk(home: Path, say: Say, hurried: Callable[[], bool] = lambda: False) -> None:
    """End whatever carries the mark of the desk, but this process. `hurried` is true once nobody wants to wait."""
    stop_part("watch", home, say)
    stop_worker(home, say, hurried)
    stop_part("server", home, say)
    _kill_rest(home, say)


def stop_part(name: str, home: Path, say: Say) -> None:
    found = [process for process in of_desk(home) if part_played(process) == name]
    end(found, signal.SIGTERM)
    if found:
        say(f"{name} stopped")


def stop_worker(home: Path, say: Say, hurried: Callable[[], bool] = lambda: False) -> None:
    """End the worker, then its flow runs, and mark these as crashed because of that: so they continue with the desk.

    The worker goes first and at once, since it would start the next run in the place of one that ends; nothing is lost
    with it.
    """
    workers = [process for process in _of_worker(home) if FLOW_RUN not in process.environment]
    end(workers, signal.SIGKILL)
    flows = {process: process.environment for process in _of_worker(home)}
    runs = {variables[FLOW_RUN]: variables for variables in flows.values() if FLOW_RUN in variables}
    if runs:
        say(f"waiting for {len(runs)} flow run{'s' if len(runs) > 1 else ''} to take the last checkpoint")
    for process in roots(list(flows)):
        process.signal(signal.SIGTERM, group=True)
    end(list(flows), None, FLOW_SECONDS, hurried)
    for run, variables in runs.items():
        _mark_stopped(Client(variables.get("PREFECT_API_URL", ""), variables), run, say)
    if workers or flows:
        say("worker stopped")


def _of_worker(home: Path) -> list[Process]:
    """The worker, and whatever it has started."""
    return [process for process in of_desk(home) if process.environment.get(PART_VARIABLE) == "worker"]


def _mark_stopped(client: Client, run: str, say: Say) -> None:
    """A run that was brought down says that it crashed, if it can say anything; what made it do so is told here. One
    that was being cancelled is."""
    try:
        state = (client.get(f"/flow_runs/{run}")["state"] or {}).get("type")
        if state not in ENDED_BY_ITSELF:
            end = ("CANCELLED", "Cancelled") if state == "CANCELLING" else ("CRASHED", "Crashed")
            mark = {"type": end[0], "name": end[1], "message": STOPPED}
            client.post(f"/flow_runs/{run}/set_state", {"state": mark, "force": True})
    except ServerError as error:
        say(f"flow run {run} could not be marked crashed ({error}); it will be, when the desk is started again")


def end(
    processes: Sequence[Process],
    number: signal.Signals | None,
    seconds: float = PART_SECONDS,
    hurried: Callable[[], bool] = lambda: False,
) -> None:
    """Send a signal to each, wait for all, and kill those that stay."""
    for process in processes:
        if number is not None:
            process.signal(number)
    wait_until(lambda: hurried() or not any(p.alive for p in processes), seconds)
    for process in processes:
        process.signal(signal.SIGKILL)
    wait_until(lambda: not any(process.alive for process in processes), PART_SECONDS)


def _kill_rest(home: Path, say: Say) -> None:
    for _ in range(10):  # what is being started while it is killed is found the next time
        left = of_desk(home)
        if not left:
            return
        end(left, signal.SIGKILL)
    say(f"processes that cannot be killed: {', '.join(str(process.pid) for process in of_desk(home))}")
