"""Decontamination: how much of a training text also stands in text that a model will be judged on.

Two measures over word n-grams (13 words, as in Brown et al. 2020, appendix C):

* the share of the *training text's* n-grams that stand in the judged text: a copy of it;
* the largest share of *one judged text's* n-grams that stand in the training text: a held-out document or an
  evaluation item inside a long document, where the first share is small.

An item of fewer than n words has no n-gram. If it has at least `short_words`, it is looked for as a whole, words in a
row: its share is 1 or 0. A shorter one would be found in innocent text and is not looked for; the number of those is
reported for each task.

What many held-out pages of one site share is a template and not the text of any. With `template_texts`, an n-gram that
stands in more items than this counts for the first measure only: else one short page would cost a whole site.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa

from data.heldout.judged_item import JudgedItem
from data.reading.tables import text_buffers

NGRAM_WORDS = 13
SHORT_WORDS = 8
BITS_PER_RUN = 16  # 1 of 16 runs of words that judged text does not hold is looked up
MOST_OWNERS = 1 << 20  # pairs of a run and an item that are looked at together, in about 100 bytes each
SETTINGS_FILE = "settings.json"


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """Of each training text. text_share: float64[n], 0 where there are no n-grams. item_share: float64[n]. item:
    int64[n], the item it belongs to, the first of several; or -1."""

    text_share: np.ndarray
    item_share: np.ndarray
    item: np.ndarray


@dataclass(frozen=True, kw_only=True)
class _Runs:
    """Runs of words of every text of a column: of text d, hashes[starts[d]:starts[d + 1]]. words: int64[n]."""

    hashes: np.ndarray
    starts: np.ndarray
    words: np.ndarray


@dataclass(frozen=True, kw_only=True)
class _Tables:
    """Where to look. keys: uint64[k], distinct runs of words. owners[first[k]:first[k + 1]]: the items that hold run k.
    sizes: int64[number of items], how many runs each has. bits, places: of `data.heldout.overlap_kernels`."""

    keys: np.ndarray
    first: np.ndarray
    owners: np.ndarray
    sizes: np.ndarray
    bits: np.ndarray
    places: np.ndarray
    lengths: np.ndarray


class JudgedText:
    """Texts that a model will be judged on, ready to be looked for.

    tasks, names: of each item. too_short: bool[number of items].
    """

    def __init__(
        self,
        items: Iterable[JudgedItem],
        *,
        ngram_words: int = NGRAM_WORDS,
        short_words: int = SHORT_WORDS,
        template_texts: int | None = None,
    ) -> None:
        """short_words: from so many words on an item without an n-gram is looked for as a whole. template_texts: an
        n-gram of more items than this is nobody's; None: there is no such limit."""
        self.ngram_words, self.short_words = ngram_words, min(short_words, ngram_words)
        self.tasks: list[str] = []
        self.names: list[str] = []
        texts = []
        for item in items:
            self.tasks.append(item.task)
            self.names.append(item.name)
            texts.append(item.text)
        runs = _hash(pa.array(texts, pa.large_string()), self.short_words)
        self._tables = _tables(runs, self.ngram_words, self.short_words, template_texts)

    @property
    def too_short(self) -> np.ndarray:
        return self._tables.sizes == 0

    def by_task(self) -> dict[str, dict[str, int]]:
        """Task -> {"items", "too_short"}: how many there are, and how many of them are too short to be looked for."""
        found: dict[str, dict[str, int]] = {}
        for task, short in zip(self.tasks, self.too_short.tolist(), strict=True):
            entry = found.setdefault(task, {"items": 0, "too_short": 0})
            entry["items"] += 1
            entry["too_short"] += short
        return dict(sorted(found.items()))

    def overlap(self, texts: pa.LargeStringArray) -> Overlap:
        """How much of each text is judged text."""
        return overlaps([self], texts)[0]

    def save(self, folder: Path) -> None:
        """Write the tables into a folder, for `load` in other processes."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, array in vars(self._tables).items():
            np.save(folder / f"{name}.npy", array, allow_pickle=False)
        settings = {
            "ngram_words": self.ngram_words,
            "short_words": self.short_words,
            "tasks": self.tasks,
            "names": self.names,
        }
        (folder / SETTINGS_FILE).write_text(json.dumps(settings), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> "JudgedText":
        """What `save` wrote, memory-mapped, and opened once by each process."""
        status = (folder / SETTINGS_FILE).stat()
        return _load(folder.absolute(), status.st_ino, status.st_mtime_ns)

    def _overlap(self, runs: _Runs) -> Overlap:
        from data.heldout.overlap_kernels import find_runs

        t = self._tables
        n = len(runs.words)
        matches = np.empty(n, np.int64)
        found = find_runs(runs.hashes, runs.starts, self.short_words, t.lengths, t.bits, t.keys, t.places, matches)
        totals = runs.words - self.ngram_words + 1
        text, key = np.divmod(np.unique(found[:, 0] * len(t.keys) + found[:, 1]), max(1, len(t.keys)))
        share, item = np.zeros(n), np.full(n, -1, np.int64)
        for part in _parts(text, t.first[key + 1] - t.first[key]):
            self._set_largest_share(text[part], key[part], share, item)
        return Overlap(text_share=matches / np.maximum(totals, 1), item_share=share, item=item)

    def _set_largest_share(
        self, text: np.ndarray, key: np.ndarray, best_share: np.ndarray, best_item: np.ndarray
    ) -> None:
        """Sets, of each text, the largest share of one item's runs that are in it, and that item. text, key: int64[m]
        of each run that was found, distinct, all of these texts."""
        t = self._tables
        count = t.first[key + 1] - t.first[key]
        texts = np.repeat(text, count)
        within = np.arange(len(texts)) - np.repeat(np.cumsum(count) - count, count)
        items = t.owners[np.repeat(t.first[key], count) + within]
        pairs, found = np.unique(texts * len(t.sizes) + items, return_counts=True)
        texts, items = np.divmod(pairs, max(1, len(t.sizes)))
        shares = found / t.sizes[items]
        order = np.lexsort((-items, shares, texts))
        last = order[np.append(texts[order][1:] != texts[order][:-1], True)[: len(order)]]
        best_share[texts[last]], best_item[texts[last]] = shares[last], items[last]


def overlaps(judged: Sequence[JudgedText], texts: pa.LargeStringArray) -> list[Overlap]:
    """How much of each text stands in each of `judged`; the texts are read once for all with the same settings."""
    runs: dict[int, _Runs] = {}
    found = []
    for some in judged:
        if some.short_words not in runs:
            runs[some.short_words] = _hash(texts, some.short_words)
        found.append(some._overlap(runs[some.short_words]))
    return found


def _hash(texts: pa.LargeStringArray, num_words: int) -> _Runs:
    from data.heldout.overlap_kernels import hash_runs

    values, offsets = text_buffers(texts)
    hashes = np.empty((offsets[-1] - offsets[0]) // 2 + len(texts) + 1, np.uint64)
    starts, words = np.empty(len(texts) + 1, np.int64), np.empty(len(texts), np.int64)
    hash_runs(values, offsets, num_words, hashes, starts, words)
    return _Runs(hashes=hashes[: starts[-1]], starts=starts, words=words)


def _parts(text: np.ndarray, num_owners: np.ndarray) -> Iterator[slice]:
    """Slices of runs that were found, whole texts each, with at most MOST_OWNERS owners or one text: many texts may
    hold what all items share. text: int64[m], ascending. num_owners: int64[m]."""
    ends = np.append(np.flatnonzero(text[1:] != text[:-1]) + 1, len(text)) if len(text) else np.zeros(0, np.int64)
    owners = np.append(0, np.cumsum(num_owners))[ends]
    begin = done = 0
    for number, end in enumerate(ends.tolist()):
        if number + 1 == len(ends) or owners[number + 1] - done > MOST_OWNERS:
            yield slice(begin, end)
            begin, done = end, owners[number]


def _tables(runs: _Runs, ngram_words: int, short_words: int, template_texts: int | None) -> _Tables:
    from data.heldout.overlap_kernels import bit_table, longer_runs, place_table

    found, ends = [], [np.zeros(0, np.uint64)]
    for d, words in enumerate(runs.words.tolist()):
        mine = runs.hashes[runs.starts[d] : runs.starts[d + 1]]
        length = min(words, ngram_words)
        found.append(np.unique(longer_runs(mine, short_words, length)) if words >= short_words else mine)
        if words >= short_words:
            ends += [mine[: words - length + 1], mine[length - short_words :]]
    sizes = np.array([len(keys) for keys in found], np.int64)
    every = np.concatenate([np.zeros(0, np.uint64), *found])
    order = np.argsort(every, kind="stable")
    keys, count = np.unique(every, return_counts=True)
    owners = np.repeat(np.arange(len(sizes)), sizes)[order]
    if template_texts is not None:
        owned = count <= template_texts
        owners, count = owners[np.repeat(owned, count)], np.where(owned, count, 0)
        sizes = np.bincount(owners, minlength=len(sizes))
    assert len(keys) < 1 << 31, "places are int32"
    of_ends = np.unique(np.concatenate(ends))
    shorter = np.unique(runs.words[(runs.words >= short_words) & (runs.words < ngram_words)])
    return _Tables(
        keys=keys,
        first=np.append(0, np.cumsum(count)).astype(np.int64),
        owners=owners,
        sizes=sizes,
        bits=bit_table(of_ends, _power_of_two(BITS_PER_RUN * len(of_ends))),
        places=place_table(keys, _power_of_two(2 * len(keys))),
        lengths=np.append(shorter, ngram_words).astype(np.int64),
    )


def _power_of_two(least: int) -> int:
    """The smallest one that is at least `least`, and at least 64."""
    return 1 << max(6, (least - 1).bit_length())


@lru_cache(maxsize=8)
def _load(folder: Path, inode: int, modified_ns: int) -> JudgedText:
    """inode, modified_ns: of the file that was written last, so that a folder that was replaced is read again."""
    judged = JudgedText.__new__(JudgedText)
    settings = json.loads((folder / SETTINGS_FILE).read_text(encoding="utf-8"))
    judged.ngram_words, judged.short_words = settings["ngram_words"], settings["short_words"]
    judged.tasks, judged.names = settings["tasks"], settings["names"]
    mapped = {
        name: np.asarray(np.load(folder / f"{name}.npy", mmap_mode="c", allow_pickle=False))
        for name in _Tables.__dataclass_fields__
    }
    judged._tables = _Tables(**mapped)
    return judged
