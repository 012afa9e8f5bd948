"""The quality gate: which forms may ship. Plain arithmetic, so that every verdict can be tested without a model."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class GreedyComparison:
    """Next tokens of a form along the greedy sequences of transformers in float32, where both were given the same
    tokens before.

    `excluded`: positions where the two best logits differ by less than the margin, so that rounding decides.
    """

    compared: int
    equal: int
    excluded: int

    @property
    def same(self) -> bool:
        """Every token that could be compared is equal, and at least one could."""
        return 0 < self.compared == self.equal


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What was found out about one form. `exact`: it holds the same float32 weights, so it must give the same
    tokens.
    """

    bits_per_byte: Mapping[str, float]
    greedy: GreedyComparison
    exact: bool
    tokenizer_differences: tuple[str, ...] = field(default=())


def increases(reference: Mapping[str, float], measured: Mapping[str, float]) -> dict[str, float]:
    """By which share of the reference each domain's bits per byte rise; negative where they fall."""
    assert reference.keys() == measured.keys()
    return {domain: measured[domain] / reference[domain] - 1 for domain in reference}


def objections(reference: Mapping[str, float], measured: Measured, max_increase: float) -> list[str]:
    """Why a form must not ship, one sentence each; empty if it may. A value that is not finite is always an
    objection.
    """
    found = []
    for domain, increase in increases(reference, measured.bits_per_byte).items():
        value = measured.bits_per_byte[domain]
        if not math.isfinite(value) or not value <= reference[domain] * (1 + max_increase):
            found.append(
                f"bits per byte on {domain} rise by {increase:.2%}, from {reference[domain]:.4f} to "
                f"{value:.4f}; allowed are {max_increase:.2%}"
            )
    if measured.exact and not measured.greedy.same:
        wrong, compared = measured.greedy.compared - measured.greedy.equal, measured.greedy.compared
        found.append(
            f"{wrong} of {compared} greedy tokens differ from those of transformers in float32"
            if compared
            else "no greedy token could be compared with those of transformers in float32: rounding decides on all of "
            f"{measured.greedy.excluded}"
        )
    found += [f"the tokenizer differs: {difference}" for difference in measured.tokenizer_differences]
    return found
