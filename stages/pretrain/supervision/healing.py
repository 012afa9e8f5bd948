"""Replica groups under supervision: one that is lost is started again while the others go on.

| how a group ended                          | what follows                                                            |
|--------------------------------------------|-------------------------------------------------------------------------|
| 0, and it writes                           | the run is done; the others are not needed any more                     |
| 0                                          | the others go on                                                        |
| 2, 70, 71, 72, 75                          | the end of the attempt: it is the same for all                          |
| 76, or anything after all were asked to    | the end of the attempt, when the others have left too                   |
| leave                                      |                                                                         |
| anything else, while a member lives        | it is started again, to receive the state; unless groups have been lost |
|                                            | `max_relaunches` times since there was a new checkpoint                 |
| anything else                              | the end of the attempt: all are started again, from a checkpoint        |
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from data.errors import InputError
from stages.errors import OK
from stages.journal import Journal
from stages.pretrain.checkpoints import checkpoint
from stages.pretrain.job import Job
from stages.pretrain.parallel.redundant_groups import Place, group_processes, num_groups
from stages.pretrain.parallel.redundant_members import Roster
from stages.pretrain.supervision.account import Account
from stages.pretrain.supervision.attempt import End, meeting_place
from stages.pretrain.supervision.capacity import VISIBLE, gpus, visible
from stages.pretrain.supervision.groups import Group, GroupEnd
from stages.pretrain.supervision.supervise import LEFT, TELLING


class Next(Enum):
    """What follows on the end of a group."""

    HEAL = "heal"
    GO_ON = "go on without it"
    FINISHED = "finished"
    END = "the end of the attempt"


def after_group(
    code: int, *, is_writer: bool, members_left: int, may_start: bool, lost_in_vain: int, max_relaunches: int
) -> Next:
    """As the table says. members_left: groups that live and have the state; may_start: nobody has been asked to leave,
    and nothing has ended the attempt; lost_in_vain: groups lost before since there was a new checkpoint."""
    if code == OK:
        return Next.FINISHED if is_writer else Next.GO_ON
    if code in TELLING or code == LEFT or not may_start:
        return Next.END
    if members_left and lost_in_vain < max_relaunches:
        return Next.HEAL
    return Next.END


@dataclass
class Healing:
    """The grouping of a redundant run. reached: the last step that is known to be completed; clock: seconds,
    monotonic."""

    job: Job
    journal: Journal
    account: Account
    reached: Callable[[], int]
    clock: Callable[[], float] = time.monotonic
    is_done: bool = False
    _lost: dict[int, float] = field(default_factory=dict)
    _lost_in_vain: list[int] = field(default_factory=list)

    def groups(self) -> Sequence[Group]:
        """All of them; none is running."""
        config = self.job.config
        self._roster = Roster(
            self.job.run.redundancy,
            num_groups=num_groups(config),
            group_processes=group_processes(config),
            clock=self.clock,
        )
        return [self._group(number, joins=False) for number in range(num_groups(config))]

    def ended(self, end: GroupEnd, why: End, *, may_start: bool) -> Group | End | None:
        """A group has ended: the one to start in its place, the end of the attempt, or None if nothing follows."""
        number = end.group.number
        if self.is_done:
            return None
        is_writer, is_member = self._roster.members.groups[:1] == (number,), number in self._roster.members.groups
        newest = max(checkpoint.scan(self.job.run.checkpoints).complete, default=0)
        self._lost_in_vain = [step for step in self._lost_in_vain if step == newest]
        self._roster.lost(number)
        found = after_group(
            why.code,
            is_writer=is_writer,
            members_left=len(self._roster.members.groups),
            may_start=may_start,
            lost_in_vain=len(self._lost_in_vain),
            max_relaunches=self.job.config.max_relaunches,
        )
        self.is_done = found is Next.FINISHED
        if found is Next.HEAL:
            return self._healed(end.group, why, newest)
        if not may_start and not is_member:
            return None  # it had no state to leave with
        return why if found is not Next.GO_ON else None

    def poll(self) -> None:
        """Take in groups that are ready to join."""
        for number in self._roster.poll():
            seconds = self.clock() - self._lost.pop(number, self.clock())
            epoch, groups = self._roster.members.epoch, list(self._roster.members.groups)
            self.account.group_joined(number)
            self.journal.event("group.joined", group=number, epoch=epoch, groups=groups, seconds=round(seconds, 3))

    def _healed(self, lost: Group, why: End, newest: int) -> Group:
        self._lost_in_vain.append(newest)
        self._lost[lost.number] = self.clock()
        for slot in lost.slots:  # what it has put down explains its own end only
            (self.job.run.failures / f"rank-{slot:05d}.json").unlink(missing_ok=True)
        epoch, groups = self._roster.members.epoch, list(self._roster.members.groups)
        self.account.group_lost(lost.number, cause=why.cause, step=self.reached())
        self.journal.event(
            "group.lost", group=lost.number, exit_code=why.code, cause=why.cause, epoch=epoch, groups=groups
        )
        self._roster.joins(lost.number)
        return self._group(lost.number, joins=True)

    def _group(self, number: int, *, joins: bool) -> Group:
        run, size = self.job.run, group_processes(self.job.config)
        return Group(
            number=number,
            job=run.job,
            log=run.log,
            rendezvous=meeting_place(run),
            size=size,
            first_slot=number * size,
            variables={**Place(number, joins).variables(), **self._device(number, size)},
        )

    def _device(self, number: int, size: int) -> Mapping[str, str]:
        """The GPU of a group of one process, which has no rank among others that would say so. Raises InputError if
        there are too few, of which a group by itself would see nothing."""
        config = self.job.config
        found = gpus(config)
        if found and config.num_processes > found:
            raise InputError(
                f"pretrain.num_processes = {config.num_processes} is more than the {found} GPUs here: each process "
                "needs one of its own"
            )
        if size > 1 or not found:
            return {}
        return {VISIBLE: (visible() or [str(slot) for slot in range(found)])[number]}
