"""A Transformers causal model behind the scorer's protocol."""

from typing import Any

import torch
from torch import Tensor


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

    def logits(self, tokens: Tensor, keep: int) -> Tensor:
        with torch.inference_mode():
            return self.model(
                input_ids=tokens.to(self.model.device), logits_to_keep=keep, use_cache=False
            ).logits.float()
