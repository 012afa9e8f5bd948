"""The watch on a real server, by clocks and with processes that the tests make up."""

import asyncio
import errno
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import flows.environment  # noqa: F401  (first: Prefect reads its settings when it is imported)

# isort: split
import httpx
import pytest
from prefect import flow, task
from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.events.filters import EventFilter, EventNameFilter, EventOccurredFilter, EventResourceFilter
from prefect.events.schemas.events import Event, Resource
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Cancelling, Completed, Running

from flows.desk.names import HEARTBEAT, TAG, WORKER_LABEL, worker_name
from flows.desk.settings import DeskSettings
from flows.desk.watch import watch as module
from flows.desk.watch.flow_processes import Process, flow_processes
from flows.desk.watch.resumes import RETRY
from flows.desk.watch.sight import Sight, about_disk, disk_resource
from flows.desk.watch.watch import LEAVES_SECONDS, PASSED_ON_SECONDS, STALL_LOOK_SECONDS, Watch, watch
from flows.desk.watch.zombies import GONE_SECONDS

T = 90.0
EVENT_SECONDS = 30.0


@flow(name="watched")
def watched() -> None:
    """Nothing runs it."""


@task(name="watched")
def _task() -> None:
    """Nothing runs it either."""


@dataclass
class Desk:
    """A watch, its clock, and what it sees of processes. `later`: how far its calendar is ahead of the server's."""

    client: PrefectClient
    settings: DeskSettings
    clock: float = 0.0
    later: float = 0.0
    processes: Callable[[], dict[str, list[Process]]] = dict
    watch: Watch = field(init=False)

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Another watch in its place."""
        self.watch = Watch(
            self.settings,
            clock=lambda: self.clock,
            now=lambda: time.time() + self.later,
            processes=lambda: self.processes(),
        )

    async def look(self, after_seconds: float = 0.0) -> None:
        self.clock += after_seconds
        await self.watch.look(Sight(self.client))

    async def run(self, *, here: bool = True, deployed: bool = False) -> FlowRun:
        """A run that works, as far as the server knows."""
        if deployed:
            flow_id = await self.client.create_flow(watched)
            deployment = await self.client.create_deployment(flow_id, f"watched-{uuid.uuid4().hex[:8]}", tags=[TAG])
            run = await self.client.create_flow_run_from_deployment(deployment, tags=[TAG], state=Running())
        else:
            run = await self.client.create_flow_run(watched, tags=[TAG], state=Running())
        await self.client.update_flow_run_labels(run.id, {WORKER_LABEL: worker_name() if here else "elsewhere"})
        return run

    async def state(self, run: FlowRun) -> Any:
        return (await self.client.read_flow_run(run.id)).state

    async def heartbeat(self, run: FlowRun, *, later: float = 0.0) -> None:
        """later: how far the clock of the run's machine is ahead."""
        resource = Resource({"prefect.resource.id": f"prefect.flow-run.{run.id}"})
        beat = Event(event=HEARTBEAT, resource=resource, occurred=datetime.now(UTC) + timedelta(seconds=later))
        await Sight(self.client).tell(beat)
        while not await self.events(HEARTBEAT, f"prefect.flow-run.{run.id}", beat.id):
            await asyncio.sleep(0.05)

    async def events(self, name: str, resource: str, id: uuid.UUID | None = None) -> list[Event]:
        chosen = EventFilter(
            event=EventNameFilter(name=[name]),
            resource=EventResourceFilter(id=[resource]),
            occurred=EventOccurredFilter(until=datetime.now(UTC) + timedelta(hours=1)),
        )
        found = (await self.client.read_events(chosen, limit=50)).events
        return [event for event in found if id in (None, event.id)]

    async def told(self, name: str, resource: str, times: int = 1) -> list[Event]:
        """So many events, once they are there."""
        until = time.monotonic() + EVENT_SECONDS
        while len(found := await self.events(name, resource)) < times and time.monotonic() < until:
            await asyncio.sleep(0.05)
        return found


STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, lambda *_: print("asked", flush=True))
print("up", flush=True)
while True:
    time.sleep(1)
"""
Test = Callable[[Desk], Awaitable[None]]
WithDesk = Callable[..., None]


@pytest.fixture
def with_desk(api: str, tmp_path: Path) -> Iterator[WithDesk]:
    """Runs a coroutine with a desk whose disk has room."""

    def run(test: Test, **settings: Any) -> None:
        async def story() -> None:
            wanted = {"root": str(tmp_path), "disk_least_share": 0, "disk_least_bytes": 0, **settings}
            async with get_client() as client:
                await test(Desk(client, DeskSettings(**wanted)))

        asyncio.run(story())

    yield run


def test_a_run_whose_process_is_gone_is_crashed_and_resumed_and_its_tasks_end(with_desk: WithDesk) -> None:
    async def test(desk: Desk) -> None:
        run = await desk.run(deployed=True)
        task = await desk.client.create_task_run(_task, run.id, "0", state=Running())
        await desk.look()
        assert (await desk.state(run)).is_running()
        await desk.look(GONE_SECONDS)
        states = await desk.client.read_flow_run_states(run.id)
        (crashed,) = (state for state in states if state.type is StateType.CRASHED)
        assert "process is gone" in (crashed.message or "")
        state = await desk.state(run)
        assert state.name == RETRY and "1 of 3" in state.message and "process is gone" in state.message
        assert state.state_details.scheduled_time > datetime.now(UTC)
        (event,) = await desk.told("run.resumed", f"longhaul.run.{run.id}")
        assert event.payload["number"] == 1 and event.payload["link"].endswith(str(run.id))
        task_run = await desk.client.read_task_run(task.id)
        assert task_run.state and task_run.state.is_crashed()

    with_desk(test)


def test_it_is_not_resumed_while_something_of_it_lives_here(with_desk: WithDesk) -> None:
    """Such as a stage that takes its last checkpoint."""

    async def test(desk: Desk) -> None:
        run = await desk.run(deployed=True)
        stage = Process(pid=1, run=str(run.id), leads=False, adopted=False)
        desk.processes = lambda: {str(run.id): [stage]}
        await desk.look()
        await desk.look(GONE_SECONDS)
        await desk.look(GONE_SECONDS)
        assert (await desk.state(run)).is_crashed()
        desk.processes = dict
        await desk.look()
        assert (await desk.state(run)).name == RETRY

    with_desk(test)


@pytest.mark.parametrize("later", [0.0, -1800.0, 1800.0])
def test_heartbeats_keep_a_run_elsewhere_and_silence_ends_it(with_desk: WithDesk, later: float) -> None:
    """Whatever the clock over there says."""

    async def test(desk: Desk) -> None:
        run = await desk.run(here=False)
        for _ in range(4):
            await desk.heartbeat(run, later=later)
            await desk.look(0.9 * T)
        assert (await desk.state(run)).is_running()
        await desk.look(T)
        state = await desk.state(run)
        assert state.is_crashed() and state.message == "no heartbeat for 90 s"

    with_desk(test)


def test_what_has_ended_stays_as_it_ended(with_desk: WithDesk) -> None:
    async def test(desk: Desk) -> None:
        run = await desk.run()
        await desk.heartbeat(run)
        await desk.look()
        await desk.client.set_flow_run_state(run.id, Completed())
        await desk.heartbeat(run)
        for _ in range(3):
            await desk.look(T)
        assert (await desk.state(run)).is_completed()
        ended = await desk.client.read_flow_run(run.id)
        assert not await Sight(desk.client).end(ended, StateType.CRASHED, "judged a moment too late")
        assert (await desk.state(run)).is_completed()

    with_desk(test)


def test_a_run_that_was_started_again_is_not_judged_by_what_was_before(with_desk: WithDesk) -> None:
    async def test(desk: Desk) -> None:
        run = await desk.run()
        before = await desk.client.read_flow_run(run.id)
        await desk.client.set_flow_run_state(run.id, Running(), force=True)
        assert not await Sight(desk.client).end(before, StateType.CRASHED, "judged a moment too late")
        assert (await desk.state(run)).is_running()
        now = await desk.client.read_flow_run(run.id)
        assert await Sight(desk.client).end(now, StateType.CRASHED, "judged in time")

    with_desk(test)


def test_a_cancelled_run_without_a_process_is_cancelled_and_stays_so(with_desk: WithDesk) -> None:
    async def test(desk: Desk) -> None:
        run = await desk.run(deployed=True)
        await desk.client.set_flow_run_state(run.id, Cancelling())
        await desk.look()
        await desk.look(GONE_SECONDS)
        await desk.look(GONE_SECONDS)
        assert (await desk.state(run)).is_cancelled()

    with_desk(test)


def test_a_cancellation_reaches_a_process_whose_worker_is_gone(with_desk: WithDesk) -> None:
    async def test(desk: Desk) -> None:
        run = await desk.run()
        await desk.client.set_flow_run_state(run.id, Cancelling())
        child = subprocess.Popen(
            [sys.executable, "-c", STUBBORN, "flows.desk.engine"],  # the last word says what it is
            env={**os.environ, "PREFECT__FLOW_RUN_ID": str(run.id)},
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            assert child.stdout and child.stdout.readline() == "up\n"
            desk.processes = flow_processes
            await desk.look()
            await desk.look(PASSED_ON_SECONDS)
            assert child.stdout.readline() == "asked\n"
            await desk.look(LEAVES_SECONDS)
            assert child.wait(EVENT_SECONDS) == -signal.SIGKILL
            await desk.look()
            await desk.look(GONE_SECONDS)
            assert (await desk.state(run)).is_cancelled()
        finally:
            child.kill()
            child.wait()

    with_desk(test)


def test_a_run_that_stands_still_is_told_once_whatever_happens_to_the_watch(
    with_desk: WithDesk, capsys: pytest.CaptureFixture[str]
) -> None:
    async def test(desk: Desk) -> None:
        run = await desk.run()
        desk.processes = lambda: {str(run.id): [Process(pid=1, run=str(run.id), leads=True, adopted=False)]}
        await desk.look()
        desk.later = 3700.0
        await desk.look(STALL_LOOK_SECONDS)
        assert "has stalled" not in capsys.readouterr().err, "the clock was set: nobody was silent"
        desk.begin()
        for _ in range(2):
            await desk.look(STALL_LOOK_SECONDS)
        (event,) = await desk.told("run.stalled", f"longhaul.run.{run.id}")
        assert "nothing heard for 6" in event.payload["text"] and str(run.id) in event.payload["link"]
        desk.begin()
        await desk.look()
        assert len(await desk.events("run.stalled", f"longhaul.run.{run.id}")) == 1
        await desk.client.set_flow_run_state(run.id, Completed())

    with_desk(test)


def test_a_disk_that_is_nearly_full_is_told_once_and_so_is_its_end(with_desk: WithDesk, tmp_path: Path) -> None:
    async def test(desk: Desk) -> None:
        resource = disk_resource(str(tmp_path))
        for _ in range(2):
            await desk.look()
        (low,) = await desk.told("disk.low", resource)
        assert low.payload["free_bytes"] < 1e18 and "GB" in low.payload["text"]
        desk.begin()  # it knows what was told before
        await desk.look()
        desk.settings = desk.settings.model_copy(update={"disk_least_bytes": 0})
        desk.begin()
        for _ in range(2):
            await desk.look()
        assert len(await desk.told("disk.recovered", resource)) == 1
        assert len(await desk.events("disk.low", resource)) == 1

    with_desk(test, disk_least_bytes=10**18)


@dataclass
class Told:
    """A server that refuses one event for what it is, and is unwell at another."""

    names: list[str] = field(default_factory=list)

    async def tell(self, event: Event) -> None:
        code = {"refused": 422, "unwell": 500}.get(event.event)
        if code:
            asked = httpx.Request("POST", "http://here/events")
            raise httpx.HTTPStatusError("", request=asked, response=httpx.Response(code))
        self.names.append(event.event)


def test_an_event_that_is_refused_keeps_no_other_from_being_told(capsys: pytest.CaptureFixture[str]) -> None:
    watching, told = Watch(DeskSettings()), Told()
    watching._outbox = [about_disk(name, "/", {}) for name in ("first", "refused", "second", "unwell", "third")]
    with pytest.raises(httpx.HTTPStatusError):
        asyncio.run(watching._tell(told))
    assert told.names == ["first", "second"] and "refused is not told: 422" in capsys.readouterr().err
    assert [event.event for event in watching._outbox] == ["unwell", "third"], "they are told another time"


def test_a_watch_that_cannot_look_ends_so_that_another_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(settings: DeskSettings, stop: asyncio.Event) -> None:
        raise KeyError("what nobody thought of")

    monkeypatch.setattr(module, "watch", broken)
    with pytest.raises(KeyError):
        module.main(DeskSettings())


def test_a_disk_without_room_for_the_log_does_not_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def write(self, _: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(sys, "stderr", Full())
    module.log("anything")


def test_a_server_that_is_away_is_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def test() -> None:
        stop = asyncio.Event()
        watching = asyncio.create_task(watch(DeskSettings(root=str(tmp_path)), stop))
        await asyncio.sleep(0)
        while "does not answer" not in capsys.readouterr().err:
            assert not watching.done()
            await asyncio.sleep(0.05)
        stop.set()
        await watching

    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}):  # nobody listens on the discard port
        asyncio.run(asyncio.wait_for(test(), EVENT_SECONDS))
