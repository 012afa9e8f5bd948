"""Log-likelihoods and greedy generation of a model behind a small protocol, in batches sorted by length.

Every sequence starts with exactly one prefix token: the end-of-document token, which in training stands before every
document. Every token that is asked for is scored exactly once. What does not fit in the model's context is scored in
windows as lm-eval cuts them: each window continues where the last one ended, with one token of context, and the last
one is filled up to full length with the text before it.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

Progress = Callable[[int, int], None]


class LanguageModel(Protocol):
    """A causal model: token ids in, logits out."""

    @property
    def max_length(self) -> int:
        """Tokens that the model can take at once."""

    @property
    def vocabulary_size(self) -> int:
        """Rows of its logits."""

    def logits(self, tokens: Tensor, keep: int) -> Tensor:
        """`tokens: int64[batch, length]` -> `float32[batch, keep, vocabulary_size]`, for the last `keep` positions.
        Position i predicts token i + 1 and sees none after i.
        """


@dataclass(frozen=True, kw_only=True)
class Score:
    """Of one request: the sum of natural log-probabilities of its answer, whether no other token was more likely
    anywhere, and its length.
    """

    log_likelihood: float
    is_greedy: bool
    num_tokens: int


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

    A context that is too long loses its beginning.
    """
    assert 1 <= first_scored <= num_tokens and max_length >= 1
    position = first_scored
    while position < num_tokens:
        end = min(position + max_length, num_tokens)
        yield Window(begin=max(0, end - 1 - max_length), end=end, num_scored=end - position)
        position = end


@dataclass(frozen=True)
class _Piece:
    request: int
    tokens: Sequence[int]
    num_scored: int


class Scorer:
    """Scores token sequences with `model`. `batch_tokens` bounds the tokens of one forward pass (one sequence may
    exceed it); it moves low-order bits.
    """

    def __init__(self, model: LanguageModel, *, prefix_token: int, batch_tokens: int = 2048) -> None:
        assert 0 <= prefix_token < model.vocabulary_size and batch_tokens >= 1
        self.model = model
        self.prefix_token = prefix_token
        self.batch_tokens = batch_tokens

    def score(
        self, requests: Sequence[tuple[Sequence[int], Sequence[int]]], progress: Progress | None = None
    ) -> list[Score]:
        """One score for each (context, answer), in their order; neither holds the prefix token. An empty answer scores
        0.
        """
        pieces = []
        for request, (context, answer) in enumerate(requests):
            sequence = [self.prefix_token, *context, *answer]
            for window in windows(len(sequence), 1 + len(context), self.model.max_length):
                pieces.append(_Piece(request, sequence[window.begin : window.end], window.num_scored))
        sums = np.zeros(len(requests), np.float64)
        greedy = np.ones(len(requests), bool)
        done = 0
        for batch in self._batches(pieces):
            for piece, (log_likelihood, is_greedy) in zip(batch, self._score_batch(batch), strict=True):
                sums[piece.request] += log_likelihood
                greedy[piece.request] &= is_greedy
            done += len(batch)
            if progress is not None:
                progress(done, len(pieces))
        return [
            Score(log_likelihood=float(total), is_greedy=bool(same), num_tokens=len(answer))
            for total, same, (_, answer) in zip(sums, greedy, requests, strict=True)
        ]

    def rolling(self, sequences: Sequence[Sequence[int]], progress: Progress | None = None) -> list[Score]:
        """The score of each whole sequence after the prefix token."""
        return self.score([((), sequence) for sequence in sequences], progress)

    def _batches(self, pieces: list[_Piece]) -> Iterator[list[_Piece]]:
        """Longest first, so that a batch holds little padding and a lack of memory shows at once."""
        batch: list[_Piece] = []
        for piece in sorted(pieces, key=lambda piece: -len(piece.tokens)):
            if batch and (len(batch) + 1) * (len(batch[0].tokens) - 1) > self.batch_tokens:
                yield batch
                batch = []
            batch.append(piece)
        if batch:
            yield batch

    def _score_batch(self, batch: list[_Piece]) -> list[tuple[float, bool]]:
        length = len(batch[0].tokens) - 1
        tokens = np.full((len(batch), length + 1), self.prefix_token, np.int64)
        for row, piece in enumerate(batch):
            tokens[row, : len(piece.tokens)] = piece.tokens
        keep = max(length - (len(piece.tokens) - 1 - piece.num_scored) for piece in batch)
        logits = self.model.logits(torch.from_numpy(tokens[:, :-1]), keep)
        targets = torch.from_numpy(tokens[:, -keep:]).to(logits.device)
        assert logits.shape == (len(batch), keep, self.model.vocabulary_size), logits.shape
        chosen = logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
        log_likelihoods = (chosen - logits.logsumexp(-1)).double().cpu()
        best = (chosen >= logits.amax(-1)).cpu()
        scores = []
        for row, piece in enumerate(batch):
            end = len(piece.tokens) - 1 - (length - keep)
            begin = end - piece.num_scored
            scores.append((float(log_likelihoods[row, begin:end].sum()), bool(best[row, begin:end].all())))
        return scores

    def greedy(
        self, context: Sequence[int], *, max_new_tokens: int, stop: Callable[[list[int]], bool] = lambda tokens: False
    ) -> list[int]:
        """The most likely continuation, token by token, until the end-of-document token (left out), `stop(new tokens)`
        or `max_new_tokens`.

        Each step runs the model on the whole sequence (its last `max_length` tokens): quadratic, and as exact as
        scoring.
        """
        sequence = [self.prefix_token, *context]
        new: list[int] = []
        while len(new) < max_new_tokens:
            logits = self.model.logits(torch.tensor([sequence[-self.model.max_length :]]), 1)
            token = int(logits[0, 0].argmax())
            if token == self.prefix_token:
                break
            sequence.append(token)
            new.append(token)
            if stop(new):
                break
        return new


def bits(log_likelihood_nats: float) -> float:
    """Natural log-likelihood to the bits that an ideal coder would spend."""
    return -log_likelihood_nats / math.log(2)
