"""What a vocabulary makes of text: bytes per token, fertility, by domain and by language, and the pieces that nothing
used.

Fertility is tokens per word. A word is what data/text/words.py takes for one: a run of letters and digits, and each Han
or Kana character by itself; so in scripts that are written without spaces the figure is tokens per character. The
tokens are all those of the text, separators between words included, end tokens apart.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from data.language.identification import identify
from data.order.permutation import derive_key, permute
from data.vocabulary.vocabulary import Vocabulary

DRAWN_TOGETHER = 1024  # documents whose place in the drawn order is worked out at a time


@dataclass
class Count:
    """Of some documents; tokens without end tokens."""

    documents: int = 0
    bytes: int = 0
    words: int = 0
    tokens: int = 0

    def add(self, num_bytes: int, num_words: int, num_tokens: int) -> None:
        self.documents += 1
        self.bytes += num_bytes
        self.words += num_words
        self.tokens += num_tokens

    def facts(self) -> dict[str, Any]:
        """Ratios are None where there is nothing to divide by."""
        return {
            "documents": self.documents,
            "bytes": self.bytes,
            "tokens": self.tokens,
            "bytes_per_token": round(self.bytes / self.tokens, 6) if self.tokens else None,
            "fertility": round(self.tokens / self.words, 6) if self.words else None,
        }


@dataclass(frozen=True, kw_only=True)
class TokenStatistics:
    """by_domain, by_language: counts of the documents that were measured. used: int64[size], how often each id came
    up. lossy_documents: those that did not come back from their tokens as they were.
    """

    by_domain: dict[str, Count]
    by_language: dict[str, Count]
    used: np.ndarray
    lossy_documents: int

    def unused_pieces(self, vocabulary: Vocabulary) -> list[str]:
        """The pieces that no measured text used, in the order of their ids; special and byte pieces apart."""
        return [piece for number, piece in vocabulary.ordinary_pieces().items() if self.used[number] == 0]


def measure_tokens(
    vocabulary: Vocabulary,
    texts: Mapping[str, pa.ChunkedArray],
    *,
    domain_bytes: int,
    seed: int,
    progress: Callable[[int], None] = lambda done: None,
) -> TokenStatistics:
    """Encode documents of each domain, drawn in a keyed order, until `domain_bytes` bytes are reached; decode each of
    them again. progress: is told how many domains are done.
    """
    used = np.zeros(vocabulary.size, np.int64)
    by_domain, by_language = {}, defaultdict[str, Count](Count)
    lossy_documents = 0
    for done, (domain, column) in enumerate(texts.items(), start=1):
        drawn = list(_draw(column, domain, domain_bytes, seed))
        tokens, offsets = vocabulary.encode_documents(drawn)
        used += np.bincount(tokens, minlength=vocabulary.size)
        of_domain = by_domain[domain] = Count()
        for number, (text, language) in enumerate(zip(drawn, identify(drawn), strict=True)):
            ids = tokens[offsets[number] : offsets[number + 1] - 1]
            lossy_documents += vocabulary.decode(ids) != text
            for count in (of_domain, by_language[language]):
                count.add(len(text.encode()), count_words(text), len(ids))
        progress(done)
    return TokenStatistics(
        by_domain=by_domain,
        by_language=dict(sorted(by_language.items())),
        used=used,
        lossy_documents=lossy_documents,
    )


def count_words(text: str) -> int:
    """Words of one text."""
    from data.text.words import ngram_hashes

    values = np.frombuffer(text.encode(), np.uint8)
    return ngram_hashes(values, 0, len(values), 1, np.empty(len(values) // 2 + 1, np.uint64))[0]


def _draw(column: pa.ChunkedArray, domain: str, domain_bytes: int, seed: int) -> Iterator[str]:
    left, key = domain_bytes, derive_key("tokenizer measure", seed, domain)
    for start in range(0, len(column), DRAWN_TOGETHER):
        places = np.arange(start, min(start + DRAWN_TOGETHER, len(column)))
        for index in permute(places, len(column), key):
            if left <= 0:
                return
            text = column[int(index)].as_py()
            left -= len(text.encode())
            yield text
