"""Decontamination: how much of a training text also stands in text that a model will be judged on.

Two measures over word n-grams (13 words, as in Brown et al. 2020, appendix C):

* the share of the *training text's* n-grams that stand in the judged text: a copy of it;
* the largest share of *one judged text's* n-grams that stand in the training text: a held-out document or an
  evaluation item inside a long document, where the first share is small.

A text or an item of fewer than n words has no n-gram and cannot be recognised; their number is reported.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from data.tables import text_buffers

NGRAM_WORDS = 13


@dataclass(frozen=True)
class Overlap:
    """Of each training text. text_share: float64[n], 0 where there are no n-grams. item_share: float64[n]. item:
    int64[n], the item it belongs to, or -1."""

    text_share: np.ndarray
    item_share: np.ndarray
    item: np.ndarray


class JudgedText:
    """N-grams of texts that a model will be judged on."""

    def __init__(self, texts: Iterable[str], *, ngram_words: int = NGRAM_WORDS, as_items: bool) -> None:
        """`as_items`: look for each text inside longer ones too."""
        from data.overlap_kernels import build_table
        from data.words import hash_texts

        grams = hash_texts([text.encode() for text in texts], ngram_words)
        self.ngram_words = ngram_words
        self.num_texts = len(grams)
        self.num_too_short = sum(not len(found) for found in grams)
        every = np.concatenate(grams) if grams else np.zeros(0, np.uint64)
        distinct = np.unique(every)
        self.num_ngrams = len(distinct)
        self._table = build_table(distinct[distinct != 0])
        self._items = _Items(grams, every) if as_items else None

    def overlap(self, texts: pa.LargeStringArray) -> Overlap:
        """How much of each text is judged text."""
        from data.overlap_kernels import count_matches, matching_grams

        n = len(texts)
        values, offsets = text_buffers(texts)
        matches, totals = np.empty(n, np.int64), np.empty(n, np.int64)
        count_matches(values, offsets, self.ngram_words, self._table, matches, totals)
        share = matches / np.maximum(totals, 1)
        if self._items is None or not matches.any():
            return Overlap(share, np.zeros(n), np.full(n, -1, np.int64))
        text, gram = matching_grams(values, offsets, self.ngram_words, self._table, matches)
        return Overlap(share, *self._items.largest_share(n, text, gram))


class _Items:
    """Which item an n-gram belongs to; one n-gram may belong to several."""

    def __init__(self, grams: Sequence[np.ndarray], every: np.ndarray) -> None:
        self._sizes = np.array([len(found) for found in grams], np.int64)
        owners = np.repeat(np.arange(len(grams)), self._sizes)
        order = np.argsort(every, kind="stable")
        self._grams, self._owners = every[order], owners[order]

    def largest_share(self, num_texts: int, text: np.ndarray, gram: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(float64[num_texts], int64[num_texts]): the largest share of one item's n-grams among the matches of each
        text, and that item."""
        order = np.lexsort((gram, text))
        text, gram = text[order], gram[order]
        repeated = np.zeros(len(text), bool)
        repeated[1:] = (text[1:] == text[:-1]) & (gram[1:] == gram[:-1])
        text, gram = text[~repeated], gram[~repeated]
        first = np.searchsorted(self._grams, gram, side="left")
        count = np.searchsorted(self._grams, gram, side="right") - first
        texts = np.repeat(text, count)
        within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        items = self._owners[np.repeat(first, count) + within]
        pairs, found = np.unique(texts * len(self._sizes) + items, return_counts=True)
        texts, items = np.divmod(pairs, len(self._sizes))
        shares = found / self._sizes[items]
        best_share, best_item = np.zeros(num_texts), np.full(num_texts, -1, np.int64)
        order = np.lexsort((-items, shares, texts))
        last = order[np.append(texts[order][1:] != texts[order][:-1], True)[: len(order)]]
        best_share[texts[last]], best_item[texts[last]] = shares[last], items[last]
        return best_share, best_item
