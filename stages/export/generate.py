"""Continuations of a prompt by a transformers model, token by token, with a key-value cache."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

MARGIN = 1e-3  # of the two best logits; below it rounding may decide between them


@dataclass(frozen=True, kw_only=True)
class Continuation:
    """`tokens`: int[n], the end-of-document token included if it came. `clear[i]`: the two best logits before token i
    differ by MARGIN at least.
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
    """Greedy without a temperature, else drawn from softmax(logits / temperature) by a generator of its own.

    `prompt` holds the prefix token; it and `max_new_tokens` must fit in the model.
    """
    import torch

    assert 1 <= len(prompt) <= model.config.max_position_embeddings - max_new_tokens
    generator = torch.Generator().manual_seed(seed)
    tokens: list[int] = []
    clear: list[bool] = []
    cache = None
    step = torch.tensor([list(prompt)])
    with torch.inference_mode():
        while len(tokens) < max_new_tokens:
            output = model(input_ids=step, past_key_values=cache, use_cache=True, logits_to_keep=1)
            logits, cache = output.logits[0, -1].float(), output.past_key_values
            best = logits.topk(2).values
            clear.append(bool(best[0] - best[1] >= MARGIN))
            token = (
                int(logits.argmax())
                if temperature is None
                else int(torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator))
            )
            tokens.append(token)
            if token == end_id:
                break
            step = torch.tensor([[token]])
    return Continuation(tokens=tuple(tokens), clear=tuple(clear))
