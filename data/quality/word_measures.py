"""How quality measures cut a line into units: words and marks.

* White space of any script, the zero-width space, the Tibetan syllable mark and the pilcrow part units.
* A *word* is a run of letters and digits of any script, with the accents and joiners in it. In scripts that put no
  spaces between words (Han, Kana, Thai, Lao, Myanmar, Khmer, ...) each letter with the accents behind it is a word.
* A *mark* is every other character, by itself; but dots side by side are one mark, as are two or more of the same of
  ``- / | \\ ~ ^ + @``, and three or more of the same other ASCII character.
* Inside a run without white space marks belong to the word around them ("3.14", "example.com", "o'clock", "f(x"). What
  parts words there: a hyphen, dash, slash, colon, ``~ = <`` or ``>`` before a letter; a hyphen between digits; a comma
  between letters; a full stop between a small and a capital letter; dots side by side; an ellipsis; symbols that are
  not ASCII. An address with "://" is one word. An English ending ("'s", "'t", "'re", ...) is a word of its own.
* One of ``- / | \\ ~ ^ + @`` right before or behind a word belongs to it ("-5", "C++"), and a full stop right before
  it. A full stop behind it belongs to it if it is one letter, ends in a letter behind a full stop ("e.g."), or is an
  English title or month ("Mr.", "Sept.").

This follows how spaCy's English tokenizer cuts, for which the published thresholds are used by others.
"""

import numba
import numpy as np

from data.quality.byte_measures import (
    MASK_BYTES,
    alphanumeric_end,
    alphanumeric_mask,
    ascii_letters,
    continuation_bytes,
    first_bytes,
    inlined,
    load_block,
    mix,
    run_length,
)
from data.quality.characters import (
    DIGIT,
    ELLIPSIS,
    EXTEND,
    LETTER,
    MARK,
    RUN_MARK,
    SINGLE,
    SPACE,
    SYMBOL,
    class_at,
    decode,
)
from data.quality.marks import closed_mark, is_plain_end, keeps_stop, mark_end, marks_end, parts_word
from data.quality.phrases import CITATION, CURLY_BRACKET, LONG_WORD, citation_end, phrase_flag, stop_word_bit
from data.text.inner import inner

(
    WORDS,
    WORD_CHARACTERS,
    LETTERED,
    STOP_WORD_BITS,
    HASH_MARKS,
    ELLIPSES,
    ASCII_CHARACTERS,
    OTHER_CHARACTERS,
    SINGLE_CHARACTERS,
    MARK_CHARACTERS,
    NUM_TOTALS,
) = range(11)
LONG_WORD_BYTES = 1000
_LETTER_BITS = np.uint64(0x4040404040404040)
_ZERO = np.uint64(0)
_MARK_HASH = np.uint64(0xA24BAED4963EE407)


@inlined
def _mark_hash(size: int, c: int) -> np.uint64:
    return mix(_MARK_HASH, np.uint64(size) << np.uint64(32) | np.uint64(c))


@inlined
def _word_facts(values: np.ndarray, begin: int, end: int) -> tuple[np.uint64, int, bool, int]:
    """(hash, characters, whether it has an ASCII letter, bit of the stop word) of the word values[begin:end]."""
    h = np.uint64(end - begin)
    letters, continued, stop_word = _ZERO, 0, 0
    for i in range(begin, end, 8):
        block = load_block(values, i, end)
        h = mix(h, block)
        continued += continuation_bytes(block)
        letters |= ascii_letters(block)
        if end - begin < 8:
            stop_word = stop_word_bit(block)
    return h, end - begin - continued, letters != _ZERO, stop_word


@inner
def _count_marks(values: np.ndarray, i: int, stop: int, end: int, totals: np.ndarray) -> int:
    """Adds the hash marks and ellipses of a run of marks to `totals`; returns the flags of the line that it sets."""
    flags = dots = 0
    while i < stop:
        c, width = decode(values, i)
        dots = dots + 1 if c == 46 else 0
        if dots == 3 or c == ELLIPSIS:
            totals[ELLIPSES] += 1
            dots = 0
        if c == 35:
            totals[HASH_MARKS] += 1
        elif c == 123:
            flags |= CURLY_BRACKET
        elif c == 91 and citation_end(values, i, end) > i:
            flags |= CITATION
        i += width
    return flags


@inner
def _extensions_end(values: np.ndarray, i: int, end: int, classes: np.ndarray) -> int:
    """Where the accents that begin at i end."""
    while i < end and values[i] >= 128:
        kind, _, width = class_at(values, i, classes)
        if kind != EXTEND:
            break
        i += width
    return i


@numba.njit(nogil=True, cache=True)
def scan_line(
    values: np.ndarray,
    begin: int,
    end: int,
    classes: np.ndarray,
    hashes: np.ndarray,
    ends: np.ndarray,
    n: int,
    totals: np.ndarray,
) -> tuple[int, int, int, int]:
    """Cuts values[begin:end] into units. Returns (number of units of the text so far, flags of the line, runs without
    white space in it, sentences in it).

    n: units of the text before this line. hashes: uint64[room], of each unit; ends: int64[room + 1], characters of all
    units up to and with the one before; units beyond `room` are counted, not stored. totals: int64[NUM_TOTALS], is
    added to.
    """
    room = len(hashes)
    flags = runs = sentences = words = word_characters = lettered = stop_words = 0
    ascii_characters = other_characters = singles = mark_characters = 0
    sentence_begins = True
    has_letter = address = False
    word = run = -1  # where the open word, and the run without white space, began
    closed = -1  # a mark up to which none opens a word: a run of marks is looked through once
    base, mask = begin - MASK_BYTES, _ZERO  # the letters and digits from `base` on
    i = begin
    while i <= end:
        if i - base >= MASK_BYTES:
            base, mask = i, alphanumeric_mask(values, i, end)
        length = run_length(mask >> np.uint64(i - base))
        if i + length - base == MASK_BYTES:
            base, mask = i, alphanumeric_mask(values, i, end)
            length = run_length(mask)
            if length == MASK_BYTES:
                length = alphanumeric_end(values, i, end) - i
        if length:
            stop = i + length
            block = load_block(values, i, end)
            flags |= phrase_flag(values, i, end, block)
            ascii_characters += length
            mark = values[stop] if stop < end else 32
            if run < 0 and (mark == 32 or is_plain_end(values, i, stop, end, mark)):
                # A word between white space, or with one mark behind it: most are.
                if length < 8:
                    block &= first_bytes(length)
                    stop_words |= stop_word_bit(block)
                h, letters = mix(np.uint64(length), block), block
                for k in range(i + 8, stop, 8):
                    block = load_block(values, k, stop)
                    h = mix(h, block)
                    letters |= block
                if n < room:
                    hashes[n] = h
                    ends[n + 1] = ends[n] + length
                n += 1
                words += 1
                word_characters += length
                lettered += letters & _LETTER_BITS != _ZERO
                sentences += sentence_begins
                sentence_begins = False
                runs += 1
                i = stop + 1
                if length + (mark != 32) > LONG_WORD_BYTES:
                    flags |= LONG_WORD
                if mark != 32:
                    if n < room:
                        hashes[n] = _mark_hash(1, mark)
                        ends[n + 1] = ends[n] + 1
                    n += 1
                    mark_characters += 1
                    sentence_begins = mark == 46 or mark == 33 or mark == 63
                    i += 1
                continue
            word = i if word < 0 else word
            run = i if run < 0 else run
            i = stop
        kind, c, width = SPACE, 0, 0
        if i < end:
            kind, c, width = class_at(values, i, classes)
            if kind != SPACE:
                run = i if run < 0 else run
        if LETTER <= kind <= DIGIT:
            word = i if word < 0 else word
            has_letter |= kind == LETTER
            other_characters += 1
            i += width
            continue
        if kind == EXTEND and word >= 0:
            i += width
            continue
        stop = i + width
        followed = False
        is_mark = MARK <= kind <= SYMBOL
        if is_mark:
            after = class_at(values, stop, classes)[0] if stop < end else SPACE
            if MARK <= after <= SYMBOL:
                stop = marks_end(values, stop, end, classes)
                after = class_at(values, stop, classes)[0] if stop < end else SPACE
            if i + width < stop or c == 35 or c == 91 or c == 123 or c == ELLIPSIS:
                flags |= _count_marks(values, i, stop, end, totals)
            followed = after >= LETTER
            if word >= 0:
                if followed:
                    if address or not parts_word(values, i, stop, end, kind, c, after):
                        address |= c == 58 and stop - i == 3 and values[i + 1] == 47 and values[i + 2] == 47
                        i = stop
                        continue
                elif kind == RUN_MARK:
                    i = mark_end(values, i, stop, classes)[0]
                elif c == 46 and (i + 1 == stop or values[i + 1] != 46) and keeps_stop(values, word, i):
                    i += 1
                if i == stop:
                    continue
        parted = word >= 0
        if parted:
            h, size, ascii_letter, stop_word = _word_facts(values, word, i)
            if n < room:
                hashes[n] = h
                ends[n + 1] = ends[n] + size
            n += 1
            words += 1
            word_characters += size
            lettered += ascii_letter or has_letter
            stop_words |= stop_word
            sentences += sentence_begins
            sentence_begins = has_letter = False
            word = -1
        if kind == SPACE:
            if run >= 0:
                runs += 1
                if i - run > LONG_WORD_BYTES:
                    flags |= LONG_WORD
                run = -1
                address = False
            if i >= end:
                break
            i += width
        elif kind == SINGLE:
            stop = _extensions_end(values, stop, end, classes)
            h, size, _, _ = _word_facts(values, i, stop)
            if n < room:
                hashes[n] = h
                ends[n + 1] = ends[n] + size
            n += 1
            words += 1
            word_characters += size
            lettered += 1
            singles += 1
            sentences += sentence_begins
            sentence_begins = False
            i = stop
        elif kind == EXTEND:
            i = stop
        while is_mark and i < stop:
            next_mark, kind, c, width = mark_end(values, i, stop, classes)
            if followed and i > closed:
                closed = closed_mark(values, i, stop, kind, c, width, classes, parted)
                if closed < 0:
                    word = i
                    i = stop
                    break
            size = next_mark - i if c < 128 else 1
            if n < room:
                hashes[n] = _mark_hash(size, c)
                ends[n + 1] = ends[n] + size
            n += 1
            mark_characters += size
            sentence_begins |= c == 46 and size == 1 or c == 33 or c == 63
            i = next_mark
    totals[WORDS] += words
    totals[WORD_CHARACTERS] += word_characters
    totals[LETTERED] += lettered
    totals[STOP_WORD_BITS] |= stop_words
    totals[ASCII_CHARACTERS] += ascii_characters
    totals[OTHER_CHARACTERS] += other_characters
    totals[SINGLE_CHARACTERS] += singles
    totals[MARK_CHARACTERS] += mark_characters
    return n, flags, runs, sentences
