"""The scorer on all ranks of a process group, each with the whole model or its part of one.

Every rank asks for the same; all get all of the answers. Batches are planned alike everywhere and dealt out in turn,
and a rank that has none left in the last round reads one again and forgets what came of it: each rank makes as many
forward passes as any other, so that a model with collectives of its own does not wait for ever, and no item is counted
twice. The ranks meet once, at the end.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from eval.scoring.model import LanguageModel
from eval.scoring.scorer import Progress, Scorer
from eval.scoring.trees import Piece


class RankError(RuntimeError):
    """Another rank failed, so this one's share of the answers is of no use."""


class RankedScorer(Scorer):
    """Takes what `Scorer` takes. group: of torch.distributed; its back end is gloo or NCCL. In `generate` a model must
    be whole on each rank, since texts end at different times.
    """

    def __init__(self, model: LanguageModel, *, group: Any, **settings: Any) -> None:
        super().__init__(model, **settings)
        self._group = group
        self._rank, self._size = dist.get_rank(group), dist.get_world_size(group)

    def _totals(
        self, pieces: Sequence[Piece], num_requests: int, progress: Progress | None
    ) -> tuple[np.ndarray, np.ndarray]:
        num_tokens = sum(len(piece.tokens) for piece in pieces)
        share = min(self.batch_tokens, max(1, -(-num_tokens // self._size)))  # a batch for each rank at least
        planned = self._batches(pieces, share)
        mine = planned[self._rank :: self._size]

        def work() -> np.ndarray:
            found = np.stack(self._add_up(mine, num_requests, progress))
            if len(mine) < -(-len(planned) // self._size):
                self._score_batch(planned[0])
            return found

        sums, num_beaten = self._meet(work, np.zeros((2, num_requests), np.float64))
        return sums, num_beaten

    def _generate(
        self, numbers: Sequence[int], contexts: Sequence[Sequence[int]], *, max_new_tokens: int, **settings: Any
    ) -> list[list[int]]:
        def work() -> np.ndarray:
            mine = slice(self._rank, None, self._size)
            found = super(RankedScorer, self)._generate(
                numbers[mine], contexts[mine], max_new_tokens=max_new_tokens, **settings
            )
            tokens = np.zeros((len(contexts), max_new_tokens), np.float64)
            for row, new in zip(range(self._rank, len(contexts), self._size), found, strict=True):
                tokens[row, : len(new)] = np.asarray(new) + 1
            return tokens

        tokens = self._meet(work, np.zeros((len(contexts), max_new_tokens), np.float64))
        return [[int(token) - 1 for token in row if token] for row in tokens]

    def _meet(self, work: Callable[[], np.ndarray], nothing: np.ndarray) -> np.ndarray:
        """The sum of what every rank found. A rank that fails says so to the others and raises its own error."""
        failure: Exception | None = None
        try:
            found = work()
        except Exception as error:  # told to the other ranks, and raised again
            failure, found = error, nothing
        device = "cuda" if dist.get_backend(self._group) == "nccl" else "cpu"
        message = torch.from_numpy(np.append(found.ravel(), float(failure is not None))).to(device)
        dist.all_reduce(message, group=self._group)
        if failure is not None:
            raise failure
        if message[-1] > 0:
            raise RankError(f"{int(message[-1])} of {self._size} ranks failed while scoring")
        return message[:-1].cpu().numpy().reshape(found.shape)
