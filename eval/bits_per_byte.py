"""Bits per byte on held-out text, with the interval that the choice of documents leaves open, and what classical
compressors need for the same text.

Counted: every token of a document given the end-of-document token before it and all earlier tokens in reach of the
model's context. Not counted: the end-of-document token after it. Bytes are the UTF-8 bytes of the text, so that scores
compare across tokenizers.
"""

import gzip
import hashlib
import lzma
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from eval.compare.clusters import Clustered
from eval.compare.resampling import bootstrap_interval
from eval.scoring.scorer import Scorer, bits
from eval.subject import beginning


@dataclass(frozen=True, kw_only=True)
class HeldoutDocument:
    """A held-out text, or the beginning of one."""

    id: str
    text: str

    @property
    def num_bytes(self) -> int:
        return len(self.text.encode())

    @property
    def hash(self) -> str:
        """sha256, in hex, of the text: two models are compared on a document only where it is the same."""
        return hashlib.sha256(self.text.encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class DocumentScore:
    """How many bits the model needs for one document."""

    id: str
    text_hash: str
    num_bytes: int
    num_tokens: int
    num_bits: float


@dataclass(frozen=True, kw_only=True)
class BitsPerByte:
    """A domain's bits per byte and its 95 % interval over documents (equal to the value with one document)."""

    value: float
    low: float
    high: float
    num_bytes: int
    num_documents: int


def choose(documents: Iterable[tuple[str, str]], *, max_bytes: int, seed: int) -> tuple[HeldoutDocument, ...]:
    """At most `max_bytes` of text from (id, text) pairs: whole documents in an order drawn by `seed` from their ids,
    the last one cut at a character.

    Empty texts are passed over. They are returned in the order in which they came, which keeps neighbours together and
    so favours the compressors.
    """
    numbered = [(index, name, text) for index, (name, text) in enumerate(documents) if text]
    drawn = sorted(
        numbered, key=lambda entry: hashlib.sha256(f"{seed}/{entry[1]}".encode("utf-8", "surrogatepass")).digest()
    )
    chosen = []
    left = max_bytes
    for index, name, text in drawn:
        head = beginning(text, left)
        if head:
            chosen.append((index, HeldoutDocument(id=name, text=head)))
        if head != text:
            break
        left -= len(head.encode())
    return tuple(document for _, document in sorted(chosen, key=lambda entry: entry[0]))


def score_documents(
    scorer: Scorer,
    encode: Callable[[str], Sequence[int]],
    documents: Sequence[HeldoutDocument],
    progress: Callable[[int, int], None] | None = None,
) -> tuple[DocumentScore, ...]:
    """Bits of each document, in order."""
    scores = scorer.rolling([encode(document.text) for document in documents], progress)
    return tuple(
        DocumentScore(
            id=document.id,
            text_hash=document.hash,
            num_bytes=document.num_bytes,
            num_tokens=score.num_tokens,
            num_bits=bits(score.log_likelihood),
        )
        for document, score in zip(documents, scores, strict=True)
    )


def bits_per_byte(scores: Sequence[DocumentScore], *, draws: int = 1000, seed: int = 0) -> BitsPerByte:
    """Total bits over total bytes, and the interval of that ratio when documents are drawn anew with replacement."""
    sums = Clustered(
        totals=np.array([score.num_bits for score in scores], np.float64),
        weights=np.array([score.num_bytes for score in scores], np.float64),
    )
    low, high = bootstrap_interval(sums, draws=draws, seed=seed)
    num_bytes = sum(score.num_bytes for score in scores)
    return BitsPerByte(value=sums.value, low=low, high=high, num_bytes=num_bytes, num_documents=len(scores))


def baselines(documents: Sequence[HeldoutDocument]) -> dict[str, float]:
    """Bits per byte of gzip -9 and xz -9e on the same documents, joined by newlines into one file; headers and
    checksums are counted.
    """
    data = "\n".join(document.text for document in documents).encode()
    compressed = {
        "gzip-9": gzip.compress(data, 9, mtime=0),
        "xz-9e": lzma.compress(data, preset=9 | lzma.PRESET_EXTREME),
    }
    num_bytes = sum(document.num_bytes for document in documents)
    return {name: 8 * len(packed) / num_bytes for name, packed in compressed.items()}
