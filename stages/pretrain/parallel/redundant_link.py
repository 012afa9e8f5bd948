"""What passes between replica groups in one epoch: sums and tensors, among the ranks that hold the same shards.

Over gloo, which knows of a lost peer as soon as its connection is closed; from GPUs by way of the host. The process
groups here are objects of their own that torch's registry knows nothing of, so that one can be let go of while an
operation hangs in it.
"""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from stages.pretrain.parallel.redundant_members import Members, Membership

if TYPE_CHECKING:
    import torch

SLICE_SECONDS = 0.2  # between two looks at members.json while an operation is under way
POLL_SECONDS = 0.005
BUCKET_BYTES = 25 << 20
UNDER_WAY = 2  # buckets at a time, which bounds the memory of their copies
PIECE_BYTES = 64 << 20


class PeerLost(RuntimeError):
    """A rank of another group does not answer any more, or the epoch has been ended."""


class Link:
    """The connection of one rank to those of the other groups that hold the same shards."""

    def __init__(self, membership: Membership, members: Members, *, seconds: float, bucket_bytes: int) -> None:
        """Waits until the ranks of all members are here. seconds: how long an operation may take; bucket_bytes:
        summed in one message. Raises PeerLost if there is a newer epoch before that, or if one of them is lost."""
        self._membership = membership
        self._members = members
        self._seconds = seconds
        self._bucket_bytes = bucket_bytes
        if membership.group not in members.groups:
            raise PeerLost("this rank has seen a newer epoch already")
        self._rank = members.groups.index(membership.group)
        self._size = len(members.groups)
        self._group: Any = self._connected() if self._size > 1 else None

    def _connected(self) -> Any:
        from torch.distributed import FileStore

        # The ranks are counted first, so that connecting is a matter of milliseconds: nothing ends that early.
        store = FileStore(str(self._membership.rendezvous(self._members)), -1)
        store.set(f"here/{self._rank}", "")
        while not store.check([f"here/{rank}" for rank in range(self._size)]):
            if self._membership.newest().epoch > self._members.epoch:
                raise PeerLost("the epoch was over before all had come")
            time.sleep(POLL_SECONDS)
        return self._unless_over(lambda: _gloo(store, self._rank, self._size, self._seconds))

    def _unless_over(self, connect: Callable[[], Any]) -> Any:
        """What `connect` returns, which may hang as long as nobody needs it."""
        found: list[Any] = []

        def run() -> None:
            try:
                found.append(connect())
            except RuntimeError as error:
                found.append(PeerLost(str(error)))

        thread = threading.Thread(target=run, name="connecting replica groups", daemon=True)
        thread.start()
        while thread.is_alive():
            thread.join(SLICE_SECONDS)
            if thread.is_alive() and self._membership.is_over(self._members):
                raise PeerLost("the epoch was over while its members connected")
        if isinstance(found[0], PeerLost):
            raise found[0]
        return found[0]

    def sum(self, tensors: "Iterable[torch.Tensor]") -> None:
        """Sum each tensor over the groups in place, with the same bits in all of them. Raises PeerLost; then some of
        them may have been changed."""
        if self._size == 1:
            return
        waiting: list[tuple[list[torch.Tensor], torch.Tensor, Any]] = []
        for bucket in buckets(tensors, self._bucket_bytes):
            if len(waiting) == UNDER_WAY:
                self._finish(*waiting.pop(0))
            flat = _flat(bucket)
            waiting.append((bucket, flat, self._started(flat)))
        for entry in waiting:
            self._finish(*entry)

    def _started(self, flat: "torch.Tensor") -> Any:
        return self._guarded(lambda group: group.allreduce([flat]))

    def _finish(self, bucket: "list[torch.Tensor]", flat: "torch.Tensor", work: Any) -> None:
        import torch

        while not work.is_completed():
            try:
                work.wait(timedelta(seconds=SLICE_SECONDS))
            except RuntimeError as error:
                if work.is_completed():
                    raise PeerLost(str(error)) from error
            if self._membership.is_over(self._members):
                raise PeerLost("a group has ended")
        self._guarded(lambda _: work.wait())  # tells of an error
        with torch.no_grad():
            pieces = flat.split([tensor.numel() for tensor in bucket])
            for tensor, piece in zip(bucket, pieces, strict=True):
                tensor.copy_(piece.view_as(tensor))

    def gather(self, value: float) -> list[float]:
        """The value of each group, in the order of the members; float64. Raises PeerLost."""
        import torch

        values = torch.zeros(self._size, dtype=torch.float64)
        values[self._rank] = value
        self.sum([values])
        return values.tolist()

    def send(self, tensors: "Iterable[torch.Tensor]", group: int) -> None:
        """Send the bytes of tensors to the rank of `group`. Raises PeerLost."""
        other = self._members.groups.index(group)
        for piece in _pieces(tensors):
            self._guarded(_send, piece.cpu(), other)

    def receive(self, tensors: "Iterable[torch.Tensor]", group: int) -> None:
        """Fill tensors with what the rank of `group` sends of tensors of the same shapes and dtypes. Raises
        PeerLost."""
        other = self._members.groups.index(group)
        for piece in _pieces(tensors):
            host = piece if piece.device.type == "cpu" else piece.cpu()
            self._guarded(_receive, host, other)
            if host is not piece:
                piece.copy_(host)

    def _guarded(self, operation: Callable[..., Any], *arguments: Any) -> Any:
        """operation(process group, *arguments), whose error means that a peer is lost."""
        if self._group is None:
            raise PeerLost("closed")
        try:
            return operation(self._group, *arguments)
        except RuntimeError as error:
            raise PeerLost(str(error)) from error

    def close(self) -> None:
        """Close the connections, which tells the others; what still hangs in them is left to itself."""
        group, self._group = [self._group], None
        if group[0] is not None:
            group[0].abort()
        threading.Thread(target=group.clear, name="closing replica groups", daemon=True).start()


def _gloo(store: Any, rank: int, size: int, seconds: float) -> Any:
    from torch.distributed import ProcessGroupGloo

    return ProcessGroupGloo(store, rank, size, timedelta(seconds=seconds))


def _send(group: Any, piece: "torch.Tensor", other: int) -> None:
    group.send([piece], other, 0).wait()


def _receive(group: Any, piece: "torch.Tensor", other: int) -> None:
    group.recv([piece], other, 0).wait()


def buckets(tensors: "Iterable[torch.Tensor]", most_bytes: int) -> "Iterable[list[torch.Tensor]]":
    """Tensors that follow one another, together as far as they have one dtype and device and at most `most_bytes`, or
    are one."""
    bucket: list[torch.Tensor] = []
    size = 0
    for tensor in tensors:
        is_other = bool(bucket) and (bucket[0].dtype, bucket[0].device) != (tensor.dtype, tensor.device)
        if bucket and (is_other or size + tensor.nbytes > most_bytes):
            yield bucket
            bucket, size = [], 0
        bucket.append(tensor)
        size += tensor.nbytes
    if bucket:
        yield bucket


def _flat(bucket: "Sequence[torch.Tensor]") -> "torch.Tensor":
    """All of them in one tensor on the host, which is never one of theirs."""
    import torch

    return torch.cat([tensor.detach().reshape(-1) for tensor in bucket]).cpu()


def _pieces(tensors: "Iterable[torch.Tensor]") -> "Iterable[torch.Tensor]":
    """The memory of tensors as bytes, in pieces of at most PIECE_BYTES."""
    import torch

    for tensor in tensors:
        assert tensor.is_contiguous(), "a state that is not contiguous"
        if tensor.numel():
            yield from tensor.detach().view(-1).view(torch.uint8).split(PIECE_BYTES)
