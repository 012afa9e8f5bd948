"""Looks at the desk every few seconds, for as long as it stands: `python -m flows.desk watch`.

* A run whose process is gone, or that is not heard of any more, is marked crashed (zombies.py), and one that was to be
  cancelled is marked cancelled. A cancellation that no worker passes on, because the run's worker is gone, is.
* A run of a deployment that crashed is scheduled again, once nothing of it lives here any more (resumes.py): event
  `run.resumed`.
* A run that works and is silent for long is told: `run.stalled` (stalls.py). So is a file system that is nearly full:
  `disk.low`, and `disk.recovered` (disk.py).

Everything that it must remember stands on the server, so it can be ended and started at any time. A server that is away
is waited for; what was to be told meanwhile is told then.
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import flows.environment  # noqa: F401  (first: Prefect reads its settings when it is imported)

# isort: split
import httpx
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.events.schemas.events import Event

from flows.desk.names import WORKER_LABEL, worker_name
from flows.desk.settings import DeskSettings, address, desk_home
from flows.desk.watch.disk import Change, Disks, spaces
from flows.desk.watch.flow_processes import Process, flow_processes
from flows.desk.watch.resumes import TOO_OLD_SECONDS, message_of, resume_of
from flows.desk.watch.sight import Sight, about_disk, about_run, disk_resource
from flows.desk.watch.stalls import Active, Stalls
from flows.desk.watch.zombies import Detector, Seen

LOOK_SECONDS = 10.0
LOOK_LIMIT_SECONDS = 60.0
STALL_LOOK_SECONDS = 60.0
JUMP_SECONDS = 60.0
PASSED_ON_SECONDS = 15.0  # a worker that lives passes a cancellation on within seconds
LEAVES_SECONDS = 120.0  # from there: a training takes a last checkpoint
DISK_MEMORY_SECONDS = 30 * 86400.0
MOST_COMPLAINTS = 1000
SERVERS_OWN = 500  # from here on, an error of HTTP is the server's own


class Watch:
    """`clock` goes forward only; `now` tells Unix seconds."""

    def __init__(
        self,
        settings: DeskSettings,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        processes: Callable[[], dict[str, list[Process]]] = flow_processes,
    ) -> None:
        self._settings, self._clock, self._now, self._processes = settings, clock, now, processes
        self._detector = Detector(settings.crashed_after_seconds)
        self._stalls = Stalls(60 * settings.stalled_after_minutes)
        self._stalls_looked = self._stalls_from = float("-inf")
        self._ahead = now() - clock()  # of the calendar; it jumps where the clock is set, or the machine sleeps
        self._disks: Disks | None = None
        self._has_looked_back = False
        self._settled: set[Any] = set()  # ids of states after which nothing follows
        self._left: dict[int, float] = {}  # processes that were told to leave, and when
        self._adopted: dict[int, float] = {}  # processes to be told, and since when
        self._outbox: list[Event] = []
        self._complaints: set[str] = set()  # each is logged once
        self._is_away = False

    def away(self, error: Exception) -> None:
        """The server could not be asked."""
        if not self._is_away:
            log(f"the server does not answer: {type(error).__name__}: {error}")
        self._is_away = True
        self._detector.away()

    async def look(self, sight: Sight) -> None:
        """Look once at everything."""
        working = await sight.runs(StateType.RUNNING, StateType.CANCELLING, StateType.PENDING)
        if self._is_away:
            log("the server answers again")
            self._is_away = False
        here = self._processes()
        await self._part("zombies", self._look_for_zombies(sight, working, here))
        await self._part("orphans", self._look_for_orphans(sight, working, here))
        await self._part("crashed", self._look_for_crashed(sight, here))
        await self._part("stalled", self._look_for_stalled(sight, working))
        await self._part("disks", self._look_at_disks(sight))
        await self._part("events", self._tell(sight))

    async def _part(self, name: str, part: Awaitable[None]) -> None:
        """What is wrong with one part does not keep the others from being looked at."""
        try:
            await part
        except (httpx.TransportError, TimeoutError):
            raise  # the server is away for all of them
        except Exception as error:
            self._complain(f"{name}: {type(error).__name__}: {error}")

    async def _tell(self, sight: Sight) -> None:
        """What is refused would be refused again, and would keep all that follows from being told."""
        while self._outbox:
            try:
                await sight.tell(self._outbox[0])
            except httpx.HTTPStatusError as error:
                if error.response.status_code >= SERVERS_OWN:
                    raise
                self._complain(f"{self._outbox[0].event} is not told: {error.response.status_code}")
            del self._outbox[0]

    def _complain(self, text: str) -> None:
        """Once; and once more after very many others."""
        if len(self._complaints) >= MOST_COMPLAINTS:
            self._complaints.clear()
        if text not in self._complaints:
            self._complaints.add(text)
            log(text)

    async def _look_for_zombies(self, sight: Sight, working: list[FlowRun], here: dict[str, list[Process]]) -> None:
        now, seen = self._now(), []
        for run in working:
            assert run.state is not None
            alive = any(process.leads for process in here.get(str(run.id), ()))
            seen.append(
                Seen(
                    id=str(run.id),
                    state=run.state.type.value,
                    state_id=str(run.state.id),
                    beat="" if alive else await sight.last_beat(run, now),
                    here=run.labels.get(WORKER_LABEL) == worker_name(),
                    alive=alive,
                )
            )
        runs = {str(run.id): run for run in working}
        for verdict in self._detector.look(seen, self._clock()):
            if await sight.end(runs[verdict.id], StateType(verdict.state), verdict.message):
                log(f"{runs[verdict.id].name} ({verdict.id}) is {verdict.state.lower()}: {verdict.message}")

    async def _look_for_orphans(self, sight: Sight, working: list[FlowRun], here: dict[str, list[Process]]) -> None:
        """End those that were to be cancelled and whose worker is not there to do it: first as a worker would."""
        leaders = {process.pid: process for group in here.values() for process in group if process.adopted}
        cancelled = {str(run.id) for run in working if run.state and run.state.is_cancelling()}
        others = {process.run for process in leaders.values()} - {str(run.id) for run in working}
        if others:
            found = await sight.runs_of(sorted(others))
            cancelled |= {str(run.id) for run in found if run.state and run.state.is_cancelled()}
        now = self._clock()
        condemned = {pid for pid, process in leaders.items() if process.run in cancelled}
        self._adopted = {pid: self._adopted.get(pid, now) for pid in condemned}
        self._left = {pid: since for pid, since in self._left.items() if pid in condemned}
        for pid in condemned:
            if pid not in self._left and now - self._adopted[pid] >= PASSED_ON_SECONDS:
                log(f"{leaders[pid].run} was cancelled and its worker is gone: process {pid} is asked to leave")
                self._left[pid] = now
                _signal(pid, signal.SIGTERM)
            elif pid in self._left and now - self._left[pid] >= LEAVES_SECONDS:
                log(f"process {pid} of {leaders[pid].run} has not left: it is ended")
                _signal(pid, signal.SIGKILL)

    async def _look_for_crashed(self, sight: Sight, here: dict[str, list[Process]]) -> None:
        now, most = self._now(), self._settings.resumes
        # The first look goes back to when the desk was stopped.
        since = now - TOO_OLD_SECONDS if self._has_looked_back else None
        crashed = await sight.runs(StateType.CRASHED, ended_after=since, only_deployed=True)
        self._settled &= {run.state.id for run in crashed if run.state}
        for run in crashed:
            assert run.state is not None
            if run.state.id in self._settled:
                continue
            resume = resume_of(await sight.history(run), now, most)
            if resume is None:
                self._settled.add(run.state.id)
            elif left := here.get(str(run.id)):
                self._complain(f"{run.name} ({run.id}) is not resumed before its process {left[0].pid} has ended")
                continue
            if now - run.state.timestamp.timestamp() < TOO_OLD_SECONDS:
                await sight.end_tasks(run)
            if resume and await sight.schedule_again(run, resume.time, message_of(resume, most)):
                log(f"{run.name} ({run.id}) is resumed: {resume.reason}")
                text = f"{run.name} goes on by itself after: {resume.reason}"
                payload = {"text": text, "number": resume.number, "most": most, "link": self._link(run)}
                self._outbox.append(about_run("run.resumed", run, payload))
        self._has_looked_back = True

    async def _look_for_stalled(self, sight: Sight, working: list[FlowRun]) -> None:
        if self._clock() - self._stalls_looked < STALL_LOOK_SECONDS:
            return
        self._stalls_looked, now = self._clock(), self._now()
        minutes = self._settings.stalled_after_minutes
        before, self._ahead = self._ahead, now - self._clock()
        if self._ahead - before >= JUMP_SECONDS:
            self._stalls_from = self._clock() + 60 * minutes
        if self._clock() < self._stalls_from:
            return
        running = {str(run.id): run for run in working if run.state and run.state.is_running()}
        active = [
            Active(id=each, name=run.name, last=await sight.last_activity(run, now - 60 * minutes))
            for each, run in running.items()
        ]
        for stalled in self._stalls.look(active, now):
            run = running[stalled.id]
            if await sight.last_told(["run.stalled"], f"longhaul.run.{run.id}", stalled.last):
                continue
            text = f"{run.name}: nothing heard for {(now - stalled.last) / 60:.0f} minutes"
            log(f"{run.id} has stalled. {text}")
            payload = {
                "title": f"{run.name} stands still",
                "text": text,
                "silent_seconds": round(now - stalled.last),
                "link": self._link(run),
            }
            self._outbox.append(about_run("run.stalled", run, payload))

    async def _look_at_disks(self, sight: Sight) -> None:
        found = spaces([Path(self._settings.root).absolute(), desk_home().parent])
        if self._disks is None:
            since, names = self._now() - DISK_MEMORY_SECONDS, ["disk.low", "disk.recovered"]
            told = {space.path: await sight.last_told(names, disk_resource(space.path), since) for space in found}
            low = [path for path, name in told.items() if name == "disk.low"]
            self._disks = Disks(self._settings.disk_least_share, self._settings.disk_least_bytes, low)
        for change in self._disks.look(found):
            log(change.text)
            self._outbox.append(_disk_event(change))

    def _link(self, run: FlowRun) -> str:
        """Where the UI shows a run."""
        site = os.environ.get("PREFECT_UI_URL") or address(self._settings)
        return f"{site}/runs/flow-run/{run.id}"


def _disk_event(change: Change) -> Event:
    space = change.space
    payload = {
        "title": "disk nearly full" if change.low else "disk has room again",
        "text": change.text,
        "free_bytes": space.free_bytes,
        "total_bytes": space.total_bytes,
        "free_share": round(space.free_share, 4),
    }
    return about_disk("disk.low" if change.low else "disk.recovered", space.path, payload)


def _signal(process: int, number: signal.Signals) -> None:
    """To the whole group, where the process leads one."""
    with suppress(ProcessLookupError):
        send = os.killpg if os.getpgid(process) == process else os.kill
        send(process, number)


def log(text: str) -> None:
    """A line on standard error."""
    with suppress(OSError):  # no room for a log is no reason to look no more
        print(f"{datetime.now().astimezone().isoformat(timespec='seconds')} watch: {text}", file=sys.stderr, flush=True)


async def watch(settings: DeskSettings, stop: asyncio.Event) -> None:
    """Look until `stop` is set."""
    watching = Watch(settings)
    while not stop.is_set():
        try:
            async with asyncio.timeout(LOOK_LIMIT_SECONDS), get_client() as client:
                await watching.look(Sight(client))
        except (httpx.HTTPError, TimeoutError, OSError, RuntimeError) as error:
            watching.away(error)
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), LOOK_SECONDS)


def main(settings: DeskSettings) -> None:
    """Watch until SIGTERM or SIGINT. Raises whatever ends the watch before, so that another one is started."""

    async def until_told() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        log("begins")
        looking, told = asyncio.create_task(watch(settings, stop)), asyncio.create_task(stop.wait())
        await asyncio.wait({looking, told}, return_when=asyncio.FIRST_COMPLETED)
        told.cancel()
        looking.cancel()  # a look that waits for a server which is away must not hold up the end
        with suppress(asyncio.CancelledError):
            await looking
        log("ends")

    asyncio.run(until_told())
