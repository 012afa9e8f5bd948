"""Quality rules: what is measured of a text, and presets of named thresholds.

Measures follow the rules of Gopher (Rae et al. 2021, table A1), C4 (Raffel et al. 2020) and FineWeb (Penedo et al.
2024). Their thresholds hold for their own definition of a word, so ours is stated: a run of characters that are not
ASCII white space. Word length is in characters; a Hangul syllable counts as two.

A value *at* a threshold is kept. Text whose letters are mostly of a script without spaces between words (Chinese,
Japanese, Thai, ...) has no words in this sense: it is kept and counted as not judged.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

import numpy as np
import pyarrow as pa

from data.documents import text_buffers

SPACELESS_SHARE = 0.3
NOT_JUDGED = "script without word spaces"
TOP_NGRAMS = (2, 3, 4)
REPEATED_NGRAMS = (5, 10)


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


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Of each text: `rule` int64[n], the index of the first rule of the preset that it breaks, or -1; `value`
    float64[n], what was measured for that rule; `judged` bool[n], False where word rules have no meaning."""

    rule: np.ndarray
    value: np.ndarray
    judged: np.ndarray


def measures(texts: pa.LargeStringArray) -> dict[str, np.ndarray]:
    """Every measure of every text: float64[n] by name. A share or a mean over nothing is 0."""
    from data import quality_kernels

    values, offsets = text_buffers(texts)
    n = len(texts)
    words, lines = np.zeros((n, 8), np.int64), np.zeros((n, 9), np.int64)
    quality_kernels.words(values, offsets, words)
    quality_kernels.lines(values, offsets, lines)
    repetition = np.zeros((n, len(TOP_NGRAMS) + len(REPEATED_NGRAMS)))
    quality_kernels.repetition(values, offsets, np.array(TOP_NGRAMS), np.array(REPEATED_NGRAMS), repetition)
    num_words, num_lines = np.maximum(words[:, 0], 1), np.maximum(lines[:, 0], 1)
    line_characters = np.maximum(lines[:, 1], 1)
    return {
        "words": words[:, 0].astype(float),
        "mean word length": words[:, 1] / num_words,
        "share of words with a letter": words[:, 2] / num_words,
        "hash marks per word": words[:, 3] / num_words,
        "ellipses per word": words[:, 4] / num_words,
        "share of letters and digits": words[:, 6] / np.maximum(words[:, 5], 1),
        "share of letters without word spaces": words[:, 7] / np.maximum(words[:, 6], 1),
        "lines": lines[:, 0].astype(float),
        "mean characters of a line": lines[:, 1] / num_lines,
        "characters of the longest line": lines[:, 2].astype(float),
        "share of lines ending in punctuation": lines[:, 3] / num_lines,
        "share of lines ending in an ellipsis": lines[:, 4] / num_lines,
        "share of lines with a bullet": lines[:, 5] / num_lines,
        "share of short lines": lines[:, 6] / num_lines,
        "share of repeated lines": lines[:, 7] / num_lines,
        "share of text in repeated lines": lines[:, 8] / line_characters,
        **{f"share of the top {n}-gram": repetition[:, i] for i, n in enumerate(TOP_NGRAMS)},
        **{f"share of repeated {n}-grams": repetition[:, len(TOP_NGRAMS) + i] for i, n in enumerate(REPEATED_NGRAMS)},
    }


def judge(texts: pa.LargeStringArray, preset: Preset) -> Verdict:
    """Which texts break a rule of the preset, and which could not be judged."""
    n = len(texts)
    rule, value, judged = np.full(n, -1, np.int64), np.zeros(n), np.ones(n, bool)
    if preset is Preset.NONE:
        return Verdict(rule=rule, value=value, judged=judged)
    measured = measures(texts)
    judged = measured["share of letters without word spaces"] <= SPACELESS_SHARE
    for index, bound in reversed(list(enumerate(RULES[preset]))):
        found = measured[bound.measure]
        breaks = judged & ((found < bound.bound) if bound.kind == "least" else (found > bound.bound))
        rule[breaks], value[breaks] = index, found[breaks]
    return Verdict(rule=rule, value=value, judged=judged)
