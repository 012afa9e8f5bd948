"""Presets of quality rules: named thresholds on the measures of data/quality.py. A value *at* a threshold is kept.

The thresholds start from those of Gopher (Rae et al. 2021, table A1), C4 (Raffel et al. 2020) and FineWeb (Penedo et
al. 2024), which hold for their own definition of a word; ours is in data/quality.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal


class Preset(StrEnum):
    """Which rules a source's text is judged by. AUTO is the domain's own for python-environment, and prose for
    everything else."""

    AUTO = "auto"
    PROSE = "prose"
    TECHNICAL = "technical"
    CODE = "code"
    NONE = "none"


@dataclass(frozen=True)
class Rule:
    """A bound on one measure. `kind` "least": a smaller value is dropped; "most": a larger one is."""

    measure: str
    kind: Literal["least", "most"]
    bound: float

    @property
    def name(self) -> str:
        return f"{self.kind} {self.measure}"


RULES: Mapping[Preset, tuple[Rule, ...]] = {
    Preset.PROSE: (
        Rule("words", "least", 30),
        Rule("words", "most", 100_000),
        Rule("mean word length", "least", 3.0),
        Rule("mean word length", "most", 10.0),
        Rule("hash marks per word", "most", 0.1),
        Rule("ellipses per word", "most", 0.1),
        Rule("share of words with a letter", "least", 0.8),
        Rule("share of lines with a bullet", "most", 0.9),
        Rule("share of lines ending in an ellipsis", "most", 0.3),
        Rule("share of repeated lines", "most", 0.3),
        Rule("share of text in repeated lines", "most", 0.2),
        Rule("share of the top 2-gram", "most", 0.20),
        Rule("share of the top 3-gram", "most", 0.18),
        Rule("share of the top 4-gram", "most", 0.16),
        Rule("share of repeated 5-grams", "most", 0.15),
        Rule("share of repeated 10-grams", "most", 0.10),
    ),
    Preset.TECHNICAL: (
        Rule("words", "least", 20),
        Rule("mean word length", "least", 2.0),
        Rule("mean word length", "most", 20.0),
        Rule("share of words with a letter", "least", 0.4),
        Rule("share of repeated lines", "most", 0.5),
        Rule("share of text in repeated lines", "most", 0.5),
        Rule("share of the top 2-gram", "most", 0.3),
        Rule("share of repeated 10-grams", "most", 0.5),
    ),
    Preset.CODE: (
        Rule("words", "least", 10),
        Rule("characters of the longest line", "most", 1000),
        Rule("mean characters of a line", "most", 100),
        Rule("share of letters and digits", "least", 0.25),
        Rule("share of words with a letter", "least", 0.3),
        Rule("share of text in repeated lines", "most", 0.7),
    ),
    Preset.NONE: (),
}

DOMAIN_PRESETS: Mapping[str, Preset] = {
    "reference": Preset.TECHNICAL,
    "code": Preset.CODE,
    "readme": Preset.TECHNICAL,
    "licence": Preset.TECHNICAL,
}
