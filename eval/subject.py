"""What is judged, and with which texts: the model behind a scorer, its vocabulary, and the texts of its training."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from data.canaries import CanarySet

if TYPE_CHECKING:
    from eval.scoring.scorer import Scorer
    from eval.tasks.bigram import BigramModel


class Tokenizer(Protocol):
    """What is needed of a vocabulary."""

    def encode(self, text: str) -> Sequence[int]: ...

    def decode(self, tokens: Sequence[int]) -> str: ...


@dataclass(frozen=True, kw_only=True)
class Document:
    """A document of the corpus, or the beginning of one."""

    domain: str
    id: str
    text: str

    @property
    def num_bytes(self) -> int:
        return len(self.text.encode())

    @property
    def hash(self) -> str:
        """sha256, in hex, of the text."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def beginning(text: str, most_bytes: int) -> str:
    """At most `most_bytes` of UTF-8, cut at a character; `text` holds no lone surrogate."""
    return text.encode()[:most_bytes].decode("utf-8", "ignore")


def beginnings(heldout: Mapping[str, Sequence[tuple[str, str]]], most_bytes: int) -> list[Document]:
    """Of every document of domain -> (id, text), by the names of the domains; empty ones are left out."""
    return [
        Document(domain=domain, id=name, text=head)
        for domain in sorted(heldout)
        for name, text in heldout[domain]
        if (head := beginning(text, most_bytes))
    ]


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A model under judgement. Nothing here knows of artifacts.

    heldout: domain -> (id, text). training: (most documents, seed) -> documents of the training text, drawn by seed, to
    which a larger number appends; none for a model whose training text is not at hand. canaries: what was planted in
    it. chat: a user's message as the model's chat template puts it; None for a model that has none. model_bytes: of its
    weights as they are loaded. stored_bytes: of the files that hold them and nothing else; None where there are none,
    as in a checkpoint. scratch: an empty folder for rendered tasks and their caches.
    """

    scorer: "Scorer"
    tokenizer: Tokenizer
    heldout: Mapping[str, Sequence[tuple[str, str]]]
    training: Callable[[int, int], Sequence[Document]]
    canaries: CanarySet | None
    chat: Callable[[str], str] | None
    num_parameters: int
    model_bytes: int
    stored_bytes: int | None = None
    scratch: Path

    @cached_property
    def bigram(self) -> "BigramModel | None":
        """Counted on a sample of the training text; None where that is not at hand."""
        from eval.tasks.bigram import count_training_text

        return count_training_text(self)
