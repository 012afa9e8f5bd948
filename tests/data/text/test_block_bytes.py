"""Masks of 64 bytes against a plain reading of each byte, up to the last byte that there is."""

import numba
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from data.text import block_bytes
from data.text.block_bytes import BLOCK_BYTES
from tests.data.text.last_page import at_the_end

SPACES = b" \t\n\x0b\x0c\r"
LETTERS_AND_DIGITS = bytes(c for c in range(128) if chr(c).isalnum())
EVERY_BYTE = st.permutations(range(256)).map(bytes)


@numba.njit
def masks_of(values: np.ndarray, i: int):
    return (
        block_bytes.word_masks(values, i),
        block_bytes.letter_leads(values, i),
        block_bytes.pii_masks(values, i),
        block_bytes.space_mask(values, i),
        block_bytes.line_feed_mask(values, i),
    )


@numba.njit
def copied(out: np.ndarray, o: int, values: np.ndarray, i: int) -> None:
    block_bytes.copy_block(out, o, values, i)


@given(EVERY_BYTE)
@settings(max_examples=30, deadline=None)
def test_masks_are_those_of_a_plain_reading(content):
    values = at_the_end(content)
    high = bytes(range(0x80, 0x100))
    leads = [bytes([*range(0xC4, 0xCA), 0xD0, 0xD1]), b"\xeb\xec", bytes(range(0xE5, 0xEA)), b"\xc3", b"\x97\xb7"]
    for i in range(0, len(content) - BLOCK_BYTES + 1, 13):
        word, lead, pii, space, line_feed = masks_of(values, i)
        found = [*word, *lead, *pii, space, line_feed]
        kinds = [LETTERS_AND_DIGITS, high, *leads, b"0123456789", b"@", b"ABJz_-", SPACES, b"\n"]
        for mask, kind in zip(found, kinds, strict=True):
            assert int(mask) == sum((content[i + k] in kind) << k for k in range(BLOCK_BYTES))


@given(EVERY_BYTE, st.integers(0, 256 - BLOCK_BYTES), st.integers(0, 5))
@settings(max_examples=50, deadline=None)
def test_a_copied_block_has_spaces_for_all_white_space(content, i, o):
    out = at_the_end(b"\7" * (o + BLOCK_BYTES))
    copied(out, o, at_the_end(content), i)
    block = content[i : i + BLOCK_BYTES]
    assert bytes(out) == b"\7" * o + bytes(32 if byte in SPACES else byte for byte in block)
