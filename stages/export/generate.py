"""Continuations of a prompt by a transformers model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

# Of the two best logits, as a share of the standard deviation of all; below it rounding may decide between them.
# llama.cpp in float32 differs from transformers by up to 0.01 of it, as measured on random weights.
MARGIN = 0.015


@dataclass(frozen=True, kw_only=True)
class Continuation:
    """`tokens`: int[n], the end-of-document token included if it came. `clear[i]`: the two best logits before token i
    differ clearly.
    """

    tokens: tuple[int, ...]
    clear: tuple[bool, ...]


def continue_prompt(
    model: Any,
    prompt: Sequence[int],
    *,
    max_new_tokens: int,
    end_id: int,
    temperature: float | None = None,
    seed: int = 0,
) -> Continuation:
    """Greedy without a temperature, else drawn from softmax(logits / temperature) with `seed`.

    `prompt` holds the prefix token; it and `max_new_tokens` must fit in the model. The global random state is left as
    it was.
    """
    import torch

    assert 1 <= len(prompt) <= model.config.max_position_embeddings - max_new_tokens
    tokens = torch.tensor([list(prompt)])
    sampling = {} if temperature is None else {"temperature": temperature, "top_k": 0, "top_p": 1.0}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        output = model.generate(
            tokens,
            attention_mask=torch.ones_like(tokens),
            max_new_tokens=max_new_tokens,
            do_sample=temperature is not None,
            eos_token_id=end_id,
            pad_token_id=end_id,
            return_dict_in_generate=True,
            output_logits=True,
            **sampling,
        )
    return Continuation(
        tokens=tuple(output.sequences[0, len(prompt) :].tolist()),
        clear=tuple(_is_clear(logits[0].float()) for logits in output.logits),
    )


def _is_clear(logits: "torch.Tensor") -> bool:
    first, second = logits.topk(2).values
    return bool(first - second >= MARGIN * logits.std())
