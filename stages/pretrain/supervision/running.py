"""One attempt under watch: its groups of ranks are started, watched, asked to leave, and brought down.

How ranks are grouped is a `Grouping`'s business. Without redundancy all ranks are one group, whose end is that of the
attempt; with it, a group may be started again while the others go on.
"""

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from stages import kernel
from stages.errors import OK
from stages.journal import Journal
from stages.pretrain.checkpoints import checkpoint
from stages.pretrain.job import Job
from stages.pretrain.supervision.attempt import POLL_SECONDS, End, clear, explain, for_want_of_memory, group_of
from stages.pretrain.supervision.capacity import Capacity
from stages.pretrain.supervision.groups import Group, GroupEnd, Launcher
from stages.pretrain.supervision.hangs import Hang
from stages.pretrain.supervision.launchers import Launchers
from stages.pretrain.supervision.notices import Notices, Requests
from stages.pretrain.supervision.supervise import HUNG, LEFT, Ending, Request
from stages.pretrain.supervision.watch import Watch

CAPACITY_SECONDS = 2.0


class Grouping(Protocol):
    """How the ranks of an attempt are grouped."""

    def groups(self) -> Sequence[Group]:
        """The groups to begin with."""

    @property
    def is_done(self) -> bool:
        """Whether groups that still run are not needed any more."""

    def ended(self, end: GroupEnd, why: End, *, may_start: bool) -> Group | End | None:
        """A group has ended: the one to start in its place while the others go on, if one may be started; the end of
        the attempt; or None where nothing follows."""

    def poll(self) -> None:
        """Called several times a second."""


@dataclass
class Together:
    """All ranks are one group. variables: what they find in their environment beyond what all ranks do."""

    job: Job
    variables: Mapping[str, str] = field(default_factory=dict)

    def groups(self) -> Sequence[Group]:
        return [group_of(self.job, self.variables)]

    @property
    def is_done(self) -> bool:
        return False

    def ended(self, end: GroupEnd, why: End, *, may_start: bool) -> Group | End | None:
        return why

    def poll(self) -> None:
        pass


@dataclass
class Attempt:
    """One attempt at `job`. clock: seconds, monotonic."""

    job: Job
    launcher: Launcher | Launchers
    journal: Journal
    notices: Notices
    capacity: Capacity
    grouping: Grouping | None = None
    clock: Callable[[], float] = time.monotonic
    _hangs: dict[int, tuple[Hang, str]] = field(default_factory=dict)
    _requested: Request = Request.NONE
    _requested_at: float = 0.0
    _noticed_at: float | None = None
    _asked_at: float = 0.0
    _is_short: bool = False
    _oom_kills: Mapping[str, int] = field(default_factory=kernel.oom_kills)

    def run(self, look: Callable[[], None], *, reached: Callable[[], int]) -> Ending:
        """From the start of the ranks to their end. look: called several times a second, and once when they have ended;
        reached: the last step that was completed, as far as `look` has seen."""
        run = self.job.run
        grouping = self.grouping or Together(self.job, self.capacity.variables())
        self.job.write()
        clear(run)
        self._requests = Requests(run.request)
        self._watch = Watch(self.job, self.journal, self.clock)
        try:
            for group in grouping.groups():
                self._start(group)
            end = self._watched(grouping, look)
        finally:
            self._watch.close()
        look()
        return Ending(
            exit_code=end.code,
            cause=end.cause,
            step=reached(),
            checkpoint_step=max(checkpoint.scan(run.checkpoints).complete, default=0),
            draw=end.draw,
            rank=end.rank,
            requested=self._requested,
            noticed_at=self._noticed_at,
            silent_seconds=max((hang.unchanged_seconds for hang, _ in self._hangs.values()), default=0.0),
        )

    def _start(self, group: Group) -> None:
        self._watch.begin(group)
        self.launcher.start(group)

    def _watched(self, grouping: Grouping, look: Callable[[], None]) -> End:
        """The end of the attempt, when no rank is left."""
        last: End | None = None
        while True:
            for end in self.launcher.poll():
                may_start = last is None and self._requested is Request.NONE
                follows = grouping.ended(end, self._why(end), may_start=may_start)
                if isinstance(follows, Group):
                    self._hangs.pop(follows.number, None)
                    self._noticed_at = None
                    self._start(follows)
                elif follows is not None and (last is None or last.code == OK):
                    last = follows
            if not self.launcher.running:
                assert last is not None, "no group was started"
                return last
            if grouping.is_done or (last is not None and last.code not in (OK, LEFT)):
                for number in self.launcher.running:
                    self.launcher.kill(number)
            self._notice()
            look()
            grouping.poll()
            self._end_what_hangs()
            self._ask_to_leave()
            self.launcher.wait(POLL_SECONDS)

    def _why(self, end: GroupEnd) -> End:
        self._noticed_at = self._noticed_at or self.clock()
        hang, what = self._hangs.get(end.group.number, (None, ""))
        if hang is not None:
            return End(HUNG, what, rank=hang.rank)
        why, before = explain(self.job.run, end), self._oom_kills
        self._oom_kills = kernel.oom_kills()
        return for_want_of_memory(why, before, self.job.config)

    def _notice(self) -> None:
        if self._noticed_at is None and any(r.failed_at is not None for r in self.launcher.running.values()):
            self._noticed_at = self.clock()

    def _end_what_hangs(self) -> None:
        for number, hang in self._watch.look(self.launcher).items():
            self._noticed_at = self.clock()
            self._hangs[number] = (hang, self._watch.dump(self.launcher, number, hang))
            self.launcher.kill(number)

    def _ask_to_leave(self) -> None:
        """If there is a notice, or capacity has changed; ranks that a notice does not make leave in time are ended."""
        now = self.clock()
        if self.notices.received is not None and self._requested is not Request.STOP:
            self._requested, self._requested_at = Request.STOP, now
            self._requests.ask_to_leave(self.notices.received.name)
            self.journal.event("note", text=self._stopping(self.notices.received))
        if self._requested is Request.NONE and now - self._asked_at > CAPACITY_SECONDS:
            self._asked_at = now
            possible = self.capacity.possible()
            if not possible and not self._is_short:
                self.journal.warning(f"{self.capacity.too_few()}: it goes on with what it has until it ends")
            self._is_short = not possible
            if possible not in (0, self.job.config.num_processes):
                self._requested, self._requested_at = Request.RESIZE, now
                self._requests.ask_to_leave("another number of processes can run")
        if self._requested is Request.STOP:
            is_late = now - self._requested_at > self.job.config.grace_seconds
            for number, running in self.launcher.running.items():
                # Ranks that have not begun to train have nothing to save.
                if is_late or not self._watch.has_begun(running.group):
                    self.launcher.kill(number)

    def _stopping(self, notice: signal.Signals) -> str:
        grace = f"stopping ({notice.name}): a last checkpoint, within {self.job.config.grace_seconds:.0f} s"
        if notice is not signal.SIGINT:
            return grace
        return f"{grace}; a second Ctrl-C stops at once and loses the steps since the newest checkpoint"
