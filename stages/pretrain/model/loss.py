"""How a model is scored while it is trained: within its own forward pass, where a wrapper that shards parameters has
gathered the output matrix.
"""

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel


@dataclass(frozen=True, kw_only=True)
class Scoring:
    """How a model is scored. vocabulary_size: rows of the output matrix from there on only pad it and take no part;
    chunk_tokens: whose scores are held at a time; z_loss: weight of the squared logarithm of the softmax's
    denominator."""

    vocabulary_size: int
    chunk_tokens: int = 1024
    z_loss: float = 0.0


@cache
def trained(cls: "type[PreTrainedModel]") -> "type[PreTrainedModel]":
    """The subclass of a transformers causal language model, of the same name, that a training works with.

    Given `targets`, its forward pass returns what `summed_losses` does, of targets: int64[rows, tokens], IGNORE where
    there is nothing to predict; without, it is that of `cls`. An instance's `scoring` says how; as built, all rows of
    the output matrix count.
    """

    from stages.pretrain.model.fused_loss import summed_losses

    def forward(self: Any, *arguments: Any, targets: "torch.Tensor | None" = None, **settings: Any) -> Any:
        if targets is None:
            return cls.forward(self, *arguments, **settings)
        hidden = self.model(*arguments, use_cache=False, **settings).last_hidden_state
        scoring = self.scoring or Scoring(vocabulary_size=self.config.vocab_size)
        divisor = getattr(self.config, "logits_scaling", 1.0)
        return summed_losses(hidden, self.lm_head.weight, targets, scoring=scoring, divisor=divisor)

    # transformers looks a model's kind up by the name of its class, and writes the name into config.json.
    members = {"forward": forward, "scoring": None, "__module__": cls.__module__, "__doc__": cls.__doc__}
    return type(cls.__name__, (cls,), members)
