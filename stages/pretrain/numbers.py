"""Numbers on their way from the device to the host.

A step makes them; nobody waits for them there. On a GPU they are copied into pinned memory while the next step is
launched; on a CPU they are there at once.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


class Numbers:
    """Scalars of one step, by name, in float64."""

    def __init__(self, values: "Mapping[str, torch.Tensor]") -> None:
        """values: scalars on one device; their copy begins now."""
        import torch

        self._names = list(values)
        together = torch.stack([value.detach().to(torch.float64) for value in values.values()])
        if together.device.type != "cuda":
            self._host, self._arrived = together, None
            return
        self._host = torch.empty(together.shape, dtype=together.dtype, pin_memory=True)
        self._host.copy_(together, non_blocking=True)
        self._arrived = torch.cuda.Event()
        self._arrived.record()

    def read(self) -> dict[str, float]:
        """All of them; waits until they have arrived."""
        if self._arrived is not None:
            self._arrived.synchronize()
        return dict(zip(self._names, self._host.tolist(), strict=True))
