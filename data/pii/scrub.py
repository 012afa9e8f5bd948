"""Personal data and secrets in text, replaced by fixed placeholders: `<EMAIL>`, `<IP>`, `<PHONE>`, `<CARD>`, `<IBAN>`,
`<SECRET>`.

Each kind is looked for by itself, from left to right; where matches of two kinds overlap, the kind that stands first in
`data.pii.kinds` wins. That is repeated with what came of it until nothing is found, so scrubbing twice is scrubbing
once. Only of a text that is made so that each replacement lays one more match bare something is left, behind
MOST_ROUNDS: its time would grow with the square of its length. What counts as one of a kind stands in
`data.pii.addresses`, `data.pii.numbers` and `data.pii.secrets`: shapes that are checked as far as they can be (Luhn,
mod 97, prefixes that are given out), and nothing that is kept for examples.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa

from data.pii.kinds import PiiKind
from data.reading.tables import text_buffers

ORDER = tuple(PiiKind)
MOST_ROUNDS = 32


@dataclass(frozen=True, kw_only=True)
class Scrubbed:
    """texts: the same column object if nothing was found. counts: int64[n], the replacements in each text, for each
    kind that was looked for."""

    texts: pa.LargeStringArray
    counts: dict[PiiKind, np.ndarray]


def scrub(texts: pa.LargeStringArray, kinds: Sequence[PiiKind]) -> Scrubbed:
    """Replace what is found of `kinds`."""
    from data.pii.pii_kernels import find, replace

    n = len(texts)
    numbers = [ORDER.index(kind) for kind in kinds]
    counts = {kind: np.zeros(n, np.int64) for kind in kinds}
    table, wanted = _triggers(tuple(sorted(numbers))), sum(1 << number for number in set(numbers))
    active = np.full(n, bool(numbers))
    for _ in range(MOST_ROUNDS):
        if not active.any():
            break
        values, offsets = text_buffers(texts)
        found = _without_overlaps(find(values, offsets, active, table, wanted))
        if not len(found):
            break
        rows = np.searchsorted(offsets, found[:, 0], side="right") - 1
        for kind, number in zip(kinds, numbers, strict=True):
            counts[kind] += np.bincount(rows[found[:, 2] == number], minlength=n)
        active = np.zeros(n, bool)
        active[rows] = True
        new_values, new_offsets = replace(values, offsets, found, *_placeholders())
        texts = pa.LargeStringArray.from_buffers(n, pa.py_buffer(new_offsets), pa.py_buffer(new_values))
    return Scrubbed(texts=texts, counts=counts)


def matches(text: str, kinds: Sequence[PiiKind]) -> list[tuple[PiiKind, str]]:
    """What `scrub` would replace in its first round, in the order of the text; `text` holds no lone surrogate."""
    from data.pii.pii_kernels import find

    numbers = sorted({ORDER.index(kind) for kind in kinds})
    values, offsets = text_buffers(pa.array([text], pa.large_string()))
    wanted = sum(1 << number for number in numbers)
    found = _without_overlaps(find(values, offsets, np.ones(1, bool), _triggers(tuple(numbers)), wanted))
    content = text.encode()
    return [(ORDER[kind], content[begin:end].decode()) for begin, end, kind in found.tolist()]


@cache
def _triggers(numbers: tuple[int, ...]) -> np.ndarray:
    from data.pii.pii_kernels import trigger_table

    return trigger_table(list(numbers))


@cache
def _placeholders() -> tuple[np.ndarray, np.ndarray]:
    words = [kind.placeholder.encode() for kind in ORDER]
    table = np.zeros((len(words), max(map(len, words))), np.uint8)
    for row, word in enumerate(words):
        table[row, : len(word)] = list(word)
    return table.reshape(-1), np.array([len(word) for word in words])


def _without_overlaps(found: np.ndarray) -> np.ndarray:
    """int64[m, 3]: the matches that overlap no match of a stronger kind that stays, in the order of the text. Matches
    of one kind do not overlap each other and are in that order."""
    stays = found[:0]
    for number in range(len(ORDER)):
        mine = found[found[:, 2] == number]
        if len(stays) and len(mine):
            following = np.searchsorted(stays[:, 1], mine[:, 0], side="right")  # the first that ends behind its begin
            begins = np.append(stays[:, 0], np.iinfo(np.int64).max)
            mine = mine[begins[following] >= mine[:, 1]]
        stays = np.concatenate([stays, mine])
        stays = stays[np.argsort(stays[:, 0], kind="stable")]
    return stays
