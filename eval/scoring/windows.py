"""Sequences that do not fit in a model's context, cut as lm-eval cuts them."""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Window:
    """`inputs` are the tokens `sequence[begin : end - 1]`; the last `num_scored` of the tokens `sequence[begin + 1 :
    end]` are scored.
    """

    begin: int
    end: int
    num_scored: int


def windows(num_tokens: int, first_scored: int, max_length: int) -> Iterator[Window]:
    """Cut a sequence of `num_tokens` so that each token from `first_scored` (at least 1) on is scored in exactly one
    window of at most `max_length` inputs.

    Each window continues where the last one ended, with one token of context, and the last one is filled up to full
    length with the text before it. A context that is too long loses its beginning.
    """
    assert 1 <= first_scored <= num_tokens and max_length >= 1
    position = first_scored
    while position < num_tokens:
        end = min(position + max_length, num_tokens)
        yield Window(begin=max(0, end - 1 - max_length), end=end, num_scored=end - position)
        position = end
