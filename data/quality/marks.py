"""Which marks belong to the word beside them, and which part words: the rules of data/quality/word_measures.py."""

import numpy as np

from data.quality.byte_measures import inlined, load_block
from data.quality.characters import ELLIPSIS, LETTER, MARK, RUN_MARK, SINGLE, SYMBOL, class_at
from data.quality.phrases import ABBREVIATIONS, ENDINGS, is_one_of
from data.text.inner import inner

LEAST_RUN = 3
_PLAIN_MARKS = np.array([chr(byte) in ".,;:!?)'\"]%" for byte in range(256)])


@inner
def marks_end(values: np.ndarray, i: int, end: int, classes: np.ndarray) -> int:
    """Where the run of marks that begins at i ends."""
    while i < end:
        kind, _, width = class_at(values, i, classes)
        if kind < MARK or kind > SYMBOL:
            break
        i += width
    return i


@inlined
def mark_end(values: np.ndarray, i: int, stop: int, classes: np.ndarray) -> tuple[int, int, int, int]:
    """(end, class, code point, bytes of a character) of the one mark that begins at i: a character, or a run of it."""
    kind, c, width = class_at(values, i, classes)
    k = i + width
    while c < 128 and k < stop and values[k] == c:
        k += 1
    if kind != RUN_MARK and c != 46 and k - i < LEAST_RUN:
        k = i + width
    return k, kind, c, width


@inlined
def _is_alphanumeric(values: np.ndarray, i: int, end: int) -> bool:
    """Whether there is an ASCII letter or digit at i, before `end`."""
    byte = values[i] if i < end else 0
    return 48 <= byte <= 57 or 65 <= byte <= 90 or 97 <= byte <= 122


@inner
def _is_ending(values: np.ndarray, i: int, end: int) -> bool:
    """Whether an English ending that is a word of its own stands at i, behind an apostrophe."""
    if not _is_alphanumeric(values, i + 1, end):
        return is_one_of(np.uint64(values[i]), ENDINGS)
    if _is_alphanumeric(values, i + 2, end):
        return False
    return is_one_of(np.uint64(values[i]) | np.uint64(values[i + 1]) << np.uint64(8), ENDINGS)


@inlined
def keeps_stop(values: np.ndarray, word: int, i: int) -> bool:
    """Whether the full stop at i, right behind the word that begins at `word`, belongs to it."""
    last = values[i - 1]
    before = values[i - 2] if i - 2 >= word else 0
    if 65 <= last <= 90:
        return not 65 <= before <= 90
    if not 97 <= last <= 122:
        return False
    return i - word == 1 or before == 46 or i - word <= 4 and is_one_of(load_block(values, word, i), ABBREVIATIONS)


@inlined
def is_plain_end(values: np.ndarray, word: int, i: int, end: int, mark: int) -> bool:
    """Whether the byte `mark` at i, behind a word of letters and digits, is a mark by itself before white space."""
    if not _PLAIN_MARKS[mark] or i + 1 < end and values[i + 1] != 32:
        return False
    return mark != 46 or not keeps_stop(values, word, i)


@inlined
def parts_word(values: np.ndarray, i: int, stop: int, end: int, kind: int, c: int, after: int) -> bool:
    """Whether the marks at i:stop, which stand between letters or digits, part them.

    kind, c: class and code point of the first of them; after: the class of what follows.
    """
    before = values[i - 1]
    letter_behind = after == LETTER and not 48 <= values[stop] <= 57 or after == SINGLE
    if c >= 128 and c != 0x2019:
        if c == 0x2014 and stop > i + 3 or c == ELLIPSIS or kind == SYMBOL:
            return True
        return letter_behind and (c == 0x2010 or c == 0x2011 or c == 0x2013 or c == 0x2014)
    if c != 0x2019 and stop > i + 1:
        next_mark = values[i + 1]
        return c == 46 and next_mark == 46 or c == 45 and next_mark == 45 and letter_behind
    if c == 46:
        return 97 <= before <= 122 and 65 <= values[stop] <= 90
    if c == 45:
        return letter_behind or 48 <= before <= 57 and 48 <= values[stop] <= 57
    if c == 0x27 or c == 0x2019:
        return _is_ending(values, stop, end)
    if c == 44:
        return letter_behind and not 48 <= before <= 57
    return letter_behind and (c == 47 or c == 58 or 60 <= c <= 62 or c == 126)


@inlined
def closed_mark(
    values: np.ndarray, i: int, stop: int, kind: int, c: int, width: int, classes: np.ndarray, parted: bool
) -> int:
    """-1 if the marks at i:stop belong to the word behind them, where `parted` says that a word ends before them; else
    the place of one of them such that those from any mark up to it on do not either.

    kind, c, width: of the first of them.
    """
    single = i + width == stop
    if parted:
        return -1 if single and (c == 0x27 or c == 0x2019) else i
    if kind != RUN_MARK and c != 46:
        return i
    return -1 if single else _first_closed(values, i, stop, classes)


@inner
def _first_closed(values: np.ndarray, i: int, stop: int, classes: np.ndarray) -> int:
    """The place of the first of the marks at i:stop that may not begin a word, or -1."""
    if values[i] == 46 and values[i + 1] == 46:
        return i
    while i < stop:
        kind, c, width = class_at(values, i, classes)
        if kind != RUN_MARK and c != 46:
            return i
        i += width
    return -1
