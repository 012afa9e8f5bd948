"""Where the time of a run went: productive steps, and every other second by what took it.

A supervisor calls an `Account` as it goes; what it is told stands in attempts.jsonl of the run directory, so that the
next supervisor goes on counting where a killed one stopped:

    account = Account(run, journal)          # first of all: before anything is cut back
    account.resuming(step)                   # before `cut_back(run, step)`
    account.began(num_processes=2)           # the ranks are being started
    account.poll()                           # several times a second
    account.ended(Kind.KILL, cause="…", step=41, decision="relaunch", delay_seconds=1.0)
    account.closed()                         # the supervisor has nothing more to do

The arithmetic is in `stages.pretrain.supervision.spent`. Clocks are monotonic within one boot of a machine, and stand
still while it sleeps; only the time between two boots is that of the wall clock, and never less than nothing.
"""

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from stages.journal import Journal, torn
from stages.kernel import boot_id
from stages.pretrain.job import RunDirectory, read_lines
from stages.pretrain.supervision.moments import Kind, Stamp, Sums, sums
from stages.pretrain.supervision.spent import Spent, checkpoint_costs, spent

ATTEMPTS, ALIVE = "attempts.jsonl", "alive.json"
EVENT_SECONDS = 60.0
ALIVE_BYTES = 256


def stamp() -> Stamp:
    """Now, by this machine's clocks."""
    return Stamp(time=time.time(), clock=time.monotonic(), boot=boot_id())


class Account:
    """The account of one run, kept by the one supervisor that holds its lease. `now`: the present, for tests."""

    def __init__(self, run: RunDirectory, journal: Journal, *, now: Callable[[], Stamp] = stamp) -> None:
        """Closes what a killed supervisor left open: its last sign of life is the end of its attempt."""
        self._run, self._journal, self._now = run, journal, now
        self._path = run.path / ATTEMPTS
        self._alive = os.open(run.path / ALIVE, os.O_RDWR | os.O_CREAT, 0o644)
        self._events: list[dict[str, Any]] = read_lines(self._path)
        self._told_at = now().clock
        self._steps = Sums()
        self._offset = 0
        killed_after = self._close_what_was_killed()
        self._write("open")
        if killed_after is not None:
            down = Stamp.model_validate(self._events[-2]["at"]).until(Stamp.model_validate(self._events[-1]["at"]))
            journal.event(
                "note", text=f"the supervisor before this one was killed after step {killed_after:,}, {down:.0f} s ago"
            )

    def resuming(self, step: int) -> None:
        """The run goes on from the checkpoint of `step`; the lines of later steps are still in timing.jsonl."""
        last = self._last("back", "begin")
        # A kill between this and the cut left lines that have been counted as lost already.
        counted = last["step"] if last and last["event"] == "back" else None
        lost = [
            line
            for line in read_lines(self._run.timing)
            if line["step"] > step and (counted is None or line["step"] <= counted)
        ]
        self._write("back", step=step, lost=sums(lost).model_dump())

    def began(self, *, num_processes: int) -> None:
        """The ranks of an attempt are being started, behind the lines that are there."""
        self._steps = Sums()
        self._offset = self._run.timing.stat().st_size if self._run.timing.exists() else 0
        back = self._last("back")
        assert back is not None, "an attempt begins before it is said from where"
        self._write("begin", resume_step=back["step"], num_processes=num_processes)

    def poll(self) -> None:
        """Take in the lines of new steps; tell the journal now and then."""
        now = self._now()
        os.pwrite(self._alive, json.dumps(now.model_dump()).encode().ljust(ALIVE_BYTES), 0)
        new = self._new_lines()
        if new and not self._steps.steps:
            first = sums(new[:1])
            self._write("first", at=now, step=new[0]["step"], seconds=first.total)
        self._steps = self._steps.plus(sums(new))
        if now.clock - self._told_at >= EVENT_SECONDS:
            self.tell()

    def ended(
        self,
        kind: Kind,
        *,
        cause: str,
        step: int,
        decision: str,
        delay_seconds: float = 0.0,
        noticed_at: float | None = None,
        silent_seconds: float = 0.0,
    ) -> None:
        """The attempt is over. cause: for a person. step: the last completed one. delay_seconds: of the pause before
        the next attempt. noticed_at: by `time.monotonic`, when it was found out; None: now. silent_seconds: how long
        nothing had moved then."""
        self.poll()
        now = self._now()
        self._end(
            now,
            kind=kind.value,
            cause=cause,
            step=step,
            decision=decision,
            delay_seconds=delay_seconds,
            noticed_before_seconds=0.0 if noticed_at is None else max(0.0, now.clock - noticed_at),
            silent_seconds=silent_seconds,
        )
        self.tell()

    def group_lost(self, group: int, *, cause: str, step: int) -> None:
        """A replica group has been lost, and the others go on. step: the last completed one."""
        self._write("lost", group=group, cause=cause, step=step)

    def group_joined(self, group: int) -> None:
        """A replica group that was lost trains with the others again."""
        self._write("joined", group=group)

    def closed(self) -> None:
        """The supervisor has done what it had to, or gives up, which ends an attempt that still runs; may be said
        twice."""
        if self._is_running:
            self.poll()
            begin = self._last("begin")
            assert begin is not None
            step = begin["resume_step"] + self._steps.steps
            self._cut_off(self._now(), cause="the supervisor gave up", step=step)
        if self._events[-1]["event"] != "close":
            self._write("close")

    def spent(self) -> Spent:
        """The account up to now."""
        return spent(self._events, running=self._steps, now=self._now())

    def report(self) -> dict[str, Any]:
        """The account up to now for the manifest of the training: figures, ends of attempts and costs of
        checkpoints."""
        found = self.spent()
        saves = read_lines(self._run.saves)
        return {**found.figures(), "ends": found.ends, "checkpoints": checkpoint_costs(saves)}

    def tell(self) -> None:
        """One event of the journal with the account up to now."""
        self._told_at = self._now().clock
        self._journal.event("account", **self.spent().figures())

    def _close_what_was_killed(self) -> int | None:
        """The last step of an attempt that is cut off here, if there is one.

        The last sign of life is what the supervisor left a few times a second or, where that was lost with the machine,
        its last event or the last step that it knew of.
        """
        if not self._events or self._events[-1]["event"] == "close":
            return None
        step = None
        signs = [Stamp.model_validate(self._events[-1]["at"])]
        with suppress(ValueError):  # never written, or lost
            signs.append(Stamp.model_validate_json(os.pread(self._alive, ALIVE_BYTES, 0)))
        begin, first = self._last("begin"), self._last("begin", "first")
        if self._is_running:
            assert begin is not None and first is not None
            lines = [line for line in read_lines(self._run.timing) if line["step"] > begin["resume_step"]]
            self._steps = sums(lines)
            signs.append(Stamp.model_validate(first["at"]).after(self._steps.total - first.get("seconds", 0.0)))
            at = max(signs, key=signs[0].until)
            step = lines[-1]["step"] if lines else begin["resume_step"]
            self._cut_off(at, cause="the supervisor was killed", step=step)
        self._write("close", at=max(signs, key=signs[0].until))
        return step

    def _cut_off(self, at: Stamp, *, cause: str, step: int) -> None:
        """The end of an attempt with that of its supervisor."""
        self._end(
            at,
            kind=Kind.SUPERVISOR.value,
            cause=cause,
            step=step,
            decision="relaunch",
            delay_seconds=0.0,
            noticed_before_seconds=0.0,
            silent_seconds=0.0,
        )

    def _end(self, at: Stamp, **fields: Any) -> None:
        self._write("end", at=at, **fields, steps=self._steps.model_dump())
        self._steps = Sums()

    @property
    def _is_running(self) -> bool:
        last = self._last("open", "begin", "end", "close")
        return last is not None and last["event"] == "begin"

    def _last(self, *events: str) -> dict[str, Any] | None:
        return next((event for event in reversed(self._events) if event["event"] in events), None)

    def _new_lines(self) -> list[dict[str, Any]]:
        """The whole lines of timing.jsonl behind those that were taken in; none while no attempt runs."""
        if not self._is_running or not self._run.timing.exists():
            return []
        with open(self._run.timing, "rb") as file:
            file.seek(self._offset)
            whole, newline, _ = file.read().rpartition(b"\n")
        self._offset += len(whole) + len(newline)
        return [json.loads(line) for line in whole.splitlines()]

    def _write(self, event: str, *, at: Stamp | None = None, **fields: Any) -> None:
        line = {"event": event, "at": (at or self._now()).model_dump(), **fields}
        with open(self._path, "ab") as file:
            start = b"\n" if torn(self._path) else b""
            file.write(start + json.dumps(line, ensure_ascii=False).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self._events.append(line)
