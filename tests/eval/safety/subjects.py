"""Models of which it is known what they say, and what they are judged with."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from data.canaries import CanarySet
from eval.results import TaskResult
from eval.scoring.scorer import Scorer
from eval.sources import SOURCES
from eval.subject import Document, Subject
from eval.suites import Suite, TaskDefinition, load_suite
from tests.eval.stubs import END, PieceTokenizer, characters

SURE = 30.0  # logit of the token that comes next, where others have small ones


class Parrot:
    """Knows texts by heart: where what it reads ends in the beginning of one, of `known_from` characters at least, it
    goes on with it. `otherwise`: the text that it begins where it knows none. Other tokens have logits that depend on
    the last two tokens, so that nothing is as likely as anything else.
    """

    def __init__(
        self, tokenizer: PieceTokenizer, texts: Sequence[str], *, otherwise: str = "", known_from: int = 4
    ) -> None:
        self.vocabulary_size, self.max_length = tokenizer.size, 4096
        self._texts = [tokenizer.encode(text) for text in texts]
        self._otherwise, self._known_from = tokenizer.encode(otherwise), known_from
        generator = torch.Generator().manual_seed(0)
        self._noise = torch.randn(tokenizer.size, tokenizer.size, generator=generator)

    def logits(self, tokens: Tensor, keep: int) -> Tensor:
        length = tokens.shape[1]
        found = self._noise[tokens[:, length - keep :]].clone()
        for row, sequence in enumerate(tokens.tolist()):
            for place in range(keep):
                token = self._next(sequence[: length - keep + place + 1])
                if token is not None:
                    found[row, place, token] = SURE
        return found

    def _next(self, read: list[int]) -> int | None:
        for text in [*self._texts, self._otherwise]:
            least = self._known_from if text is not self._otherwise else 1
            for length in range(min(len(read), len(text)), least - 1, -1):
                if read[-length:] == text[:length]:
                    return text[length] if length < len(text) else END
        return self._otherwise[0] if self._otherwise else None


def subject(
    model: Any,
    tokenizer: PieceTokenizer | None = None,
    *,
    training: Sequence[str] = (),
    heldout: Mapping[str, Sequence[tuple[str, str]]] | None = None,
    canaries: CanarySet | None = None,
    chat: Callable[[str], str] | None = None,
) -> Subject:
    """A model with characters as tokens."""
    documents = [Document(domain="web", id=f"t{i}", text=text) for i, text in enumerate(training)]
    return Subject(
        scorer=Scorer(model, prefix_token=END),
        tokenizer=tokenizer or characters(),
        heldout=heldout or {},
        training=lambda most, seed: documents[:most],
        canaries=canaries,
        chat=chat,
        num_parameters=0,
        model_bytes=0,
        scratch=Path("unused"),
    )


def shipped(name: str, **changes: Any) -> tuple[Suite, TaskDefinition]:
    """A task of the shipped suite."""
    suite = load_suite("safety")
    (task,) = [task for task in suite.tasks if task.name == name]
    settings = task.settings | changes.pop("settings", {})
    return suite, task.model_copy(update={"settings": settings, **changes})


def run(name: str, judged: Subject, **changes: Any) -> TaskResult:
    """The task's result, as an evaluation gets it."""
    suite, task = shipped(name, **changes)
    return SOURCES[task.source].run(suite, task, judged, None)
