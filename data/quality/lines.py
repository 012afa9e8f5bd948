"""Kernel that measures texts line by line, and the one that writes texts with only the lines that C4 keeps.

A *line* is what stands between newlines, without the white space at its ends; blank lines do not count. A *paragraph*
is a run of lines without a blank one between them.
"""

from typing import Any

import numpy as np

from data.quality.byte_measures import hash_text, inlined, is_new, line_end, mix
from data.quality.characters import ELLIPSIS, ENDS_SENTENCE, NUM_CLASSES_BELOW
from data.quality.phrases import (
    CITATION,
    CURLY_BRACKET,
    JAVASCRIPT,
    LONG_WORD,
    LOREM_IPSUM,
    POLICY,
    citation_end,
)
from data.quality.word_measures import NUM_TOTALS, scan_line
from data.text.characters import decode, is_space
from data.text.inner import inner

(
    UNITS,
    CHARACTERS,
    NEWLINES,
    LINES,
    LINE_CHARACTERS,
    LONGEST_LINE,
    TERMINAL_LINES,
    ELLIPSIS_LINES,
    BULLET_LINES,
    SHORT_LINES,
    REPEATED_LINES,
    REPEATED_LINE_CHARACTERS,
    PARAGRAPHS,
    REPEATED_PARAGRAPHS,
    REPEATED_PARAGRAPH_CHARACTERS,
    KEPT_LINES,
    KEPT_SENTENCES,
    KEPT_CURLY_BRACKETS,
    KEPT_LOREM_IPSUM,
    NUM_COUNTS,
) = range(NUM_TOTALS, NUM_TOTALS + 20)

SHORT_LINE_CHARACTERS = 30
LEAST_RUNS = 3
BULLETS = (0x2D, 0x2022)
_int64: Any = np.int64
_LINE, _PARAGRAPH = np.uint64(0x8CB92BA72F3D8DD7), np.uint64(0xAEF17502108EF2D9)


@inlined
def _last(values: np.ndarray, begin: int, end: int) -> int:
    """The last code point of values[begin:end], which is not empty."""
    i = end - 1
    while i > begin and values[i] & 0xC0 == 0x80:
        i -= 1
    return decode(values, i)[0]


@inlined
def _ends_in_ellipsis(values: np.ndarray, begin: int, end: int, last: int) -> bool:
    return last == ELLIPSIS or end - begin >= 3 and last == 46 and values[end - 2] == 46 and values[end - 3] == 46


@inner
def _end_without_citations(values: np.ndarray, begin: int, end: int) -> int:
    """Where the line values[begin:end] ends without the citations at its end and the white space before them."""
    i = last = begin
    while i < end:
        after = citation_end(values, i, end) if values[i] == 91 else i
        if after > i:
            i = after
            continue
        i += 1
        if not is_space(values[i - 1]):
            last = i
    return last


@inlined
def _c4_keeps(values: np.ndarray, begin: int, end: int, flags: int, runs: int) -> bool:
    """Whether a line ends like a sentence, has words enough and none that is too long."""
    if runs < LEAST_RUNS or flags & LONG_WORD:
        return False
    if flags & CITATION:
        end = _end_without_citations(values, begin, end)
        if end == begin:
            return False
    last = values[end - 1]
    if last == 46:
        return not (end - begin >= 3 and values[end - 2] == 46 and values[end - 3] == 46)
    return last == 33 or last == 63 or last == 34 or last == 39


@inner
def measure_lines(
    values: np.ndarray,
    begin: int,
    end: int,
    classes: np.ndarray,
    hashes: np.ndarray,
    ends: np.ndarray,
    seen: np.ndarray,
    spans: np.ndarray,
    counts: np.ndarray,
) -> None:
    """Counts of the text values[begin:end].

    hashes, ends: as in `scan_line`; the first min(counts[UNITS], len(hashes)) are filled. seen: uint64, zeros, a power
    of two of at least three places for each line. spans: int64[num_kept, 2]; the begin and end of each line that C4
    keeps are written. counts: int64[NUM_COUNTS], zeros.
    """
    mask = np.uint64(len(seen) - 1)
    n = _int64(0)  # not a constant, for which `scan_line` would be compiled once more
    newlines = lines = line_characters = longest = terminal = ellipsis = bullets = short = 0
    repeated = repeated_characters = characters = 0
    paragraphs = repeated_paragraphs = repeated_paragraph_characters = 0
    paragraph_hash, paragraph_characters = _PARAGRAPH, 0
    kept = kept_sentences = curly = lorem = 0
    i = begin
    while i <= end:
        stop, continued = line_end(values, i, end)
        newlines += stop < end
        first, last = i, stop
        while first < last and is_space(values[first]):
            first += 1
        while first < last and is_space(values[last - 1]):
            last -= 1
        blanks = stop - i - (last - first) + (stop < end)
        i = stop + 1
        if last > first:
            h = mix(_LINE, hash_text(values, first, last))
            size = last - first - continued
            n, flags, runs, sentences = scan_line(values, first, last, classes, hashes, ends, n, counts)
            lines += 1
            line_characters += size
            longest = max(longest, size)
            final = _last(values, first, last)
            terminal += final < NUM_CLASSES_BELOW and classes[final] & ENDS_SENTENCE != 0
            ellipsis += _ends_in_ellipsis(values, first, last, final)
            begins = decode(values, first)[0]
            bullets += begins == BULLETS[0] or begins == BULLETS[1]
            short += size <= SHORT_LINE_CHARACTERS
            if not is_new(seen, mask, h):
                repeated += 1
                repeated_characters += size
            paragraph_hash = mix(paragraph_hash, h)
            paragraph_characters += size + 1
            characters += size
            if _c4_keeps(values, first, last, flags, runs):
                lorem += flags & LOREM_IPSUM != 0
                if not flags & (JAVASCRIPT | LOREM_IPSUM):
                    curly += flags & CURLY_BRACKET != 0
                if not flags & (JAVASCRIPT | POLICY | LOREM_IPSUM | CURLY_BRACKET):
                    spans[kept, 0], spans[kept, 1] = first, last
                    kept += 1
                    kept_sentences += sentences
        characters += blanks
        if paragraph_characters and (last == first or i > end):
            paragraphs += 1
            if not is_new(seen, mask, paragraph_hash):
                repeated_paragraphs += 1
                repeated_paragraph_characters += paragraph_characters - 1
            paragraph_hash, paragraph_characters = _PARAGRAPH, 0
    counts[UNITS], counts[CHARACTERS], counts[NEWLINES] = n, characters, newlines
    counts[LINES], counts[LINE_CHARACTERS], counts[LONGEST_LINE] = lines, line_characters, longest
    counts[TERMINAL_LINES], counts[ELLIPSIS_LINES], counts[BULLET_LINES] = terminal, ellipsis, bullets
    counts[SHORT_LINES] = short
    counts[REPEATED_LINES], counts[REPEATED_LINE_CHARACTERS] = repeated, repeated_characters
    counts[PARAGRAPHS], counts[REPEATED_PARAGRAPHS] = paragraphs, repeated_paragraphs
    counts[REPEATED_PARAGRAPH_CHARACTERS] = repeated_paragraph_characters
    counts[KEPT_LINES], counts[KEPT_SENTENCES] = kept, kept_sentences
    counts[KEPT_CURLY_BRACKETS], counts[KEPT_LOREM_IPSUM] = curly, lorem
