"""A Transformers causal model behind the scorer's protocol."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

TREE = ([2, 3, 5, 4, 6], [0, 1, 2, 2, 3], [5, 5, 3, 5, 5])  # two paths: 2 3 5 and 2 3 4 6
PATHS = ([0, 1, 2], [0, 1, 3, 4])
TOLERANCE = 1e-3  # of the largest logit; a place that saw what it must not is off by far more


class TransformersModel:
    """`model`: any Transformers causal language model in eval mode whose forward takes `logits_to_keep`. No padding
    mask is needed: padding stands on the right.
    """

    def __init__(self, model: Any) -> None:
        assert not model.training
        self.model = model

    @property
    def max_length(self) -> int:
        return int(self.model.config.max_position_embeddings)

    @property
    def vocabulary_size(self) -> int:
        return int(self.model.config.vocab_size)

    @torch.inference_mode()
    def logits(self, tokens: Tensor, keep: int) -> Tensor:
        return _wide(self.model(input_ids=tokens.to(self.model.device), logits_to_keep=keep, use_cache=False).logits)

    @cached_property
    def takes_trees(self) -> bool:
        """Attention to all that came before, by a mask and positions that are given, and logits that are the output
        projection of the last states: found by asking the model for two short texts, apart and as a tree.
        """
        config = self.model.config
        kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
        if kinds != {"full_attention"} or config._attn_implementation not in ("sdpa", "eager"):
            return False
        if getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True):
            return False
        return self.vocabulary_size > max(TREE[0]) and self.max_length >= len(TREE[0]) and self._answers_alike()

    @torch.inference_mode()
    def _answers_alike(self) -> bool:
        tokens, depths, ends = (torch.tensor(values) for values in TREE)
        places = torch.arange(len(tokens))
        visible = (places[None, :] <= places[:, None]) & (places[:, None] < ends[None, :])
        try:
            found = self.project(self.states(tokens[None], depths[None], visible[None])[0])
        except (TypeError, ValueError, RuntimeError, AttributeError):  # whatever a model does not take
            return False
        for path in PATHS:
            alone = self.logits(tokens[path][None], len(path))[0]
            apart = (found[path] - alone).abs().max()
            if not apart <= TOLERANCE * alone.abs().max():  # nor where a weight is no number
                return False
        return True

    @torch.inference_mode()
    def states(self, tokens: Tensor, positions: Tensor | None, visible: Tensor | None) -> Tensor:
        device = self.model.device
        arguments: dict[str, Any] = {}
        if visible is not None:
            assert positions is not None
            mask = torch.zeros(visible.shape, dtype=self.model.dtype, device=device)
            mask.masked_fill_(~visible.to(device), -torch.inf)
            arguments = {"attention_mask": mask.unsqueeze(1), "position_ids": positions.to(device)}
        return self.model.base_model(input_ids=tokens.to(device), use_cache=False, **arguments).last_hidden_state

    @torch.inference_mode()
    def project(self, states: Tensor) -> Tensor:
        return _wide(self.model.get_output_embeddings()(states))

    def read(self, tokens: Tensor, num_padding: Tensor) -> "Reading":
        return Reading(self, tokens, num_padding)


def _wide(logits: Tensor) -> Tensor:
    """float32, or float64 of a model that computes in it."""
    return logits if logits.dtype == torch.float64 else logits.float()


class Reading:
    """Sequences whose keys and values are kept. Padding on the left is masked, and positions count from after it."""

    def __init__(self, model: TransformersModel, tokens: Tensor, num_padding: Tensor) -> None:
        from transformers import DynamicCache

        self._model = model
        self._cache = DynamicCache(config=model.model.config)
        columns = torch.arange(tokens.shape[1])
        self._mask = (columns[None, :] >= num_padding[:, None]).long()
        self._positions = (columns[None, :] - num_padding[:, None]).clamp(min=0)
        self.logits = self._read(tokens)

    def extend(self, tokens: Tensor) -> None:
        self._mask = torch.cat([self._mask, torch.ones_like(self._mask[:, :1])], 1)
        self._positions = self._positions[:, -1:] + 1
        self.logits = self._read(tokens[:, None])

    def keep(self, rows: Sequence[int]) -> None:
        chosen = torch.tensor(rows)
        self._mask, self._positions = self._mask[chosen], self._positions[chosen]
        self._cache.batch_select_indices(chosen.to(self._model.model.device))

    @torch.inference_mode()
    def _read(self, tokens: Tensor) -> Tensor:
        device = self._model.model.device
        states = self._model.model.base_model(
            input_ids=tokens.to(device),
            attention_mask=self._mask.to(device),
            position_ids=self._positions.to(device),
            cache=self._cache,
            use_cache=True,
        ).last_hidden_state
        return self._model.project(states[:, -1])
