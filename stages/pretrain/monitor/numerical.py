"""The numerical layer: norms by group of parameters, and the range of what each decoder layer gives."""

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from data.order.loader import IGNORE
from stages.pretrain.model.build import decoder_layers
from stages.pretrain.optimise.norms import squares_of

if TYPE_CHECKING:
    import torch
    from torch.utils.hooks import RemovableHandle

    from stages.pretrain.parallel.ranks import Ranks

LAYERED = ("activation_max", "activation_rms")


def parameter_norms(model: "torch.nn.Module") -> "dict[str, torch.Tensor]":
    """{"parameter/<group>": float64 scalar on the device}, over all ranks. Collective. model: with transformers'
    names."""
    squares = squares_of({name: parameter.detach() for name, parameter in model.named_parameters()})
    return {f"parameter/{group}": square.sqrt() for group, square in squares.items()}


class Activations:
    """Largest magnitude and root mean square of each decoder layer's output, over the rows of a global batch that hold
    a target.

    Hooks are there on sampled steps alone. They look at the forward pass of the whole model and so not at what is
    computed again in the backward pass.
    """

    def __init__(
        self, model: "torch.nn.Module", ranks: "Ranks", *, counted: Callable[[], AbstractContextManager[None]]
    ) -> None:
        """model: with transformers' names, whatever spreads it; counted: around what the hooks do."""
        self._counted = counted
        self._model = model
        self._layers = list(decoder_layers(model))
        self._ranks = ranks
        self._handles: list[RemovableHandle] = []
        self._rows: torch.Tensor | None = None
        self._found: list[list[torch.Tensor]] = []

    def watch(self) -> None:
        """Look at the forward passes from now on."""
        assert not self._handles
        self._found = [[] for _ in self._layers]
        self._handles = [
            self._model.register_forward_pre_hook(self._begin, with_kwargs=True),
            self._model.register_forward_hook(self._end, always_call=True),
            *(layer.register_forward_hook(self._look(place)) for place, layer in enumerate(self._layers)),
        ]

    def leave(self) -> None:
        """Look no longer."""
        for handle in self._handles:
            handle.remove()
        self._handles, self._found, self._rows = [], [], None

    def ranges(self) -> "dict[str, torch.Tensor]":
        """{"activation_max/<layer>", "activation_rms/<layer>": scalar on the device} of what has been looked at since
        `watch`; empty without it. Collective."""
        import torch

        if not self._found:
            return {}
        # Rows: layers; columns: largest magnitude, sum of squares, number of elements.
        here = torch.stack([torch.stack(found) for found in self._found])
        largest, sums = here[..., 0].amax(1), here[..., 1:].sum(1)
        # A sum with a place for each rank brings the greatest of them too.
        places = torch.zeros(self._ranks.size, len(largest), dtype=torch.float64, device=largest.device)
        places[self._ranks.rank] = largest
        summed = self._ranks.sum(torch.cat((places.flatten(), sums.flatten())))
        largest = summed[: places.numel()].view_as(places).amax(0)
        squares, counts = summed[places.numel() :].view_as(sums).unbind(1)
        rms = (squares / counts.clamp(min=1.0)).sqrt()
        return {
            f"{kind}/{layer}": value
            for kind, values in zip(LAYERED, (largest, rms), strict=True)
            for layer, value in enumerate(values)
        }

    def _begin(self, module: Any, arguments: Any, named: Mapping[str, Any]) -> None:
        self._rows = (named["targets"] != IGNORE).any(1)

    def _end(self, module: Any, arguments: Any, output: Any) -> None:
        self._rows = None

    def _look(self, place: int) -> Any:
        def look(module: Any, arguments: Any, output: Any) -> None:
            if (rows := self._rows) is None:
                return
            with self._counted():
                self._found[place].append(_range(output[0] if isinstance(output, tuple) else output, rows))

        return look


def _range(output: "torch.Tensor", rows: "torch.Tensor") -> "torch.Tensor":
    """float64[3]: largest magnitude, sum of squares and number of the elements of output [rows, tokens, width] in the
    rows that count: bool[rows]."""
    import torch

    values = output.detach().flatten(1)
    largest = torch.linalg.vector_norm(values, math.inf, dim=1, dtype=torch.float32)
    norms = torch.linalg.vector_norm(values, dim=1, dtype=torch.float32)
    # A row without targets may hold anything, and 0 times infinity is not 0.
    largest, norms = largest.where(rows, 0.0).double(), norms.where(rows, 0.0).double()
    return torch.stack((largest.amax(), norms.square().sum(), (rows.sum() * values.shape[1]).double()))


def by_kind(measured: Mapping[str, float]) -> dict[str, Any]:
    """{"<kind>/<part>": value} as {"<kind>_norms": {group: value}} and, of what is measured of each layer, as
    {"<kind>": [value of each layer]}. What is not finite, since fp16 could not hold the gradient, is None."""
    found: dict[str, dict[str, float | None]] = {}
    for name, value in measured.items():
        kind, _, part = name.partition("/")
        found.setdefault(kind, {})[part] = value if math.isfinite(value) else None
    return {
        kind if kind in LAYERED else f"{kind}_norms": list(values.values()) if kind in LAYERED else values
        for kind, values in found.items()
    }
