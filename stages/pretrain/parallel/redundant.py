"""Replica groups that live on without each other and heal live.

Each group is a world of its own and holds the whole state; within a step the groups sum their gradients. Where one is
lost in the middle of a step, no rank leaves a collective of its group early: the loss is noted, the group agrees that
the step is given up, nothing has changed, and the groups that are left make the same step again with all rows dealt
anew. A group that comes back receives the state of the most advanced one, bitwise, at a step boundary. Global batch,
order and schedule are the same all the time.

    replicas = Replicas(Membership(folder, group=1, rank=0), ranks, has_state=True, seconds=600.0)
    step, text = replicas.join(step=step, text=text, tensors=tensors)    # until it succeeds
    sums = replicas.sum(gradients, sums)                                 # raises GivenUp on all ranks of a group
"""

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from stages.pretrain.faults import Hook, no_fault
from stages.pretrain.parallel.ranks import Ranks
from stages.pretrain.parallel.redundant_link import BUCKET_BYTES, Link, PeerLost
from stages.pretrain.parallel.redundant_members import Members, Membership, dealt, most_advanced

if TYPE_CHECKING:
    import torch

POLL_SECONDS = 0.01
MOST_GIVEN_UP = 10  # in a row: then it is not another group that is at fault


class GivenUp(RuntimeError):
    """The step cannot be completed, since a group has been lost. It has changed nothing, and all ranks of this group
    know."""


class NoState(RuntimeError):
    """All groups that had the state are lost."""


class Replicas:
    """This rank's view of the groups. rank, size: its place among all ranks that the rows of a batch are dealt to."""

    def __init__(
        self,
        membership: Membership,
        ranks: Ranks,
        *,
        has_state: bool,
        seconds: float,
        bucket_bytes: int = BUCKET_BYTES,
        hook: Hook = no_fault,
    ) -> None:
        """ranks: of this group. has_state: whether it has the state of the training, or has been started to receive it.
        seconds: how long an operation between groups may take, where nobody knows of a loss. bucket_bytes: of gradients
        in one message. hook: called at "joining" before groups connect, and at "sending" and "receiving" before each
        tensor that passes to one that is behind."""
        self._membership = membership
        self._ranks = ranks
        self.has_state = has_state
        self._seconds = seconds
        self._bucket_bytes = bucket_bytes
        self._hook = hook
        self._members = Members(epoch=0, groups=(), since=())
        self._link: Link | None = None
        self._given_up = 0
        self.moves = False
        self.rank, self.size = ranks.rank, ranks.size

    @property
    def writes(self) -> bool:
        """Whether this group saves checkpoints and writes records."""
        return self._members.writer == self._membership.group

    @property
    def members(self) -> Members:
        """Of the epoch that this rank is in."""
        return self._members

    def join(self, *, step: int, text: str, tensors: "Sequence[torch.Tensor]") -> tuple[int, str]:
        """Enter the next epoch, and be brought to the most advanced state in it. All ranks of the group call it.

        step: the last that is completed here; text: what the state is besides `tensors`, which are what this rank holds
        of it, contiguous, and are filled in place where the group is behind. Returns step and text of the state that
        they hold now. Raises NoState.
        """
        if not self.has_state:
            self._membership.announce()
        while True:
            self._leave()
            self._enter(self._next_epoch())
            self._hook("joining", step, self._ranks.rank, None)
            steps = self._connect(step if self.has_state else -1)
            if not self._all(bool(steps)):
                continue
            source = most_advanced(self._members, steps)
            if source is None:
                raise NoState("every group that had the state of the training is lost")
            behind = [group for group, at in zip(self._members.groups, steps, strict=True) if at < max(steps)]
            if self._membership.group in behind:
                self.has_state = False  # until all of it has arrived
            passed = self._pass_on(source, behind, text, tensors)
            if self._all(passed is not None):
                assert passed is not None
                self.has_state = True
                return max(steps), passed

    def sum(self, gradients: "Iterable[torch.Tensor]", numbers: "torch.Tensor") -> "torch.Tensor":
        """Sum gradients (what this rank holds of them, complete within the group) in place and `numbers` (float64[n],
        the same on all ranks of the group) over all groups; the same bits on every rank. Raises GivenUp on all ranks of
        the group if a group is lost. `moves` says afterwards whether the groups are to `join` anew behind this step.
        """
        import torch

        assert self._link is not None
        newer = float(self._membership.newest().epoch > self._members.epoch)
        host = torch.cat((numbers.cpu(), torch.tensor([newer], dtype=torch.float64)))
        lost = 0.0
        try:
            self._link.sum(gradients)
            self._link.sum([host])
        except PeerLost:
            lost = 1.0
        failed, moves = self._ranks.sum(self._ranks.tensor([lost, float(host[-1] > 0)])).tolist()
        if failed:
            self._give_up()
        self._given_up = 0
        self.moves = moves > 0
        return host[:-1].to(numbers.device)

    def barrier(self) -> None:
        """Wait for all groups. Raises GivenUp as `sum` does."""
        import torch

        self.sum((), torch.zeros(0, dtype=torch.float64))

    def _give_up(self) -> None:
        self._leave()
        self._given_up += 1
        if self._given_up > MOST_GIVEN_UP:
            raise RuntimeError(f"{self._given_up} steps in a row were given up, since other groups did not answer")
        raise GivenUp("a replica group was lost within the step")

    def _leave(self) -> None:
        """Tell the groups of this epoch that this one is not in it any more, by closing the connections."""
        self.moves = False
        if self._link is not None:
            self._link.close()
            self._link = None
        if self._members.epoch and self._membership.newest().epoch <= self._members.epoch:
            self._membership.report_broken(self._members)

    def _connect(self, step: int) -> list[int]:
        """Connect with the other groups of the epoch. Returns the steps that all of them have completed, in the order
        of the members; empty if that has failed."""
        try:
            self._link = Link(self._membership, self._members, seconds=self._seconds, bucket_bytes=self._bucket_bytes)
            return [int(value) for value in self._link.gather(step)]
        except PeerLost:
            return []

    def _pass_on(self, source: int, behind: Sequence[int], text: str, tensors: "Sequence[torch.Tensor]") -> str | None:
        """Bring the state of group `source` to those that are behind; the others wait for them. Returns the text of the
        state, None if that has failed."""
        assert self._link is not None
        group = self._membership.group
        try:
            if group == source:
                for other in behind:
                    self._send(self._link, other, text, tensors)
            elif group in behind:
                text = self._receive(self._link, source, tensors)
            if behind:
                self._link.gather(0.0)
        except PeerLost:
            return None
        return text

    def _send(self, link: Link, group: int, text: str, tensors: "Sequence[torch.Tensor]") -> None:
        import torch

        content = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)
        for tensor in (torch.tensor([len(content)]), content, *tensors):
            self._hook("sending", 0, self._ranks.rank, None)
            link.send([tensor], group)

    def _receive(self, link: Link, group: int, tensors: "Sequence[torch.Tensor]") -> str:
        import torch

        size = torch.zeros(1, dtype=torch.int64)
        link.receive([size], group)
        content = torch.zeros(int(size), dtype=torch.uint8)
        for tensor in (content, *tensors):
            self._hook("receiving", 0, self._ranks.rank, None)
            link.receive([tensor], group)
        return content.numpy().tobytes().decode()

    def _all(self, good: bool) -> bool:
        """Whether that holds on all ranks of the group."""
        return self._ranks.sum(self._ranks.tensor([float(not good)])).item() == 0

    def _next_epoch(self) -> Members:
        """The first one that is newer and that this group belongs to, as its first rank sees it."""
        found = self._membership.newest()
        while self._ranks.is_main and not (
            found.epoch > self._members.epoch and self._membership.group in found.groups
        ):
            time.sleep(POLL_SECONDS)
            found = self._membership.newest()
        wanted = self._ranks.sum(self._ranks.tensor([float(found.epoch) if self._ranks.is_main else 0.0])).item()
        # Another rank may see a newer one already. Then nobody waits for it in this one, and it does not wait either.
        return found if self._ranks.is_main else self._seen(int(wanted))

    def _seen(self, epoch: int) -> Members:
        while (found := self._membership.newest()).epoch < epoch:
            time.sleep(POLL_SECONDS)
        return found if found.epoch == epoch else Members(epoch=epoch, groups=(), since=())

    def _enter(self, members: Members) -> None:
        self._members = members
        if members.groups:
            self.rank, self.size = dealt(
                members, group=self._membership.group, rank=self._ranks.rank, group_processes=self._ranks.size
            )
