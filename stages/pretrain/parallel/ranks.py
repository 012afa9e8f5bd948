"""What one process knows of the others."""

import resource
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


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

    def peak_memory_bytes(self) -> int:
        """Most memory that the processes have held, summed over all ranks: of the GPU if they train on one, else of
        the host."""
        if self.device.type == "cuda":
            import torch

            return int(self.sum(self.tensor([torch.cuda.max_memory_allocated()])).item())
        unit = 1 if sys.platform == "darwin" else 1024
        return int(self.sum(self.tensor([resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit])).item())
