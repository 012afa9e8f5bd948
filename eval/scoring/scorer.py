"""Log-likelihoods and continuations of a model behind a small protocol, in batches sorted by length.

Every token that is asked for is scored exactly once. What does not fit in the model's context is scored in windows
(eval/scoring/windows.py). What requests have in common at their beginning is read once where the model allows it
(eval/scoring/trees.py), and only the places whose token is scored go through the output projection. How requests are
batched moves low-order bits of a score, and nothing else; the same requests give the same bits.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from eval.scoring.generation import generate
from eval.scoring.model import LanguageModel, opened
from eval.scoring.trees import Layout, Piece, Tree, batches, lay_out, plant
from eval.scoring.windows import windows

Progress = Callable[[int, int], None]
Request = tuple[Sequence[int], Sequence[int]]

PROJECTED_VALUES = 2**23  # logits at once on a CPU: 32 MiB, which the allocator hands out again without new pages
PROJECTED_VALUES_ON_GPU = 2**28


@dataclass(frozen=True, kw_only=True)
class Score:
    """Of one request: the sum of natural log-probabilities of its answer, whether no other token was more likely
    anywhere, and the number of its tokens that were scored.
    """

    log_likelihood: float
    is_greedy: bool
    num_tokens: int


def _nothing() -> None:
    pass


class Scorer:
    """Scores token sequences with `model`.

    prefix_token: stands before a sequence. always_prefix: before every one, which is how our models are trained, with
    the end-of-document token; if not, only where the context is empty and the answer does not begin with it, as lm-eval
    does for models whose tokenizer puts a start token where it belongs. end_tokens: end a generated text, as the prefix
    token does. batch_tokens bounds the tokens of one forward pass (one sequence may exceed it). between: called before
    each forward pass, and may wait.
    """

    def __init__(
        self,
        model: LanguageModel,
        *,
        prefix_token: int,
        always_prefix: bool = True,
        end_tokens: Sequence[int] = (),
        batch_tokens: int = 2048,
        between: Callable[[], None] = _nothing,
    ) -> None:
        assert 0 <= prefix_token < model.vocabulary_size and batch_tokens >= 1
        self.model = model
        self.prefix_token = prefix_token
        self.always_prefix = always_prefix
        self.end_tokens = frozenset({prefix_token, *end_tokens})
        self.batch_tokens = batch_tokens
        self.between = between

    def score(self, requests: Sequence[Request], progress: Progress | None = None) -> list[Score]:
        """One score for each (context, answer), in their order; neither holds the prefix token, unless it is not always
        put before them. An empty answer scores 0.
        """
        pieces, lengths = self._pieces(requests)
        sums, num_beaten = self._totals(pieces, len(requests), progress)
        return [
            Score(log_likelihood=float(total), is_greedy=beaten == 0, num_tokens=length)
            for total, beaten, length in zip(sums, num_beaten.tolist(), lengths, strict=True)
        ]

    def rolling(self, sequences: Sequence[Sequence[int]], progress: Progress | None = None) -> list[Score]:
        """The score of each whole sequence after the prefix token."""
        return self.score([((), sequence) for sequence in sequences], progress)

    def room(self, max_new_tokens: int) -> int:
        """Tokens of a context that leave room for so many more, and for the prefix token; at least 1."""
        return max(1, self.model.max_length - max_new_tokens - int(self.always_prefix))

    def generate(
        self,
        contexts: Sequence[Sequence[int]],
        *,
        max_new_tokens: int,
        stop: Callable[[list[int]], bool] = lambda new: False,
        temperature: float = 0.0,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> list[list[int]]:
        """The continuation of each context, in their order, until an end token (left out), `stop(new tokens)` or
        `max_new_tokens`.

        temperature: 0 takes the most likely token; above, tokens are drawn, as a function of the seed, the number of
        the context and the number of the token. The model sees the last `max_length` tokens.
        """
        return self._generate(
            range(len(contexts)),
            contexts,
            max_new_tokens=max_new_tokens,
            stop=stop,
            temperature=temperature,
            seed=seed,
            progress=progress,
        )

    def _generate(
        self,
        numbers: Sequence[int],
        contexts: Sequence[Sequence[int]],
        *,
        max_new_tokens: int,
        stop: Callable[[list[int]], bool],
        temperature: float,
        seed: int,
        progress: Progress | None,
    ) -> list[list[int]]:
        return generate(
            self.model,
            [self.sequence(context, ())[0] for context in contexts],
            numbers=numbers,
            max_new_tokens=max_new_tokens,
            end_tokens=self.end_tokens,
            stop=stop,
            temperature=temperature,
            seed=seed,
            batch_tokens=self.batch_tokens,
            between=self.between,
            progress=progress,
        )

    def sequence(self, context: Sequence[int], answer: Sequence[int]) -> tuple[list[int], int]:
        """What the model reads, and where in it the first token stands that is scored."""
        if self.always_prefix:
            return [self.prefix_token, *context, *answer], 1 + len(context)
        if context:
            return [*context, *answer], len(context)
        if answer and answer[0] == self.prefix_token:
            return list(answer), 1
        return [self.prefix_token, *answer], 1

    def _pieces(self, requests: Sequence[Request]) -> tuple[list[Piece], list[int]]:
        pieces, lengths = [], []
        for request, (context, answer) in enumerate(requests):
            sequence, first = self.sequence(context, answer)
            lengths.append(len(sequence) - first)
            pieces += [
                Piece(request=request, tokens=tuple(sequence[window.begin : window.end]), num_scored=window.num_scored)
                for window in windows(len(sequence), first, self.model.max_length)
            ]
        return pieces, lengths

    def _totals(
        self, pieces: Sequence[Piece], num_requests: int, progress: Progress | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """For each request the sum over its scored tokens, and how many of them were not the most likely ones; both
        float64[num_requests].
        """
        return self._add_up(self._batches(pieces, self.batch_tokens), num_requests, progress)

    def _add_up(
        self, batches: Sequence[Sequence[Tree]], num_requests: int, progress: Progress | None
    ) -> tuple[np.ndarray, np.ndarray]:
        sums, num_beaten = np.zeros(num_requests, np.float64), np.zeros(num_requests, np.float64)
        done, total = 0, sum(len(row.pieces) for batch in batches for row in batch)
        for batch in batches:
            self.between()
            for request, log_likelihoods, best in self._score_batch(batch):
                sums[request] += log_likelihoods.sum()
                num_beaten[request] += np.count_nonzero(~best)
                done += 1
            if progress is not None:
                progress(done, total)
        return sums, num_beaten

    def _batches(self, pieces: Sequence[Piece], most_tokens: int) -> list[list[Tree]]:
        rows = plant(
            pieces, branching=opened(self.model) is not None, most_tokens=min(most_tokens, self.model.max_length)
        )
        return list(batches(rows, most_tokens))

    def _score_batch(self, batch: Sequence[Tree]) -> list[tuple[int, np.ndarray, np.ndarray]]:
        """For each piece its request, and for each of its scored tokens the log-likelihood and whether it was best."""
        layout = lay_out(batch, self.prefix_token)
        length = layout.tokens.shape[1]
        pieces = [piece for row in batch for piece in row.pieces]
        places = [number * length + place for number, row in enumerate(batch) for path in row.places for place in path]
        targets = [token for piece in pieces for token in piece.tokens[len(piece.tokens) - piece.num_scored :]]
        log_likelihoods, best = self._score_places(layout, np.asarray(places, np.int64), np.asarray(targets, np.int64))
        cuts = np.cumsum([piece.num_scored for piece in pieces])[:-1]
        parts = zip(pieces, np.split(log_likelihoods, cuts), np.split(best, cuts), strict=True)
        return [(piece.request, scored, was_best) for piece, scored, was_best in parts]

    @torch.inference_mode()
    def _score_places(self, layout: Layout, places: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The log-likelihood of each target at its place of the flattened rows, float64, and whether it was best."""
        tokens = torch.from_numpy(layout.tokens)
        where, wanted = torch.from_numpy(places), torch.from_numpy(targets)
        model = opened(self.model)
        if model is None:
            first = int(where.remainder(tokens.shape[1]).min())
            keep = tokens.shape[1] - first
            logits = self.model.logits(tokens, keep)
            assert logits.shape == (len(tokens), keep, self.model.vocabulary_size), logits.shape
            rows, columns = where // tokens.shape[1], where.remainder(tokens.shape[1]) - first
            return _host([_judge(logits[rows.to(logits.device), columns.to(logits.device)], wanted)])
        positions, visible = (
            None if part is None else torch.from_numpy(part) for part in (layout.positions, layout.visible)
        )
        states = model.states(tokens, positions, visible)
        chosen = states.flatten(0, 1)[where.to(states.device)]
        values = PROJECTED_VALUES if states.device.type == "cpu" else PROJECTED_VALUES_ON_GPU
        step = max(1, values // self.model.vocabulary_size)
        return _host(
            [
                _judge(model.project(chosen[begin : begin + step]), wanted[begin : begin + step])
                for begin in range(0, len(chosen), step)
            ]
        )


def _judge(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """`logits: float32[n, vocabulary_size]`, `targets: int64[n]`.

    By the operation that lm-eval uses, whose error in float32 grows with the vocabulary (about 3e-5 a token at 49,152,
    of one sign): with a better one the sums over an answer would differ from lm-eval's by up to 1e-3.
    """
    wanted = targets.to(logits.device).unsqueeze(-1)
    best = logits.gather(-1, wanted).squeeze(-1) >= logits.amax(-1)
    return logits.log_softmax(-1).gather(-1, wanted).squeeze(-1).double(), best


def _host(parts: Sequence[tuple[Tensor, Tensor]]) -> tuple[np.ndarray, np.ndarray]:
    log_likelihoods, best = zip(*parts, strict=True)
    return torch.cat(log_likelihoods).cpu().numpy(), torch.cat(best).cpu().numpy()


def bits(log_likelihood_nats: float) -> float:
    """Natural log-likelihood to the bits that an ideal coder would spend."""
    return -log_likelihood_nats / math.log(2)
