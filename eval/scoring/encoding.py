"""Tokens of a context and of its answer, cut as one text."""

from collections.abc import Callable, Sequence


def encode_pair(encode: Callable[[str], Sequence[int]], context: str, answer: str) -> tuple[list[int], list[int]]:
    """Tokens of the context and of an answer, of the text as a whole: `context + answer` is encoded once.

    White space at the end of the context moves to the answer, as in lm-eval. The answer begins at the first token that
    is not also a token of the context alone, so a token that spans both belongs to the answer, and an answer that is
    not empty has at least one token. Where the context's tokens are a prefix of the whole's, this is lm-eval's own cut.
    """
    stripped = context.rstrip()
    whole = list(encode(context + answer))
    head = list(encode(stripped)) if stripped else []
    if not answer:
        return whole, []
    cut = next((i for i, (a, b) in enumerate(zip(whole, head, strict=False)) if a != b), min(len(whole), len(head)))
    cut = min(cut, len(whole) - 1)
    return whole[:cut], whole[cut:]


def encode_pair_like_lm_eval(
    encode: Callable[[str], Sequence[int]], context: str, answer: str
) -> tuple[list[int], list[int]]:
    """The same with lm-eval's cut: as many tokens as the context has by itself are its own, and stand for it.

    Where a token spans both, as "=-" may in "2-5=-3", what it holds of the answer is lost: the model is asked "2-5=3".
    So scores are those that others report, and not for models of our own. An answer that would be lost as a whole is
    cut as `encode_pair` does.
    """
    stripped = context.rstrip()
    head = list(encode(stripped)) if stripped else []
    tail = list(encode(context + answer))[len(head) :]
    return (head, tail) if tail or not answer else encode_pair(encode, context, answer)
