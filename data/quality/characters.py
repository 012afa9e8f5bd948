"""What a character is to the quality measures, by the Unicode version of this Python."""

import unicodedata
from functools import lru_cache

import numpy as np

from data.quality.byte_measures import inlined
from data.text.characters import decode

SPACE, MARK, RUN_MARK, SYMBOL, LETTER, DIGIT, SINGLE, EXTEND = range(8)
NUM_CLASSES_BELOW = 0x20000
CLASS, ENDS_SENTENCE = 0x0F, 0x10
TERMINALS = ".!?‼‽⁇⁈⁉⸮。！．？｡։؝؞؟۔।॥၊။።፧፨។៕᠃᠉܀܁܂"
ELLIPSIS = 0x2026
_SINGLE_RANGES = (
    (0x0E00, 0x0F00),
    (0x1000, 0x10A0),
    (0x1780, 0x1800),
    (0x1950, 0x1AB0),
    (0x2E80, 0x3005),
    (0x3005, 0x30FF + 1),
    (0x3105, 0x3130),
    (0x31A0, 0x3200),
    (0x3400, 0xA4D0),
    (0xA9E0, 0xAA00),
    (0xAA60, 0xAAE0),
    (0xF900, 0xFB00),
    (0xFF66, 0xFFA0),
    (0x16F00, 0x1B300),
)


@lru_cache(maxsize=1)
def character_classes() -> np.ndarray:
    """uint8[NUM_CLASSES_BELOW]: class of each code point, and whether it ends a sentence; those beyond are SINGLE."""
    classes = np.full(NUM_CLASSES_BELOW, MARK, np.uint8)
    for code_point in range(NUM_CLASSES_BELOW):
        character = chr(code_point)
        category = unicodedata.category(character)
        if category[0] == "Z" or character.isspace():
            classes[code_point] = SPACE
        elif category[0] == "L":
            classes[code_point] = LETTER
        elif category[0] == "N":
            classes[code_point] = LETTER if category == "Nl" else DIGIT
        elif category[0] == "M" or category == "Cf":
            classes[code_point] = EXTEND
        elif category[0] == "S" and code_point >= 128:
            classes[code_point] = SYMBOL
    for begin, end in _SINGLE_RANGES:
        window = classes[begin:end]
        window[window == LETTER] = SINGLE
    for character in "-/|\\~^+@\u2010\u2011":
        classes[ord(character)] = RUN_MARK
    classes[[0xB6, 0x200B, 0xFEFF, 0x0F0B, 0x0F0C]] = SPACE
    classes[[0x30FC, 0xFF70]] = EXTEND  # the mark that makes a Japanese vowel long
    classes[[ord(character) for character in TERMINALS]] |= ENDS_SENTENCE
    classes[0x3007] = SINGLE  # the ideograph for zero, to Unicode a number
    return classes


@inlined
def class_at(values: np.ndarray, i: int, classes: np.ndarray) -> tuple[int, int, int]:
    """(class, code point, its length in bytes) of the character at position i."""
    c, width = decode(values, i)
    return (classes[c] & CLASS if c < NUM_CLASSES_BELOW else SINGLE), c, width
