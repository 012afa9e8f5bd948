"""Copies of a training state in the memory of the host, made while the training goes on.

    staging.begin(tensors)     # on the training thread, which goes on to the next forward and backward pass
    copies = staging.copy()    # on another one
    staging.wait()             # on the training thread, before it changes a weight

What is copied is the state at `begin`: nothing but an optimizer's step changes it, and that waits. The memory is taken
once and used for each copy. On a GPU copies go to pinned memory on a stream of their own, and it is the device that
waits for them.
"""

import math
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch

ALIGNMENT = 64  # bytes, of each tensor in the memory that holds them all


class Staging:
    """The copies of one process. copies: false hands out the tensors themselves, for a training that waits."""

    def __init__(self, device: "torch.device", *, copies: bool) -> None:
        import torch

        self._device = device
        self._copies = copies
        self._buffers: dict[str, torch.Tensor] = {}
        self._sources: Mapping[str, torch.Tensor] = {}
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" and copies else None
        self._begun: torch.cuda.Event | None = None
        self._arrived: torch.cuda.Event | None = None
        self._is_copied = threading.Event()
        self._is_copied.set()

    def begin(self, sources: "Mapping[str, torch.Tensor]") -> None:
        """These are to be copied, as they are once all that has been launched so far is done."""
        import torch

        self._sources = sources
        if not self._copies:
            return
        self._is_copied.clear()
        if self._stream is not None:
            self._begun = torch.cuda.current_stream(self._device).record_event()

    def copy(self) -> "Mapping[str, torch.Tensor]":
        """Make the copies; they are there when it returns, and until the next `begin`."""
        sources, self._sources = self._sources, {}
        if not self._copies:
            return sources
        try:
            if not self._buffers:
                self._allocate(sources)
            self._fill(sources)
        finally:
            self._is_copied.set()  # a training that waited for copies that failed would never hear of it
        if self._arrived is not None:
            self._arrived.synchronize()
        return self._buffers

    def wait(self) -> float:
        """Return when weights may change; the seconds that this thread has waited for it."""
        import torch

        began = time.perf_counter()
        self._is_copied.wait()
        if self._arrived is not None:
            torch.cuda.current_stream(self._device).wait_event(self._arrived)
        return time.perf_counter() - began

    def _allocate(self, sources: "Mapping[str, torch.Tensor]") -> None:
        """One piece of memory, and in it a tensor for each source with a storage of its own, so that whoever writes one
        to a file writes no more than that."""
        import torch

        places, end = {}, 0
        for name, tensor in sources.items():
            places[name] = end
            end += -(-tensor.nbytes // ALIGNMENT) * ALIGNMENT
        memory = np.empty(end, np.uint8)  # which lives as long as the tensors in it
        if self._stream is not None and end:
            # Not torch's pinned memory, which is rounded up to a power of two.
            cudart: Any = torch.cuda.cudart()
            failed = int(cudart.cudaHostRegister(memory.ctypes.data, end, 0))
            assert not failed, f"{end} bytes cannot be pinned: CUDA error {failed}"
        for name, tensor in sources.items():
            flat = torch.frombuffer(memory, dtype=tensor.dtype, count=math.prod(tensor.shape), offset=places[name])
            self._buffers[name] = flat.view(tensor.shape)

    def _fill(self, sources: "Mapping[str, torch.Tensor]") -> None:
        import torch

        assert sources.keys() == self._buffers.keys(), "another state than the one before"
        with torch.no_grad():
            if self._stream is None:
                for name, tensor in sources.items():
                    self._buffers[name].copy_(tensor)
                return
            torch.cuda.set_device(self._device)
            assert self._begun is not None
            with torch.cuda.stream(self._stream):
                self._stream.wait_event(self._begun)
                for name, tensor in sources.items():
                    self._buffers[name].copy_(tensor, non_blocking=True)
                self._arrived = self._stream.record_event()
