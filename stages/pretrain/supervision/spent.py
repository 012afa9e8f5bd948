"""Where the time of a run went, as a pure function of the events that its supervisors put down.

The time from the first event to now is cut into pieces without a gap, and each piece has one cause, so the causes add
up to it:

| cause           | what                                                                                        |
|-----------------|---------------------------------------------------------------------------------------------|
| productive      | steps that were kept, without the time in which they waited for data                        |
| starting        | choosing and verifying a checkpoint, launching, loading, up to the first step of an attempt |
| replayed: KIND  | steps that had to be made again because of an end of this kind, and the step it cut off     |
| hang            | from the last step to the moment at which a hang was noticed and everything was ended       |
| checkpoints     | training that stood still for them                                                          |
| heldout         | held-out losses                                                                             |
| data            | steps that waited for data                                                                  |
| back-off        | pauses before a relaunch                                                                    |
| finishing       | from the last step of an attempt that ended in order to its end, and to the supervisor's    |
| down            | no supervisor was there                                                                     |
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stages.pretrain.supervision.moments import IN_ORDER, Kind, Stamp, Sums


@dataclass(kw_only=True)
class Spent:
    """seconds: by cause, as in the table above. ends: of attempts after which the training was not done; attempt counts
    from 1, noticed_seconds: how long nothing had moved, recovered_seconds: from then to the first step after it,
    replayed_seconds: with those of the step that was cut off. What has not happened yet is absent."""

    wall_seconds: float = 0.0
    seconds: dict[str, float] = field(default_factory=dict)
    attempts: int = 0
    ends: list[dict[str, Any]] = field(default_factory=list)

    def figures(self) -> dict[str, Any]:
        """For the journal and the manifest. effective_training_time: share of the wall time that was productive."""
        productive = self.seconds.get("productive", 0.0)
        lost = {cause: round(seconds, 3) for cause, seconds in self.seconds.items() if cause != "productive"}
        return {
            "wall_seconds": round(self.wall_seconds, 3),
            "productive_seconds": round(productive, 3),
            "effective_training_time": round(productive / self.wall_seconds, 4) if self.wall_seconds else None,
            "lost_seconds": {cause: seconds for cause, seconds in sorted(lost.items(), key=lambda e: -e[1]) if seconds},
            "attempts": self.attempts,
            "incidents": sum(end["kind"] not in IN_ORDER for end in self.ends),
        }

    def add(self, cause: str, seconds: float) -> None:
        self.seconds[cause] = self.seconds.get(cause, 0.0) + seconds


def checkpoint_costs(saves: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Of the lines of saves.jsonl, for "local" and "durable" checkpoints: how many; medians of their bytes, of the
    seconds in which the training stood still for one, in which it waited for the one before, and until one was
    complete; and of all of them the seconds of held-out losses. Of kinds that there were."""
    found: dict[str, dict[str, float]] = {}
    for kind, durable in (("local", False), ("durable", True)):
        lines = [line for line in saves if line["durable"] is durable]
        if lines:
            middle = {
                name: statistics.median(line[name] for line in lines)
                for name in ("bytes", "blocked_seconds", "waited_seconds", "seconds")
            }
            heldout = sum(line["heldout_seconds"] for line in lines)
            found[kind] = {"count": len(lines), **middle, "heldout_seconds": heldout}
    return found


def spent(events: Sequence[Mapping[str, Any]], *, running: Sums, now: Stamp) -> Spent:
    """The account of `events`, as an `Account` writes them. running: the steps so far of an attempt that has not ended,
    whose time since the last of them is "under way"."""
    reader = _Reader()
    for event in events:
        reader.take(event)
    return reader.until(now, running)


class _Reader:
    """Goes through the events once."""

    def __init__(self) -> None:
        self.found = Spent()
        self._at: Stamp | None = None
        self._closed = True
        self._pause = 0.0  # since the supervisor was there, or the attempt before ended
        self._begun: Stamp | None = None  # while an attempt runs
        self._first: tuple[Stamp, float] | None = None
        self._end: Mapping[str, Any] | None = None
        self._in_session: Mapping[str, Any] | None = None  # the last end, if this supervisor saw it
        self._groups: dict[int, tuple[dict[str, Any], Stamp]] = {}
        self._not_recovered: list[tuple[dict[str, Any], Stamp]] = []

    def take(self, event: Mapping[str, Any]) -> None:
        here = Stamp.model_validate(event["at"])
        since = self._at.until(here) if self._at else 0.0
        self._at = here
        self._closed = event["event"] == "close"
        self.found.wall_seconds += since
        if event["event"] == "open":
            self.found.add("down", since)
            self._pause, self._in_session = 0.0, None
        elif event["event"] == "back":
            self._pause += since
            self._lose(Sums.model_validate(event["lost"]), event["step"])
        elif event["event"] == "begin":
            self._end_pause(self._pause + since, goes_on=True)
            self._begun, self._first = here, None
            self._groups.clear()
            self.found.attempts += 1
        elif event["event"] == "first":
            self._first = here, event["seconds"]
            self._recover(here)
        elif event["event"] == "end":
            tail = self._attempt(here, Sums.model_validate(event["steps"]), event)
            self._begun, self._end, self._in_session = None, event, event
            self._note(event, here, tail)
        elif event["event"] == "close":
            self._end_pause(self._pause + since, goes_on=False)
        elif event["event"] == "lost":
            self._lose_group(event, here)
        else:
            assert event["event"] == "joined", event
            if event["group"] in self._groups:
                line, lost_at = self._groups.pop(event["group"])
                line["recovered_seconds"] = lost_at.until(here)

    def until(self, now: Stamp, running: Sums) -> Spent:
        """The account, with what has been going on since the last event."""
        if self._at is None or self._closed:
            return self.found
        since = self._at.until(now)
        self.found.wall_seconds += since
        if self._begun is not None:
            self._attempt(now, running, None)
        else:
            self._end_pause(self._pause + since, goes_on=True)
        return self.found

    def _end_pause(self, seconds: float, *, goes_on: bool) -> None:
        """The time between attempts, or around the first and the last of a supervisor."""
        end = self._in_session
        delay = min(seconds, end["delay_seconds"]) if end else 0.0
        wanted_more = goes_on or (end is not None and end["kind"] not in IN_ORDER)
        self.found.add("back-off", delay)
        self.found.add("starting" if wanted_more else "finishing", seconds - delay)
        self._pause = 0.0

    def _attempt(self, here: Stamp, steps: Sums, end: Mapping[str, Any] | None) -> float:
        """Divide an attempt that lasts until `here`. Returns the seconds since its last step."""
        assert self._begun is not None, "an end without a beginning"
        whole = self._begun.until(here)
        starting = whole - steps.total
        if self._first:
            first, seconds = self._first
            # The line of the first step is seen a moment late, so what comes after it may seem longer than it was.
            starting = min(starting, self._begun.until(first) - seconds)
        if starting < 0:
            starting, steps = 0.0, steps.times(whole / steps.total)
        tail = whole - starting - steps.total
        kind = Kind(end["kind"]) if end else None
        if end and not steps.steps and kind is Kind.HANG:
            tail = min(starting, end["silent_seconds"] + end["noticed_before_seconds"])
            starting -= tail
        for cause, seconds in (
            ("starting", starting),
            ("productive", steps.computing),
            ("data", steps.waiting),
            ("checkpoints", steps.checkpoints),
            ("heldout", steps.heldout),
            (_cause_of_tail(kind), tail),
        ):
            self.found.add(cause, seconds)
        return tail

    def _lose(self, lost: Sums, step: int) -> None:
        """Steps that are given up, because of the end before, to go on from `step`."""
        if self._end is None:
            return
        seconds = min(lost.computing, self.found.seconds.get("productive", 0.0))
        self.found.add("productive", -seconds)
        self.found.add(f"replayed: {self._end['kind']}", seconds)
        line = self.found.ends[-1] if self.found.ends else None
        if line is not None and "resumed_step" not in line:
            line |= {"resumed_step": step, "replayed_steps": lost.steps}
            line["replayed_seconds"] += seconds

    def _note(self, end: Mapping[str, Any], here: Stamp, tail: float) -> None:
        """One line for an attempt that has ended before the training was done."""
        kind = Kind(end["kind"])
        if kind is Kind.DONE:
            return
        line = {
            "attempt": self.found.attempts,
            "kind": kind.value,
            "cause": end["cause"],
            "decision": end["decision"],
            "step": end["step"],
            "time": end["at"]["time"],
            "noticed_seconds": end["silent_seconds"] or None,
            "replayed_seconds": 0.0 if kind in (*IN_ORDER, Kind.HANG) else tail,
        }
        self.found.ends.append(line)
        self._not_recovered.append((line, here.after(-end["noticed_before_seconds"])))

    def _lose_group(self, event: Mapping[str, Any], here: Stamp) -> None:
        """One line for a replica group that the others go on without; its end takes no time from them that could be
        told from that of their steps."""
        line = {
            "attempt": self.found.attempts,
            "kind": Kind.GROUP.value,
            "cause": event["cause"],
            "decision": "heal",
            "step": event["step"],
            "time": event["at"]["time"],
            "noticed_seconds": None,
            "replayed_seconds": 0.0,
            "resumed_step": event["step"],
            "replayed_steps": 0,
        }
        self.found.ends.append(line)
        self._groups[event["group"]] = line, here

    def _recover(self, here: Stamp) -> None:
        """The first step after an end, or after several of which the later ones came before any step."""
        for line, noticed in self._not_recovered:
            line["recovered_seconds"] = noticed.until(here)
        self._not_recovered.clear()


def _cause_of_tail(kind: Kind | None) -> str:
    """What took the time from the last step of an attempt to its end."""
    if kind is None:
        return "under way"
    if kind in IN_ORDER:
        return "finishing"
    return "hang" if kind is Kind.HANG else f"replayed: {kind.value}"
