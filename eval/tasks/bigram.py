"""How far the previous token alone carries: a token-bigram model counted on training text, asked the items of a task.

A task on which it does as well as the model shows which tokens follow which, and no more.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from eval.compare.clusters import clustered
from eval.tasks.items import Item

if TYPE_CHECKING:
    from eval.subject import Subject

MOST_DOCUMENTS, SEED = 4000, 0
MOST_CHARACTERS = 2_000_000  # of all documents together, which takes less than a second
DOCUMENT_CHARACTERS = 20_000  # of one, so that a few long ones do not make up the sample


@dataclass(frozen=True, kw_only=True)
class BigramModel:
    """p(b | a) = (c(a, b) + t(a) p(b)) / (c(a) + t(a)), where t(a) is the number of different tokens after a, and p(b)
    a unigram model with one count added to each token (Witten and Bell 1991, as in Chen and Goodman 1998, section 2.4).

    pairs: int64[num_pairs], ascending: a * num_ids + b of every pair that was seen, counts: int64[num_pairs]; totals
    and followers: int64[num_ids], c(a) and t(a); unigram: float64[num_ids].
    """

    prefix_token: int
    num_tokens: int
    pairs: np.ndarray
    counts: np.ndarray
    totals: np.ndarray
    followers: np.ndarray
    unigram: np.ndarray

    @staticmethod
    def count(documents: Iterable[Sequence[int]], *, prefix_token: int, num_ids: int) -> "BigramModel":
        """Count token sequences, each after one prefix token. Ids are smaller than `num_ids`."""
        before, after = _pairs(documents, prefix_token)
        pairs, counts = np.unique(before * num_ids + after, return_counts=True)
        return BigramModel(
            prefix_token=prefix_token,
            num_tokens=len(after),
            pairs=pairs,
            counts=counts,
            totals=np.bincount(before, minlength=num_ids),
            followers=np.bincount(pairs // num_ids, minlength=num_ids),
            unigram=(np.bincount(after, minlength=num_ids) + 1) / (len(after) + num_ids),
        )

    def log_likelihoods(self, sequences: Sequence[Sequence[int]]) -> np.ndarray:
        """float64[n]: natural logarithm of the probability of each sequence after the prefix token."""
        before, after = _pairs(sequences, self.prefix_token)
        wanted = before * len(self.unigram) + after
        places = np.minimum(np.searchsorted(self.pairs, wanted), len(self.pairs) - 1)
        seen = np.where(self.pairs[places] == wanted, self.counts[places], 0) if len(self.pairs) else 0 * wanted
        followers = np.where(self.followers[before] > 0, self.followers[before], 1)  # 1: the unigram model alone
        probabilities = (seen + followers * self.unigram[after]) / (self.totals[before] + followers)
        rows = np.repeat(np.arange(len(sequences)), [len(sequence) for sequence in sequences])
        return np.bincount(rows, weights=np.log(probabilities), minlength=len(sequences))


def _pairs(sequences: Iterable[Sequence[int]], prefix_token: int) -> tuple[np.ndarray, np.ndarray]:
    """int64[n], int64[n]: every token with the one before it, the first of a sequence with the prefix token."""
    whole = [np.asarray([prefix_token, *sequence], np.int64) for sequence in sequences]
    before = np.concatenate([sequence[:-1] for sequence in whole]) if whole else np.empty(0, np.int64)
    after = np.concatenate([sequence[1:] for sequence in whole]) if whole else np.empty(0, np.int64)
    return before, after


def count_training_text(subject: "Subject") -> BigramModel | None:
    """A bigram model of a sample of the training text; None if there is none at hand."""
    texts, left = [], MOST_CHARACTERS
    for document in subject.training(MOST_DOCUMENTS, SEED):
        text = document.text[: min(DOCUMENT_CHARACTERS, left)]
        texts.append(text)
        left -= len(text)
    if left == MOST_CHARACTERS:
        return None
    return BigramModel.count(
        (subject.tokenizer.encode(text) for text in texts if text),
        prefix_token=subject.scorer.prefix_token,
        num_ids=subject.scorer.model.vocabulary_size,
    )


def bigram_score(model: BigramModel, items: Sequence[Item], subject: "Subject") -> dict[str, Any]:
    """Its accuracy on `items`, the standard error over clusters, and how many tokens it was counted on."""
    sequences = [subject.tokenizer.encode(choice) for item in items for choice in item.choices]
    scores = model.log_likelihoods(sequences)
    right, begin = [], 0
    for item in items:
        end = begin + len(item.choices)
        right.append(float(int(scores[begin:end].argmax()) == item.gold))
        begin = end
    error = clustered(right, [item.cluster for item in items]).standard_error
    return {"value": float(np.mean(right)), "standard_error": error, "training_tokens": model.num_tokens}
