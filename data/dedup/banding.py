"""How near duplicates are looked for, and how many of them such a search finds.

Documents that agree in all `rows` values of one of `bands` bands of their signatures are candidates (Leskovec,
Rajaraman, Ullman, Mining of Massive Datasets, ch. 3.4). Candidates are compared exactly afterwards, so a search with
fewer rows removes no document that it should not; it costs comparisons. The rule: of all numbers of rows for which
the wanted recall takes at most MOST_HASHES hashes, the largest, with as few bands as that recall takes.
"""

from dataclasses import dataclass, field
from typing import Self

from data.errors import InputError

MOST_HASHES = 128
LEAST_RECALL = 0.5
AGREEMENT_SLACK_DEVIATIONS = 4.0


@dataclass(frozen=True, kw_only=True)
class NearDuplicateSettings:
    """How near duplicates are looked for. Raises InputError if too few of them would be found."""

    threshold: float = 0.8
    ngram_words: int = 5
    recall: float = 0.99
    bands: int = field(init=False)
    rows: int = field(init=False)

    def __post_init__(self) -> None:
        _check(self.threshold, self.ngram_words)
        bands, rows = bands_and_rows(self.threshold, self.recall)
        object.__setattr__(self, "bands", bands)
        object.__setattr__(self, "rows", rows)

    @classmethod
    def explicit(cls, *, bands: int, rows: int, threshold: float = 0.8, ngram_words: int = 5) -> Self:
        """Settings with bands and rows as given; `recall` is what is expected of them."""
        _check(threshold, ngram_words)
        if bands < 1 or rows < 1:
            raise InputError(f"near duplicates: {bands} bands of {rows} rows are none; there is at least one of each")
        recall = expected_recall(threshold, bands, rows)
        if recall < LEAST_RECALL:
            raise InputError(
                f"near duplicates: {bands} bands of {rows} rows find a pair at the threshold {threshold:g} with "
                f"probability {recall:.5f}; raise bands or lower rows (at 16 x 6 it is 0.992 for 0.8)"
            )
        settings = object.__new__(cls)  # without the rule, which not every threshold can meet
        values = {"threshold": threshold, "ngram_words": ngram_words, "recall": recall, "bands": bands, "rows": rows}
        for name, value in values.items():
            object.__setattr__(settings, name, value)
        return settings

    @property
    def num_hashes(self) -> int:
        return self.bands * self.rows

    @property
    def expected_recall(self) -> float:
        """Probability that a pair at the threshold shares a band."""
        return self.recall_at(self.threshold)

    def recall_at(self, jaccard: float) -> float:
        return expected_recall(jaccard, self.bands, self.rows)

    @property
    def least_agreement(self) -> int:
        """Equal signature values below which a pair is not compared exactly: four standard deviations below those of a
        pair at the threshold."""
        k = self.num_hashes
        deviation = (k * self.threshold * (1 - self.threshold)) ** 0.5
        return max(0, int(k * self.threshold - AGREEMENT_SLACK_DEVIATIONS * deviation))

    def describe(self) -> str:
        """One line for a log."""
        return (
            f"near duplicates: {self.bands} bands of {self.rows} rows are expected to find {self.expected_recall:.4f} "
            f"of the pairs at {self.threshold:g}"
        )


def _check(threshold: float, ngram_words: int) -> None:
    if not 0 < threshold <= 1 or ngram_words < 1:
        raise InputError(
            f"near duplicates: the threshold must be above 0 and at most 1, and an n-gram have a word; "
            f"these are {threshold:g} and {ngram_words}"
        )


def expected_recall(jaccard: float, bands: int, rows: int) -> float:
    """1 - (1 - s^r)^b: probability that a pair of Jaccard similarity s shares at least one of b bands of r rows."""
    return 1 - (1 - jaccard**rows) ** bands


def bands_and_rows(threshold: float, recall: float) -> tuple[int, int]:
    """The rule of this module. Raises InputError if no number of rows is within the budget."""
    if not LEAST_RECALL <= recall < 1:
        raise InputError(
            f"near duplicates: a recall of {recall:g} cannot be asked for; it is at least {LEAST_RECALL:g} and below 1"
        )
    for rows in range(MOST_HASHES, 0, -1):
        for bands in range(1, MOST_HASHES // rows + 1):
            if expected_recall(threshold, bands, rows) >= recall:
                return bands, rows
    raise InputError(
        f"near duplicates: a pair at the threshold {threshold:g} is not found with probability {recall:g} by "
        f"{MOST_HASHES} hashes; raise the threshold or lower the recall"
    )
