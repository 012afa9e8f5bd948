"""What tensors hold, counted operation by operation."""

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Held(TorchDispatchMode):
    """Bytes of all tensors that operations make, as long as they live; views of what was there before are no such.
    peak_bytes: the most at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.num_bytes = self.peak_bytes = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, operation: Any, types: Any, arguments: Any = (), settings: Any = None) -> Any:
        for tensor in tree_leaves((arguments, settings)):
            if isinstance(tensor, torch.Tensor):
                self._see(tensor, counts=False)
        made = operation(*arguments, **(settings or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, torch.Tensor):
                self._see(tensor, counts=True)
        self.peak_bytes = max(self.peak_bytes, self.num_bytes)
        return made

    def _see(self, tensor: torch.Tensor, *, counts: bool) -> None:
        try:
            storage = tensor.untyped_storage()
        except NotImplementedError:  # a wrapper of other tensors
            return
        if storage._cdata not in self._known:
            num_bytes = storage.nbytes() if counts else 0
            self._known.add(storage._cdata)
            self.num_bytes += num_bytes
            weakref.finalize(storage, self._freed, storage._cdata, num_bytes)

    def _freed(self, storage: int, num_bytes: int) -> None:
        self._known.remove(storage)
        self.num_bytes -= num_bytes
