"""What is measured of a text, and which rule of a preset it breaks.

A word is a run of characters that are not ASCII white space. Word length is in characters; a Hangul syllable counts as
two. Text whose letters are mostly of a script without spaces between words (Chinese, Japanese, Thai, ...) has no words
in this sense: it is kept and counted as not judged.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from data.quality_rules import RULES, Preset
from data.tables import text_buffers

SPACELESS_SHARE = 0.3
NOT_JUDGED = "script without word spaces"
TOP_NGRAMS = (2, 3, 4)
REPEATED_NGRAMS = (5, 10)


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
