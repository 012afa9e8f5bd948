"""Which replica groups train together: the supervisor says so in a file, and they follow it.

    redundancy/                     in the run directory; of one attempt
      members.json                  {epoch, groups, since}: who trains together from here on; replaced as a whole
      ready/group-<g>.rank-<r>      that rank of a group which is to join has been set up and waits
      broken/epoch-<e>.group-<g>.rank-<r>   that rank has lost another one in this epoch, and waits for the next
      epoch-<e>/shard-<i>           through which the ranks of an epoch find each other (a FileStore)

An epoch is a set of groups that talk to each other. It ends when a group is lost, when one joins, or when its members
have lost each other although all of them live. The first group of an epoch saves checkpoints and writes records; who
joins comes last. No server stands in between, only the run directory.

Imports no torch.
"""

import json
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from stages.files import write_json

RETRY_SECONDS = 2.0  # by when the supervisor has seen the end of whichever process broke the epoch
MEMBERS = "members.json"


@dataclass(frozen=True, kw_only=True)
class Members:
    """The groups of an epoch, in the order of their joining, and the epoch in which each joined. Epochs count from
    1."""

    epoch: int
    groups: tuple[int, ...]
    since: tuple[int, ...]

    @property
    def writer(self) -> int:
        """The group that saves checkpoints and writes records."""
        return self.groups[0]


class Places:
    """The places of what is above, in the folder `redundancy`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.members = folder / MEMBERS
        self.ready = folder / "ready"
        self.broken = folder / "broken"

    def ready_of(self, group: int, rank: int) -> Path:
        return self.ready / f"group-{group}.rank-{rank}"

    def broken_of(self, epoch: int, group: int, rank: int) -> Path:
        return self.broken / f"epoch-{epoch}.group-{group}.rank-{rank}"

    def epoch(self, epoch: int) -> Path:
        return self.folder / f"epoch-{epoch}"


class Roster:
    """The supervisor's side: the one who writes members.json. Groups are numbered from 0."""

    def __init__(
        self,
        folder: Path,
        *,
        num_groups: int,
        group_processes: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begins an attempt, in which all groups are members from the start; what an earlier one has left in `folder`
        is removed. No process of it may be left. clock: seconds."""
        shutil.rmtree(folder, ignore_errors=True)
        self._places = Places(folder)
        for path in (self._places.ready, self._places.broken):
            path.mkdir(parents=True)
        self._group_processes = group_processes
        self._clock = clock
        self._joining: set[int] = set()
        self._broken_since: float | None = None
        self.members = Members(epoch=0, groups=(), since=())
        self._begin(tuple(range(num_groups)))

    @property
    def joining(self) -> frozenset[int]:
        """Groups that have been started and are not members yet."""
        return frozenset(self._joining)

    def lost(self, group: int) -> None:
        """All processes of a group have ended. Without a member left, nothing is to be joined any more."""
        self._forget(group)
        if group in self.members.groups:
            left = tuple(member for member in self.members.groups if member != group)
            if left:
                self._begin(left)
            else:
                self.members = Members(epoch=self.members.epoch, groups=(), since=())

    def joins(self, group: int) -> None:
        """A lost group is about to be started again; it becomes a member when its ranks are ready."""
        assert group not in self.members.groups, f"group {group} is a member already"
        self._forget(group)
        self._joining.add(group)

    def poll(self) -> tuple[int, ...]:
        """Begin a new epoch where one is needed. Returns the groups that have just become members."""
        arrived = tuple(group for group in sorted(self._joining) if self._is_ready(group))
        if arrived and self.members.groups:
            self._joining.difference_update(arrived)
            self._begin((*self.members.groups, *arrived))
            return arrived
        if not any(self._places.broken.glob(f"epoch-{self.members.epoch}.*")):
            self._broken_since = None
        elif self._broken_since is None:
            self._broken_since = self._clock()
        elif self._clock() - self._broken_since >= RETRY_SECONDS:
            self._begin(self.members.groups)  # a link has failed, and no process
        return ()

    def _is_ready(self, group: int) -> bool:
        return all(self._places.ready_of(group, rank).exists() for rank in range(self._group_processes))

    def _forget(self, group: int) -> None:
        self._joining.discard(group)
        for rank in range(self._group_processes):
            self._places.ready_of(group, rank).unlink(missing_ok=True)

    def _begin(self, groups: tuple[int, ...]) -> None:
        epoch = self.members.epoch + 1
        joined = dict(zip(self.members.groups, self.members.since, strict=True))
        since = tuple(joined.get(group, epoch) for group in groups)
        self._places.epoch(epoch).mkdir()
        self.members = Members(epoch=epoch, groups=groups, since=since)
        self._broken_since = None
        write_json(self._places.members, {"epoch": epoch, "groups": groups, "since": since})


class Membership:
    """What one rank of a group sees of it."""

    def __init__(self, folder: Path, *, group: int, rank: int) -> None:
        """rank: within the group."""
        self._places = Places(folder)
        self.group = group
        self.rank = rank
        self._text = b""
        self._newest = Members(epoch=0, groups=(), since=())

    def newest(self) -> Members:
        """As members.json says now."""
        text = self._places.members.read_bytes()
        if text != self._text:
            found = json.loads(text)
            groups, since = tuple(found["groups"]), tuple(found["since"])
            self._text, self._newest = text, Members(epoch=found["epoch"], groups=groups, since=since)
        return self._newest

    def is_over(self, members: Members) -> bool:
        """Whether an epoch has lost one of its members, so that nothing in it can be waited for."""
        newest = self.newest()
        left = {group for group, since in zip(newest.groups, newest.since, strict=True) if since <= members.epoch}
        return not left >= set(members.groups)

    def announce(self) -> None:
        """Be ready to join."""
        self._places.ready_of(self.group, self.rank).touch()

    def report_broken(self, members: Members) -> None:
        """Say that this rank has lost another one, so that a new epoch is needed."""
        self._places.broken_of(members.epoch, self.group, self.rank).touch()

    def rendezvous(self, members: Members) -> Path:
        """The file through which this rank finds those of the other groups that hold the same shards."""
        return self._places.epoch(members.epoch) / f"shard-{self.rank}"


def dealt(members: Members, *, group: int, rank: int, group_processes: int) -> tuple[int, int]:
    """The place of a rank among all ranks that rows are dealt to, and how many these are."""
    return members.groups.index(group) * group_processes + rank, len(members.groups) * group_processes


def most_advanced(members: Members, steps: Sequence[int]) -> int | None:
    """Of an epoch, the group whose state the others take; None if none has any. steps: the last step that each group
    has completed, in the order of the members, -1 without a state."""
    most = max(steps)
    return None if most < 0 else members.groups[list(steps).index(most)]
