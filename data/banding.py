"""How near duplicates are looked for, and how many of them such a search finds."""

from dataclasses import dataclass

from data.errors import InputError

AGREEMENT_SLACK_DEVIATIONS = 4.0


@dataclass(frozen=True, kw_only=True)
class NearDuplicateSettings:
    """How near duplicates are looked for. Raises InputError if too few of them would be found."""

    threshold: float = 0.8
    ngram_words: int = 5
    bands: int = 14
    rows: int = 8

    def __post_init__(self) -> None:
        if self.expected_recall < 0.5:
            raise InputError(
                f"near duplicates: {self.bands} bands of {self.rows} rows find a pair at the threshold "
                f"{self.threshold} with probability {self.expected_recall:.5f}; "
                "raise bands or lower rows (at 14 x 8 it is 0.924 for 0.8)"
            )

    @property
    def expected_recall(self) -> float:
        """Probability that a pair at the threshold shares a band."""
        return self.recall_at(self.threshold)

    def recall_at(self, jaccard: float) -> float:
        """1 - (1 - s^r)^b: probability that a pair of Jaccard similarity s shares at least one of b bands of r rows."""
        return 1 - (1 - jaccard**self.rows) ** self.bands

    @property
    def least_agreement(self) -> int:
        """Equal signature values below which a pair is not compared exactly: four standard deviations below those of a
        pair at the threshold."""
        k = self.bands * self.rows
        deviation = (k * self.threshold * (1 - self.threshold)) ** 0.5
        return max(0, int(k * self.threshold - AGREEMENT_SLACK_DEVIATIONS * deviation))
