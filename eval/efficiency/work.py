"""The work that is measured: texts read and continued, as generation does it."""

from collections.abc import Iterator

import torch
from torch import Tensor

from eval.efficiency.settings import RoundSettings
from eval.scoring.model import Continuation, LanguageModel, opened


def prompt(model: LanguageModel, settings: RoundSettings, batch_size: int, new_tokens: int) -> tuple[Tensor, int]:
    """`int64[batch_size, length]`, drawn by a fixed seed, and how many tokens can come after: as the settings say, but
    no more in all than the model can take, and half of it for the prompt at least.
    """
    length = max(1, min(settings.prompt_tokens, max(model.max_length // 2, model.max_length - new_tokens)))
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(model.vocabulary_size, (batch_size, length), generator=generator)
    return tokens, max(1, min(new_tokens, model.max_length - length))


def read(model: LanguageModel, tokens: Tensor) -> Continuation:
    """What comes after: with what was read kept, where the model can keep it."""
    keeping = opened(model)
    if keeping is None:
        return _Rereading(model, tokens)
    return keeping.read(tokens, torch.zeros(len(tokens), dtype=torch.int64))


def continue_greedily(continuation: Continuation) -> Iterator[Tensor]:
    """New tokens without an end, `int64[batch]` on the CPU: a token has been computed when it is given."""
    while True:
        tokens = continuation.logits.argmax(-1).cpu()
        yield tokens
        continuation.extend(tokens)


class _Rereading:
    def __init__(self, model: LanguageModel, tokens: Tensor) -> None:
        self._model = model
        self._tokens = tokens
        self.logits = model.logits(tokens, 1)[:, 0]

    def extend(self, tokens: Tensor) -> None:
        self._tokens = torch.cat([self._tokens, tokens[:, None]], 1)[:, -self._model.max_length :]
        self.logits = self._model.logits(self._tokens, 1)[:, 0]

    def keep(self, rows: object) -> None:
        raise AssertionError("nothing is left out of a measurement")
