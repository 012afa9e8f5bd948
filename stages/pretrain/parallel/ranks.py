"""What one process knows of the others, and how they meet.

The launcher has put into the environment of each rank RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE, as torchrun
names them, and RENDEZVOUS. They meet by a file: no server, whose loss would end them.
"""

import os
import resource
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

RENDEZVOUS = "LONGHAUL_RENDEZVOUS"  # path of the file by which the ranks of a world meet
SLOT = "LONGHAUL_SLOT"  # place among all ranks of the run, of which a world may have a part only


def join(size: int, *, on_cpu: bool, timeout_seconds: float) -> None:
    """Join the other ranks of a world of `size`, as the environment says, unless this one has; all of them call it."""
    import torch.distributed as dist

    if dist.is_initialized():
        return
    world = int(os.environ.get("WORLD_SIZE", "1"))
    assert world == size, f"{size} processes were asked for, and {world} were started"
    dist.init_process_group(
        "gloo" if on_cpu else "cuda:nccl,cpu:gloo",
        store=dist.FileStore(os.environ[RENDEZVOUS], size),
        rank=int(os.environ["RANK"]),
        world_size=size,
        timeout=timedelta(seconds=timeout_seconds),
    )


def join_alone() -> None:
    """Be a world of one, for what is to be sharded all the same."""
    import torch.distributed as dist

    if not dist.is_initialized():
        dist.init_process_group("cuda:nccl,cpu:gloo", store=dist.HashStore(), rank=0, world_size=1)


@dataclass(frozen=True)
class Ranks:
    """This process among all: its `rank`, how many there are, and the device that it computes on."""

    rank: int
    size: int
    device: "torch.device"

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def barrier(self) -> None:
        """Wait for all ranks."""
        if self.size > 1:
            import torch.distributed as dist

            dist.barrier()

    def leave(self) -> None:
        """Part from the other ranks at the end."""
        import torch.distributed as dist

        if dist.is_initialized():
            dist.destroy_process_group()

    def tensor(self, values: Sequence[float]) -> "torch.Tensor":
        """float64[n] on the device; the host does not wait until it is there."""
        import torch

        host = torch.tensor(values, dtype=torch.float64)
        return host.pin_memory().to(self.device, non_blocking=True) if self.device.type == "cuda" else host

    def sum(self, values: "torch.Tensor") -> "torch.Tensor":
        """`values` (float64[n] on the device), summed over all ranks in place, with the same bits on each of them."""
        if self.size > 1:
            import torch.distributed as dist

            dist.all_reduce(values)
        return values

    def own_peak_memory_bytes(self) -> int:
        """Most memory that this process has held: of the GPU if it trains on one, else of the host."""
        if self.device.type == "cuda":
            import torch

            return torch.cuda.max_memory_allocated(self.device)
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)

    def peak_memory_bytes(self) -> int:
        """The same, summed over all ranks."""
        return int(self.sum(self.tensor([self.own_peak_memory_bytes()])).item())
