"""How collective operations and computing share the time of a step.

On GPUs FSDP2 and DDP overlap by streams of their own, and the classes `InTurn…` take that away. On a CPU there are no
streams: FSDP2 waits for each message, so that overlapping has to be brought: `AsyncReduceScatter` hands the messages to
gloo's threads, and `settle` waits for all of them before anything reads a gradient.
"""

from collections import deque
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp._fully_shard._fsdp_api import AllGather, ReduceScatter

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_UNDER_WAY = 2

# The names since torch 2.13, and before.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


class _Allocating:
    """Buffers from torch's allocator, as FSDP2 has them by default."""

    def allocate(
        self, size: "Sequence[int | torch.SymInt]", *, dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)


class AsyncReduceScatter(_Allocating, ReduceScatter):
    """For a CPU: begins a reduce-scatter and waits for an earlier one only, so that no more than MOST_UNDER_WAY whole
    gradients of a unit are held. The gradient shards that FSDP2 makes of the output are views of it, and nothing reads
    or changes them before `settle`: reductions are float32 as the weights are, and the backend divides."""

    def __init__(self) -> None:
        self._under_way: deque[tuple[Any, torch.Tensor, torch.Tensor]] = deque()

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> None:
        if len(self._under_way) == MOST_UNDER_WAY:
            self._under_way.popleft()[0].wait()
        work = _reduce_scatter(output_tensor, input_tensor, op=op, group=group, async_op=True)
        self._under_way.append((work, output_tensor, input_tensor))

    def settle(self) -> None:
        """Wait until every gradient shard is there."""
        while self._under_way:
            self._under_way.popleft()[0].wait()


class InTurnAllGather(_Allocating, AllGather):
    """For a GPU: begins when all that was launched before is done."""

    def __call__(
        self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: dist.ProcessGroup, async_op: bool = False
    ) -> dist.Work | None:
        torch.cuda.current_stream().wait_stream(torch.cuda.default_stream())
        return _all_gather(output_tensor, input_tensor, group=group, async_op=async_op)


class InTurnReduceScatter(_Allocating, ReduceScatter):
    """For a GPU: what is launched after it begins when it is done."""

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> dist.Work | None:
        work = _reduce_scatter(output_tensor, input_tensor, op=op, group=group, async_op=async_op)
        torch.cuda.default_stream().wait_stream(torch.cuda.current_stream())
        return work


def in_turn(group: dist.ProcessGroup, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """A hook for DDP, which reads its annotations: averages a bucket of gradients while nothing is computed."""
    work = dist.all_reduce(bucket.buffer().div_(group.size()), group=group, async_op=True)
    assert work is not None
    work.wait()
    return work.get_future().then(lambda done: done.value()[0])
