"""What is measured of a text, and which rule of its presets it breaks.

Words, marks and units (words and marks) are those of data/quality/word_measures.py, lines and paragraphs those of
data/quality/lines.py. A length is in characters (code points); "share of text" is of all of them. The share of the top
n-gram is that of all occurrences of the most frequent run of n units, if there are two; the share of repeated n-grams
is that of those that occurred before, without overlap. Of texts of more than 2^20 units both are taken of the first
2^20. The *kept lines* of C4 have three words between white space, none of more than 1,000 bytes, end in ``. ! ? " '``
but not in an ellipsis, and speak neither of JavaScript nor of cookies and terms of use; citations like ``[12]`` do not
count.

Every rule judges the text as it was read. C4 also edits: of an English text that breaks no rule its kept lines are
left, without citations.

Which bounds hold for a text follows from its language and script (data/quality/groups.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from data.quality.groups import Groups
from data.quality.rules import Preset, QualityRules
from data.reading.tables import text_buffers


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Of each of n texts:

    rule: int64[n], the index into `QualityRules.names` of the first rule that it breaks, or -1.
    value: float64[n], what was measured for that rule. bound: float64[n], the bound that it broke.
    judged: bool[n], False for a text of a language that no rule covers.
    texts: the texts with the presets' edits, the same object if no text is changed.
    removed_bytes: int64[n], what the edits took away; of a text that breaks a rule 0, and it is not edited.
    """

    rule: np.ndarray
    value: np.ndarray
    bound: np.ndarray
    judged: np.ndarray
    texts: pa.LargeStringArray
    removed_bytes: np.ndarray


@dataclass(frozen=True, kw_only=True)
class _Scan:
    """What one pass over n texts found: counts int64[n, NUM_COUNTS], shares float64[n, NUM_SHARES], and the lines that
    C4 keeps, as `measure_texts` writes them."""

    counts: np.ndarray
    shares: np.ndarray
    spans: np.ndarray
    span_starts: np.ndarray


def measures(texts: pa.LargeStringArray) -> dict[str, np.ndarray]:
    """Every measure of every text: float64[n] by name. A share or a mean over nothing is 0."""
    from data.quality.repetition import NUM_SHARES

    n = len(texts)
    return _measures(_scan(texts, np.full((1, NUM_SHARES), -1.0), np.zeros(n, np.int64)))


def judge(texts: pa.LargeStringArray, languages: Sequence[str] | pa.Array | None, rules: QualityRules) -> Verdict:
    """Which texts break a rule, which could not be judged, and what is left of them.

    languages: an ISO code of each text, "" where it is not known; None where none is known.
    """
    n = len(texts)
    nothing = np.zeros(n, np.int64)
    if not rules.presets or not n:
        return Verdict(
            rule=np.full(n, -1, np.int64),
            value=np.zeros(n),
            bound=np.zeros(n),
            judged=np.ones(n, bool),
            texts=texts,
            removed_bytes=nothing,
        )
    groups = Groups.of(languages, n, rules)
    scan = _scan(texts, groups.limits(), groups.of_texts)
    measured = _measures(scan)
    group = groups.by_script(measured)
    judged = groups.covered[group]
    rule, value, bound = np.full(n, -1, np.int64), np.zeros(n), np.zeros(n)
    if rules.uncovered == "drop":
        rule[~judged] = len(rules.rules)
    for index, wanted in reversed(list(enumerate(rules.rules))):
        found, bounds = measured[wanted.measure], groups.bounds[group, index]
        breaks = (found < bounds) if wanted.kind == "least" else (found > bounds)
        rule[breaks], value[breaks], bound[breaks] = index, found[breaks], bounds[breaks]
    edited = groups.english[group] & (rule == -1)
    if Preset.C4 not in rules.presets or not edited.any():
        return Verdict(rule=rule, value=value, bound=bound, judged=judged, texts=texts, removed_bytes=nothing)
    texts, removed = _with_kept_lines(texts, edited, scan)
    return Verdict(rule=rule, value=value, bound=bound, judged=judged, texts=texts, removed_bytes=removed)


def _scan(texts: pa.LargeStringArray, limits: np.ndarray, limit_rows: np.ndarray) -> _Scan:
    """limits, limit_rows: as `measure_texts` takes them."""
    from data.quality.byte_measures import count_lines
    from data.quality.characters import character_classes
    from data.quality.lines import NUM_COUNTS
    from data.quality.quality_kernels import measure_texts
    from data.quality.repetition import NUM_SHARES

    values, offsets = text_buffers(texts)
    n = len(texts)
    scan = _Scan(
        counts=np.zeros((n, NUM_COUNTS), np.int64),
        shares=np.zeros((n, NUM_SHARES)),
        spans=np.empty((count_lines(values, offsets[0], offsets[-1]) + n, 2), np.int64),
        span_starts=np.empty(n + 1, np.int64),
    )
    measure_texts(
        values,
        offsets,
        character_classes(),
        limits,
        limit_rows,
        scan.counts,
        scan.shares,
        scan.spans,
        scan.span_starts,
    )
    return scan


def _measures(scan: _Scan) -> dict[str, np.ndarray]:
    from data.quality import lines
    from data.quality import word_measures as words
    from data.quality.repetition import share_names

    count = scan.counts.T.astype(np.float64)
    bits = scan.counts[:, words.STOP_WORD_BITS]
    letters = count[words.ASCII_CHARACTERS] + count[words.OTHER_CHARACTERS] + count[words.SINGLE_CHARACTERS]
    num_units, num_words = np.maximum(count[lines.UNITS], 1), np.maximum(count[words.WORDS], 1)
    num_lines, num_paragraphs = np.maximum(count[lines.LINES], 1), np.maximum(count[lines.PARAGRAPHS], 1)
    characters, num_letters = np.maximum(count[lines.CHARACTERS], 1), np.maximum(letters, 1)
    unit_characters = np.maximum(count[words.WORD_CHARACTERS] + count[words.MARK_CHARACTERS], 1)
    return {
        "words": count[words.WORDS],
        "mean word length": count[words.WORD_CHARACTERS] / num_words,
        "share of words with a letter": count[words.LETTERED] / num_words,
        "share of units with a letter": count[words.LETTERED] / num_units,
        "hash marks per unit": count[words.HASH_MARKS] / num_units,
        "ellipses per unit": count[words.ELLIPSES] / num_units,
        "distinct stop words": np.bitwise_count(bits).astype(np.float64),
        "share of letters and digits": letters / unit_characters,
        "share of letters beyond ASCII": 1 - count[words.ASCII_CHARACTERS] / num_letters,
        "share of letters without word spaces": count[words.SINGLE_CHARACTERS] / num_letters,
        "mean characters of a line": count[lines.LINE_CHARACTERS] / num_lines,
        "characters of the longest line": count[lines.LONGEST_LINE],
        "share of lines ending in punctuation": count[lines.TERMINAL_LINES] / num_lines,
        "share of lines ending in an ellipsis": count[lines.ELLIPSIS_LINES] / num_lines,
        "share of lines with a bullet": count[lines.BULLET_LINES] / num_lines,
        "share of short lines": count[lines.SHORT_LINES] / num_lines,
        "newlines per unit": count[lines.NEWLINES] / num_units,
        "share of repeated lines": count[lines.REPEATED_LINES] / num_lines,
        "share of text in repeated lines": count[lines.REPEATED_LINE_CHARACTERS] / characters,
        "share of repeated paragraphs": count[lines.REPEATED_PARAGRAPHS] / num_paragraphs,
        "share of text in repeated paragraphs": count[lines.REPEATED_PARAGRAPH_CHARACTERS] / characters,
        "sentences in kept lines": count[lines.KEPT_SENTENCES],
        "kept lines with a curly bracket": count[lines.KEPT_CURLY_BRACKETS],
        "kept lines with lorem ipsum": count[lines.KEPT_LOREM_IPSUM],
        **{name: scan.shares[:, column] for column, name in enumerate(share_names())},
    }


def _with_kept_lines(
    texts: pa.LargeStringArray, edited: np.ndarray, scan: _Scan
) -> tuple[pa.LargeStringArray, np.ndarray]:
    """(the texts, those of `edited` (bool[n]) with only the lines that C4 keeps; int64[n]: bytes less of each).

    The texts are the same object if nothing changes.
    """
    from data.quality.quality_kernels import write_kept_lines

    values, offsets = text_buffers(texts)
    out, out_offsets = np.empty(offsets[-1] - offsets[0], np.uint8), np.empty(len(offsets), np.int64)
    write_kept_lines(values, offsets, edited, scan.spans, scan.span_starts, out, out_offsets)
    removed = np.diff(offsets) - np.diff(out_offsets)
    if not removed.any():
        return texts, removed
    written = pa.py_buffer(out_offsets), pa.py_buffer(out[: out_offsets[-1]])
    return pa.LargeStringArray.from_buffers(len(texts), *written), removed
