"""Words and phrases that the quality rules know: stop words, abbreviations, what C4 does not want in a line.

They are compared as blocks of eight bytes; stop words and phrases stand in tables without collisions.
"""

from typing import Any

import numpy as np

from data.quality.byte_measures import inlined, load_block
from data.text.inner import inner

STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")
JAVASCRIPT, POLICY, LOREM_IPSUM, CURLY_BRACKET, CITATION, LONG_WORD = (1 << k for k in range(6))


def _blocks(words: list[bytes]) -> np.ndarray:
    """uint64: each word of at most eight bytes as a block."""
    return np.array([int.from_bytes(word, "little") for word in words], np.uint64)


def _perfect_table(blocks: np.ndarray) -> tuple[np.uint64, np.ndarray, list[int]]:
    """(key; uint64[16]: the blocks, each at the place of the top 4 bits of its product with the key; these places)."""
    key = 1
    for _ in range(1000):
        key = key * 0x9E3779B97F4A7C15 % (1 << 64)
        places = [key * int(block) % (1 << 64) >> 60 for block in blocks]
        if len(set(places)) == len(places):
            return np.uint64(key), _at(places, blocks), places
    raise AssertionError("no key keeps the blocks apart")


def _at(places: list[int], elements: np.ndarray) -> np.ndarray:
    """The elements at their places in an array of 16, zero elsewhere."""
    table = np.zeros(16, elements.dtype)
    table[places] = elements
    return table


_STOP_KEY, _STOP_TABLE, _ = _perfect_table(_blocks([word.encode() for word in STOP_WORDS]))
ABBREVIATIONS = _blocks(
    b"Mr Mrs Ms Dr St Jr Prof Rev Gen Gov Sen Rep Mt Co Inc Ltd Corp vs "
    b"Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec".split()
)
ENDINGS = _blocks([b"s", b"t", b"re", b"ve", b"ll", b"d", b"m", b"S", b"T"])

_PHRASES = {
    b"javascript": JAVASCRIPT,
    b"lorem ipsum": LOREM_IPSUM,
    b"terms of use": POLICY,
    b"privacy policy": POLICY,
    b"cookie policy": POLICY,
    b"uses cookies": POLICY,
    b"use of cookies": POLICY,
    b"use cookies": POLICY,
}
_PHRASE_KEY, _PHRASE_HEADS, _PLACES = _perfect_table(_blocks([phrase[:8] for phrase in _PHRASES]))
_PHRASE_TAILS = _at(_PLACES, _blocks([phrase[8:] for phrase in _PHRASES]))
_PHRASE_TAIL_MASKS = _at(_PLACES, _blocks([b"\xff" * (len(phrase) - 8) for phrase in _PHRASES]))
_PHRASE_FLAGS = _at(_PLACES, np.array(list(_PHRASES.values())))
_LOWER_CASE = np.uint64(0x2020202020202020)
_int64: Any = np.int64


@inlined
def stop_word_bit(block: np.uint64) -> int:
    """The bit of the stop word that is a whole block, or 0."""
    place = (block * _STOP_KEY) >> np.uint64(60)
    return _int64(_STOP_TABLE[place] == block) << _int64(place)


@inlined
def phrase_flag(values: np.ndarray, i: int, end: int, block: np.uint64) -> int:
    """The flag of the phrase that begins at i with a block, or 0."""
    head = block | _LOWER_CASE
    place = (head * _PHRASE_KEY) >> np.uint64(60)
    if head != _PHRASE_HEADS[place] or i + 8 >= end:
        return 0
    tail = (load_block(values, i + 8, end) | _LOWER_CASE) & _PHRASE_TAIL_MASKS[place]
    return _PHRASE_FLAGS[place] if tail == _PHRASE_TAILS[place] else 0


@inner
def citation_end(values: np.ndarray, i: int, end: int) -> int:
    """Where the citation that begins with the bracket at i ends: ``[12]``, ``[]``, ``[edit]``, ``[citation needed]``;
    i if there is none."""
    k = i + 1
    while k < end and 48 <= values[k] <= 57:
        k += 1
    if k < end and values[k] == 93:
        return k + 1
    for text in (b"edit]", b"citation needed]"):
        if k == i + 1 and k + len(text) <= end:
            same = True
            for m in range(len(text)):
                same &= values[k + m] == text[m]
            if same:
                return k + len(text)
    return i


@inner
def is_one_of(block: np.uint64, words: np.ndarray) -> bool:
    found = False
    for word in words:
        found |= block == word
    return found
