"""Small models and tokenizers of which every score can be worked out by hand."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

END = 0


class BigramModel:
    """Logits that depend on the last token only, drawn once. Remembers what it was asked."""

    def __init__(self, vocabulary_size: int, *, max_length: int, seed: int = 0) -> None:
        self.vocabulary_size = vocabulary_size
        self.max_length = max_length
        self.table = torch.randn(vocabulary_size, vocabulary_size, generator=torch.Generator().manual_seed(seed)) * 2
        self.inputs: list[list[int]] = []

    def logits(self, tokens: Tensor, keep: int) -> Tensor:
        assert tokens.dtype == torch.int64 and tokens.shape[1] <= self.max_length
        self.inputs += tokens.tolist()
        return self.table[tokens[:, tokens.shape[1] - keep :]]

    def log_likelihood(self, sequence: Sequence[int], first: int) -> float:
        """By brute force: the sum over tokens `first`, `first` + 1, ... of `sequence`, which holds the prefix token."""
        scores = self.table.double().log_softmax(-1)
        return sum(float(scores[a, b]) for a, b in list(pairwise(sequence))[first - 1 :])


class PieceTokenizer:
    """Longest match first from a list of pieces; id 0 is the end of a document."""

    def __init__(self, pieces: Sequence[str]) -> None:
        self.pieces = ["", *sorted(pieces, key=len, reverse=True)]

    @property
    def size(self) -> int:
        return len(self.pieces)

    def encode(self, text: str) -> list[int]:
        tokens = []
        while text:
            token = next(i for i, piece in enumerate(self.pieces) if piece and text.startswith(piece))
            tokens.append(token)
            text = text[len(self.pieces[token]) :]
        return tokens

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(self.pieces[token] for token in tokens)


CHARACTERS = [chr(code) for code in range(32, 127)] + ["\n"]


def characters(*more: str) -> PieceTokenizer:
    """A tokenizer of single ASCII characters and of the pieces given."""
    return PieceTokenizer([*CHARACTERS, *more])
