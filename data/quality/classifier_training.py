"""Training a quality classifier from good and bad texts, and measuring it on those that were held out.

A tenth of the texts is held out by a hash of the text, so equal texts stand on one side, whatever file they are in and
in whatever order. Both classes weigh the same, however many texts they have. The same texts in the same order and the
same seed give the same classifier.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from data.errors import InputError
from data.quality.classifier import MAX_BITS, MIN_BITS, Classifier
from data.reading.tables import text_buffers
from data.text.text_sample import text_hashes

HELD_OUT_ONE_IN = 10
LEAST_HELD_OUT = 10


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """recall: share of the good texts that the reported threshold keeps. rate: of AdaGrad's steps. bits: 2**bits
    buckets of features."""

    recall: float = 0.9
    epochs: int = 5
    rate: float = 1.0
    bits: int = 20
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.recall <= 1:
            raise InputError(f"recall {self.recall}: choose more than 0 and at most 1")
        if self.epochs < 1 or self.rate <= 0:
            raise InputError(f"epochs {self.epochs}, rate {self.rate}: choose at least 1 and more than 0")
        if not MIN_BITS <= self.bits <= MAX_BITS:
            raise InputError(f"bits {self.bits}: choose {MIN_BITS} to {MAX_BITS}")


def train_classifier(
    good: pa.LargeStringArray, bad: pa.LargeStringArray, settings: TrainingSettings
) -> tuple[Classifier, list[float]]:
    """(classifier, mean loss in bits of each epoch). Its report holds the counts of texts, `auc`, and `threshold`,
    `recall`, `precision`: of the texts that score at least the threshold.

    Texts that stand in both sets say nothing and are left out; of equal texts one is used. Raises InputError if a class
    has too few texts.
    """
    from data.quality.classifier_kernels import train

    good_hashes, bad_hashes = text_hashes(good), text_hashes(bad)
    in_both = np.intersect1d(good_hashes, bad_hashes)
    parts, labels, held = [], [], []
    counts: dict[str, Any] = {"texts_in_both": len(in_both)}
    for name, texts, hashes in (("good", good, good_hashes), ("bad", bad, bad_hashes)):
        kept = np.sort(np.unique(hashes, return_index=True)[1])
        kept = kept[~np.isin(hashes[kept], in_both)]
        parts.append(texts.take(pa.array(kept)))
        labels.append(np.full(len(kept), name == "good"))
        held.append(hashes[kept] % np.uint64(HELD_OUT_ONE_IN) == 0)
        counts |= {f"{name}_texts": int((~held[-1]).sum()), f"{name}_held_out": int(held[-1].sum())}
        if held[-1].sum() < LEAST_HELD_OUT:
            raise InputError(
                f"{len(kept)} different {name} texts leave {held[-1].sum()} to measure by; give some hundred at least"
            )
    texts = pa.concat_arrays(parts)
    is_good, is_held = np.concatenate(labels), np.concatenate(held)
    weights, squares = np.zeros(1 << settings.bits, np.float32), np.zeros(1 << settings.bits, np.float32)
    values, offsets = text_buffers(texts)
    places = np.flatnonzero(~is_held)
    class_weights = len(places) / (2 * np.bincount(is_good[places].astype(np.int64), minlength=2))
    bias = np.zeros(2)
    losses = []
    for epoch in range(settings.epochs):
        order = places[_shuffled(len(places), settings.seed, epoch)]
        losses.append(
            train(values, offsets, is_good, order, settings.rate, class_weights, settings.bits, weights, squares, bias)
        )
    unmeasured = Classifier(bits=settings.bits, bias=float(bias[0]), weights=weights, report={})
    scores = unmeasured.score(texts.filter(pa.array(is_held)))
    report = counts | measure(scores, is_good[is_held], settings.recall)
    return Classifier(bits=settings.bits, bias=float(bias[0]), weights=weights, report=report), losses


def measure(scores: np.ndarray, is_good: np.ndarray, wanted_recall: float) -> dict[str, float]:
    """scores: float32[n], is_good: bool[n], with both classes. auc: the probability that a good text scores higher than
    a bad one, ties counting half. threshold: the largest score that keeps at least the wanted share of good texts."""
    good, bad = np.sort(scores[is_good]), np.sort(scores[~is_good])
    below, up_to = np.searchsorted(bad, good, "left"), np.searchsorted(bad, good, "right")
    threshold = good[len(good) - int(np.ceil(wanted_recall * len(good)))]
    kept_good, kept_bad = int((good >= threshold).sum()), int((bad >= threshold).sum())
    return {
        "auc": round(float((below + up_to).sum() / 2 / (len(good) * len(bad))), 6),
        "threshold": float(threshold),
        "recall": round(kept_good / len(good), 6),
        "precision": round(kept_good / (kept_good + kept_bad), 6),
    }


def _shuffled(n: int, seed: int, epoch: int) -> np.ndarray:
    """int64[n]: the order of an epoch."""
    return np.random.Generator(np.random.PCG64((seed, epoch))).permutation(n)
