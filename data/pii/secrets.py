"""Keys and tokens that services issue, by the shapes that they publish, in bytes of UTF-8 text.

A token is a prefix and a number of characters of one alphabet behind it, and stands alone. What only shows the shape is
left alone: a token has at least 8 different characters of at least two (or three) of lower case, upper case and digits,
and is no AWS example (`...EXAMPLE`); a private key has a line of at least 32 characters of Base64.
"""

from dataclasses import dataclass

import numpy as np

from data.pii.byte_classes import (
    ALPHANUMERIC,
    BASE64,
    CLASSES,
    DIGIT,
    HEX,
    LOWER,
    UPPER,
    URL_SAFE,
    in_word,
    is_byte,
    run_end,
    stands,
)
from data.text.inner import inner

LEAST_DISTINCT = 8
LEAST_KEY_LINE = 32
MOST_KEY_BYTES = 1 << 14
MOST_JWT_PART = 1 << 13
TOKEN, JWT, PEM = 0, 1, 2


@dataclass(frozen=True)
class Marker:
    """How a kind of secret begins. `mark`: place of the byte in the prefix at which the kernel looks closer, one of
    MARKS. num_classes: of lower case, upper case, digits."""

    prefix: bytes
    mark: int
    alphabet: int = ALPHANUMERIC
    least: int = 0
    most: int = 0
    num_classes: int = 2
    shape: int = TOKEN


MARKS = b"ABJz_-"
MARKERS = (
    Marker(b"-----BEGIN ", 5, shape=PEM),
    Marker(b"eyJ", 2, shape=JWT),
    Marker(b"AKIA", 3, UPPER | DIGIT, 16, 16),  # AWS access key
    Marker(b"ASIA", 3, UPPER | DIGIT, 16, 16),
    *(Marker(b"gh%c_" % kind, 3, ALPHANUMERIC, 36, 251) for kind in b"pousr"),  # GitHub
    Marker(b"github_pat_", 6, ALPHANUMERIC, 22, 255),
    Marker(b"glpat-", 5, URL_SAFE, 20, 64),  # GitLab
    *(Marker(b"xox%c-" % kind, 4, URL_SAFE, 20, 255) for kind in b"abeoprs"),  # Slack
    Marker(b"AIza", 2, URL_SAFE, 35, 35, 3),  # Google
    *(Marker(b"%ck_live_" % kind, 2, ALPHANUMERIC, 20, 247) for kind in b"sr"),  # Stripe
    Marker(b"sk-", 2, URL_SAFE, 32, 255, 3),  # OpenAI, Anthropic
    Marker(b"hf_", 2, ALPHANUMERIC, 34, 40),  # Hugging Face
    Marker(b"npm_", 3, ALPHANUMERIC, 36, 36),
    Marker(b"pypi-", 4, URL_SAFE, 85, 255, 3),
    Marker(b"dop_v1_", 3, HEX, 64, 64),  # DigitalOcean
    *(Marker(b"shp%b_" % kind, 5, HEX, 32, 32) for kind in (b"at", b"ca", b"pa", b"ss")),  # Shopify
)
assert all(marker.prefix[marker.mark] in MARKS for marker in MARKERS)

_PREFIXES = np.zeros((len(MARKERS), max(len(marker.prefix) for marker in MARKERS)), np.uint8)
for _row, _marker in enumerate(MARKERS):
    _PREFIXES[_row, : len(_marker.prefix)] = list(_marker.prefix)
_LENGTHS = np.array([len(marker.prefix) for marker in MARKERS])
_PLACES = np.array([marker.mark for marker in MARKERS])
_ALPHABETS = np.array([marker.alphabet for marker in MARKERS])
_LEAST = np.array([marker.least for marker in MARKERS])
_MOST = np.array([marker.most for marker in MARKERS])
_NUM_CLASSES = np.array([marker.num_classes for marker in MARKERS])
_SHAPES = np.array([marker.shape for marker in MARKERS])
_END = np.frombuffer(b"-----END ", np.uint8)
_PRIVATE_KEY = np.frombuffer(b"PRIVATE KEY", np.uint8)
_BLOCK = np.frombuffer(b" BLOCK", np.uint8)
_JWT_PREFIX = np.frombuffer(b"eyJ", np.uint8)
_EXAMPLE = np.frombuffer(b"EXAMPLE", np.uint8)


def marker_pairs() -> list[int]:
    """(byte before << 8 | mark) of the marks that make `secret_at` worth a call."""
    return [m.prefix[m.mark - 1] << 8 | m.prefix[m.mark] for m in MARKERS]


@inner
def secret_at(values: np.ndarray, i: int, begin: int, end: int, floor: int) -> tuple[int, int]:
    """(begin, end) of the secret, from `floor` on, whose mark is at i; (0, 0) if there is none."""
    for m in range(len(_LENGTHS)):
        first = i - _PLACES[m]
        if first < floor or values[i] != _PREFIXES[m, _PLACES[m]]:
            continue
        if not stands(values, first, end, _PREFIXES[m], _LENGTHS[m]):
            continue
        # What ends at the floor is replaced, so it is no part of this one.
        if in_word(values, first - 1, floor, end) or is_byte(values, first - 1, floor, end, 45):
            continue
        body = first + _LENGTHS[m]
        if _SHAPES[m] == PEM:
            stop = _private_key_end(values, body, end)
        elif _SHAPES[m] == JWT:
            stop = _jwt_end(values, body, end)
        else:
            stop = run_end(values, body, end, _ALPHABETS[m], _MOST[m] + 1)
            if not _LEAST[m] <= stop - body <= _MOST[m] or in_word(values, stop, begin, end):
                continue
            if not _is_random(values, body, stop, _NUM_CLASSES[m]):
                continue
        if stop:
            return first, stop
    return 0, 0


@inner
def _is_random(values: np.ndarray, begin: int, end: int, num_classes: int) -> bool:
    """Whether a token looks drawn and not written as an example."""
    low = high = np.uint64(0)  # which of the 128 ASCII characters there are
    classes = 0
    for k in range(begin, end):
        c = values[k]
        classes |= CLASSES[c]
        if c < 64:
            low |= np.uint64(1) << np.uint64(c)
        else:
            high |= np.uint64(1) << np.uint64(c - 64)
    distinct = 0
    for word in (low, high):
        while word:
            word &= word - np.uint64(1)
            distinct += 1
    present = (classes & LOWER != 0) + (classes & UPPER != 0) + (classes & DIGIT != 0)
    is_example = end - begin > len(_EXAMPLE) and stands(values, end - len(_EXAMPLE), end, _EXAMPLE, len(_EXAMPLE))
    return distinct >= LEAST_DISTINCT and present >= num_classes and not is_example


@inner
def _jwt_end(values: np.ndarray, i: int, end: int) -> int:
    """Position behind a signed JSON web token whose header goes on at i (RFC 7519), or 0."""
    for part in range(3):
        if part == 1 and not stands(values, i, end, _JWT_PREFIX, 3):
            return 0
        stop = run_end(values, i, end, URL_SAFE, MOST_JWT_PART)
        if stop - i < 10:
            return 0
        i = stop
        if part < 2:
            if i >= end or values[i] != 46:
                return 0
            i += 1
    return i


@inner
def _private_key_end(values: np.ndarray, i: int, end: int) -> int:
    """Position behind the end line of a private key whose label begins at i (RFC 7468, OpenPGP), or 0."""
    label_end = i
    while label_end < end and label_end - i < 40:
        if CLASSES[values[label_end]] & (UPPER | DIGIT) == 0 and values[label_end] != 32:
            break
        label_end += 1
    length = label_end - i
    name_end = label_end - 6 if length > 6 and stands(values, label_end - 6, end, _BLOCK, 6) else label_end
    if name_end - i < 11 or not stands(values, name_end - 11, end, _PRIVATE_KEY, 11):
        return 0
    if not stands(values, label_end, end, _END, 5):
        return 0
    k = label_end + 5
    has_key = False
    limit = min(end, k + MOST_KEY_BYTES)
    while k < limit:
        stop = run_end(values, k, limit, BASE64, MOST_KEY_BYTES)
        has_key |= stop - k >= LEAST_KEY_LINE
        k = stop
        if stands(values, k, end, _PREFIXES[0], _LENGTHS[0]):
            return 0
        if stands(values, k, end, _END, 9):
            stop = k + 9 + length
            is_whole = stands(values, k + 9, end, values[i:label_end], length) and stands(values, stop, end, _END, 5)
            return stop + 5 if has_key and is_whole else 0
        k += 1
    return 0
