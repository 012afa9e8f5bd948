"""The ranks of one group under watch: what they say of themselves, and what is done when they say nothing new.

Time is the supervisor's own and monotonic, and a pause of the supervisor itself (a stopped process, a laptop that
slept) counts as no time: the ranks have paused with it, or have beaten in the meantime.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from stages.journal import Journal
from stages.kernel import state_of
from stages.pretrain.job import Job
from stages.pretrain.supervision.beats import Beat, Beats, Phase
from stages.pretrain.supervision.groups import Group, Launcher, Running
from stages.pretrain.supervision.hangs import ENDED, STOPPED, Hang, Sign, hung, last_collective, stalled
from stages.pretrain.supervision.launchers import Launchers

MOST_ELAPSED_SECONDS = 1.0
DUMP_SECONDS = 2.0


@dataclass
class _Seen:
    """Of one rank: its latest beat, and for how long it has been so."""

    beat: Beat | None = None
    unchanged_seconds: float = 0.0
    silent_seconds: float = 0.0


@dataclass
class Watch:
    """Over the groups of ranks of one job. clock: seconds, monotonic."""

    job: Job
    journal: Journal
    clock: Callable[[], float] = time.monotonic
    _seen: dict[int, _Seen] = field(default_factory=dict)
    _told: set[tuple[int, int]] = field(default_factory=set)
    _dumps: int = 0

    def __post_init__(self) -> None:
        self._beats = Beats(self.job.run.beats, self.job.config.num_processes)
        self._looked_at = self.clock()
        self._stopped_seconds: dict[int, float] = {}  # of launchers, by process id

    def begin(self, group: Group) -> None:
        """The ranks of a group are about to be started."""
        self._beats.clear(group.slots)
        for slot in group.slots:
            self._seen[slot] = _Seen()
            self._told = {told for told in self._told if told[0] != slot}

    def look(self, launcher: Launcher | Launchers) -> dict[int, Hang]:
        """The groups that hang, by number. Tells the journal of ranks that wait long for data. A launcher that is
        stopped for long, or while it would have to tell of the end of a rank, is ended, and its ranks with it."""
        now = self.clock()
        elapsed = min(now - self._looked_at, MOST_ELAPSED_SECONDS)
        self._looked_at = now
        stopped_seconds = self.job.config.collective_timeout_least_seconds
        found, has_ended = {}, set()
        for number, running in launcher.running.items():
            if running.killed_at is not None or running.failed_at is not None:
                continue
            signs = self._signs(running, elapsed)
            self._tell_stalls(running.group, signs)
            hang = hung(signs, stopped_seconds=stopped_seconds)
            if hang is not None:
                found[number] = hang
            if any(sign.state == ENDED for sign in signs):
                has_ended.add(number)
        for process in launcher.each():
            stopped = self._stopped_seconds.get(process.pid, 0.0) + elapsed
            self._stopped_seconds[process.pid] = stopped if state_of(process.pid) in STOPPED else 0.0
            is_needed = not has_ended.isdisjoint(process.running)
            if self._stopped_seconds[process.pid] > (MOST_ELAPSED_SECONDS if is_needed else stopped_seconds):
                process.lose()
        return found

    def has_begun(self, group: Group) -> bool:
        """Whether a rank of the group has got as far as to want its first batch."""
        return any(self._beats.read(slot).phase is not Phase.STARTING for slot in group.slots)

    def dump(self, launcher: Launcher | Launchers, number: int, hang: Hang) -> str:
        """Let the ranks of a group that hangs write down where they are. What is to be said of the hang."""
        running, stacks = launcher.running[number], self.job.run.stacks
        slots = [slot for rank, slot in enumerate(running.group.slots) if rank not in _ended(running)]
        stacks.mkdir(exist_ok=True)
        for slot in range(self.job.config.num_processes):
            (stacks / f"rank-{slot}.json").unlink(missing_ok=True)
            if (stacks / f"rank-{slot}.txt").exists():
                os.truncate(stacks / f"rank-{slot}.txt", 0)
        self._dumps += 1
        for slot in slots:
            self._beats.want_dump(slot, self._dumps)
        launcher.dump(number)
        until = time.monotonic() + DUMP_SECONDS
        # A process that is stopped can say nothing.
        able = [slot for slot in slots if state_of(self._beats.read(slot).pid) not in STOPPED]
        while time.monotonic() < until and any(self._beats.read(slot).dumped != self._dumps for slot in able):
            time.sleep(0.05)
        last = [(slot, last_collective(stacks, slot)) for slot in slots]
        told = "; ".join(f"rank {slot}: {what}" for slot, what in last if what)
        return f"{hang.why}. Last operations between ranks: {told}" if told else hang.why

    def close(self) -> None:
        self._beats.close()

    def _signs(self, running: Running, elapsed: float) -> list[Sign]:
        signs, ended = [], _ended(running)
        for rank, slot in enumerate(running.group.slots):
            if rank in ended:
                continue
            beat, seen = self._read(slot, running.pids.get(rank, 0)), self._seen[slot]
            is_new = seen.beat is None or (beat.pid, beat.changes) != (seen.beat.pid, seen.beat.changes)
            is_alive = seen.beat is None or beat.alive != seen.beat.alive
            seen.unchanged_seconds = 0.0 if is_new else seen.unchanged_seconds + elapsed
            seen.silent_seconds = 0.0 if is_new or is_alive else seen.silent_seconds + elapsed
            seen.beat = beat
            signs.append(
                Sign(
                    rank=slot,
                    beat=beat,
                    unchanged_seconds=seen.unchanged_seconds,
                    silent_seconds=seen.silent_seconds,
                    state=state_of(beat.pid) if seen.silent_seconds > 0 and beat.pid else "",
                )
            )
        return signs

    def _read(self, slot: int, pid: int) -> Beat:
        """A rank that has not come so far as to beat is starting, and behind all others."""
        beat = self._beats.read(slot)
        if beat.pid:
            return beat
        return replace(beat, pid=pid, seconds=self.job.config.collective_timeout_seconds, changes=-1)

    def _tell_stalls(self, group: Group, signs: list[Sign]) -> None:
        for sign in stalled(signs):
            if (sign.rank, sign.beat.step) not in self._told:
                self._told.add((sign.rank, sign.beat.step))
                waited: dict[str, Any] = {"seconds": round(sign.unchanged_seconds, 1)}
                self.journal.event("data.stalled", rank=sign.rank, step=sign.beat.step, **waited)


def _ended(running: Running) -> set[int]:
    return {end.rank for end in running.ended}
