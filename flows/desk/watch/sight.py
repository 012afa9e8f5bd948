"""What the watch asks of a Prefect server, and what it tells it: its runs, their signs of life, states and events."""

import platform
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterDeploymentId,
    FlowRunFilterEndTime,
    FlowRunFilterId,
    FlowRunFilterState,
    FlowRunFilterStateType,
    FlowRunFilterTags,
    LogFilter,
    LogFilterFlowRunId,
    TaskRunFilter,
    TaskRunFilterState,
    TaskRunFilterStateType,
)
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.client.schemas.responses import SetStateStatus
from prefect.client.schemas.sorting import FlowRunSort, LogSort
from prefect.events.filters import (
    EventAnyResourceFilter,
    EventFilter,
    EventNameFilter,
    EventOccurredFilter,
    EventResourceFilter,
)
from prefect.events.schemas.events import Event, RelatedResource, Resource
from prefect.states import AwaitingRetry, Crashed, State

from flows.desk.names import HEARTBEAT, TAG
from flows.desk.watch.resumes import Moment

MOST_RUNS = 200  # of a kind, in one look
CLOCKS_SECONDS = 3700.0  # a time zone more than an hour
UNFINISHED = [StateType.RUNNING, StateType.PENDING, StateType.SCHEDULED, StateType.CANCELLING]


@dataclass(frozen=True)
class Sight:
    """A server, for one look."""

    client: PrefectClient

    async def runs(
        self, *types: StateType, ended_after: float | None = None, only_deployed: bool = False
    ) -> list[FlowRun]:
        """Our flow runs in a state of these types; those that ended last first."""
        chosen = FlowRunFilter(
            tags=FlowRunFilterTags(all_=[TAG]),
            state=FlowRunFilterState(type=FlowRunFilterStateType(any_=list(types))),
            deployment_id=FlowRunFilterDeploymentId(is_null_=False) if only_deployed else None,
            end_time=None if ended_after is None else FlowRunFilterEndTime(after_=at(ended_after)),
        )
        sort = FlowRunSort.END_TIME_DESC
        return await self.client.read_flow_runs(flow_run_filter=chosen, sort=sort, limit=MOST_RUNS)

    async def runs_of(self, ids: Sequence[str]) -> list[FlowRun]:
        """The runs of these ids that the server knows; what is no id of a run is none of its."""
        known = []
        for each in ids:
            with suppress(ValueError):
                known.append(UUID(each))
        chosen = FlowRunFilter(id=FlowRunFilterId(any_=known))
        return await self.client.read_flow_runs(flow_run_filter=chosen, limit=MOST_RUNS)

    async def last_beat(self, run: FlowRun, now: float) -> str:
        """Id of the last heartbeat of a run; empty for none. The time of a heartbeat is that of the machine where the
        run is, whose clock may differ by an hour from ours."""
        found = await self._last_event(
            now - CLOCKS_SECONDS,
            EventNameFilter(name=[HEARTBEAT]),
            until=now + CLOCKS_SECONDS,
            resource=EventResourceFilter(id=[_resource(run.id)]),
        )
        return str(found.id) if found else ""

    async def last_activity(self, run: FlowRun, since: float) -> float:
        """When a run was last heard of, beside its heartbeats and what the watch says itself: Unix seconds."""
        last = _time(run)
        logs = LogFilter(flow_run_id=LogFilterFlowRunId(any_=[run.id]))
        for line in await self.client.read_logs(logs, limit=1, sort=LogSort.TIMESTAMP_DESC):
            last = max(last, line.timestamp.timestamp())
        if last < since:
            chosen = EventNameFilter(exclude_prefix=[HEARTBEAT, "run."])
            found = await self._last_event(since, chosen, any_resource=EventAnyResourceFilter(id=[_resource(run.id)]))
            last = max(last, found.occurred.timestamp()) if found else last
        return last

    async def last_told(self, names: Sequence[str], resource: str, since: float) -> str:
        """Name of the last event of these names about a resource; empty for none since then."""
        found = await self._last_event(
            since, EventNameFilter(name=list(names)), resource=EventResourceFilter(id=[resource])
        )
        return found.event if found else ""

    async def _last_event(
        self, since: float, event: EventNameFilter, until: float | None = None, **more: Any
    ) -> Event | None:
        times = {"since": at(since)} if until is None else {"since": at(since), "until": at(until)}
        chosen = EventFilter(occurred=EventOccurredFilter(**times), event=event, **more)
        return next(iter((await self.client.read_events(chosen, limit=1)).events), None)

    async def history(self, run: FlowRun) -> list[Moment]:
        """The states of a run, oldest first."""
        states = await self.client.read_flow_run_states(run.id)
        moments = [
            Moment(
                type=state.type.value,
                name=state.name or "",
                message=state.message or "",
                time=state.timestamp.timestamp(),
            )
            for state in states
        ]
        return sorted(moments, key=lambda moment: moment.time)

    async def end(self, run: FlowRun, state: StateType, message: str) -> bool:
        """Set the state of a run that is still in the one in which it was seen: it has neither ended otherwise nor been
        started again. Whether the server took it."""
        now = (await self.client.read_flow_run(run.id)).state
        if now is None or run.state is None or now.id != run.state.id:
            return False
        return await self._propose(run.id, State(type=state, message=message))

    async def schedule_again(self, run: FlowRun, time: float, message: str) -> bool:
        """Let a worker start a run of a deployment once more; whether the server took it."""
        return await self._propose(run.id, AwaitingRetry(scheduled_time=at(time), message=message))

    async def _propose(self, run: UUID, state: State) -> bool:
        return (await self.client.set_flow_run_state(run, state)).status is SetStateStatus.ACCEPT

    async def end_tasks(self, run: FlowRun) -> None:
        """Nobody works at the tasks of a run that crashed, whatever their last state says."""
        unfinished = TaskRunFilter(state=TaskRunFilterState(type=TaskRunFilterStateType(any_=UNFINISHED)))
        chosen = FlowRunFilter(id=FlowRunFilterId(any_=[run.id]))
        for task_run in await self.client.read_task_runs(flow_run_filter=chosen, task_run_filter=unfinished):
            crashed: State = Crashed(message="The flow run that it belongs to has crashed")
            await self.client.set_task_run_state(task_run.id, crashed, force=True)

    async def tell(self, event: Event) -> None:
        """The server has taken it when this returns."""
        await self.client.request("POST", "/events", json=[event.model_dump(mode="json")])


def at(time: float) -> datetime:
    return datetime.fromtimestamp(time, UTC)


def _time(run: FlowRun) -> float:
    assert run.state is not None
    return run.state.timestamp.timestamp()


def _resource(run: UUID) -> str:
    return f"prefect.flow-run.{run}"


def about_run(name: str, run: FlowRun, payload: dict[str, Any]) -> Event:
    """An event about a flow run, which shows on its page too."""
    resource = {"prefect.resource.id": f"longhaul.run.{run.id}", "prefect.resource.name": run.name}
    related = {"prefect.resource.id": _resource(run.id), "prefect.resource.role": "flow-run"}
    fields = {"run": str(run.id), "name": run.name, **payload}
    return Event(event=name, resource=Resource(resource), related=[RelatedResource(related)], payload=fields)


def about_disk(name: str, path: str, payload: dict[str, Any]) -> Event:
    """An event about a file system of this machine."""
    resource = {"prefect.resource.id": disk_resource(path), "prefect.resource.name": path}
    return Event(event=name, resource=Resource(resource), payload={"path": path, **payload})


def disk_resource(path: str) -> str:
    return f"longhaul.disk.{platform.node()}:{path}"
