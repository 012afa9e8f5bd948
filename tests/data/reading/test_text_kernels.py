"""Validity, blanks and hashes of texts, against Python's own."""

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from data.reading.text_kernels import BLANK, FINE, HOLDS_NUL, NOT_UTF8, hash_bytes, name_by_hash, scan_texts

# Bytes of which every second string is nearly valid UTF-8.
PIECES = st.sampled_from(
    [b"a", b"plain text", b"\x00", "é".encode(), "中".encode(), "😀".encode(), b"\x80", b"\xc3", b"\xe4\xb8", b"\xff"]
    + [b"\xf0\x9f\x98", b"\xc0\x80", b"\xe0\x9f\xbf", b"\xed\xa0\x80", b"\xed\x9f\xbf", b"\xf0\x8f\xbf\xbf"]
    + [b"\xf4\x8f\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80"]
    + [b" ", b"\t\n", "\u2028\u3000\x85\xa0\u180e\u200b\ufeff".encode()]
)
STRINGS = st.lists(PIECES, max_size=12).map(b"".join) | st.binary(max_size=20)


def expected(content: bytes) -> int:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return NOT_UTF8
    return (HOLDS_NUL if "\0" in text else FINE) | (BLANK if not text or text.isspace() else FINE)


def buffers(strings: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    return np.frombuffer(b"".join(strings), np.uint8), np.cumsum([0, *map(len, strings)])


@given(st.lists(STRINGS, min_size=1, max_size=6))
@example([bytes([byte]) for byte in range(256)])
@settings(max_examples=400, deadline=None)
def test_texts_are_scanned_as_python_decodes_them(strings):
    values, offsets = buffers(strings)
    found = np.full(len(strings), 99, np.uint8)
    scan_texts(values, offsets, found)
    for content, flags in zip(strings, found.tolist(), strict=True):
        assert flags & ~HOLDS_NUL == expected(content) & ~HOLDS_NUL
        if not flags & NOT_UTF8:
            assert flags == expected(content)


def test_every_character_is_blank_or_not_as_python_says():
    characters = [chr(point).encode() for point in range(0x110000) if not 0xD800 <= point < 0xE000]
    values, offsets = buffers(characters)
    found = np.empty(len(characters), np.uint8)
    scan_texts(values, offsets, found)
    assert found.tolist() == [expected(character) for character in characters]


def test_a_hash_is_of_the_bytes_alone_and_names_stand_still():
    values, offsets = buffers([b"one", b"two", b"", b"one", "sixteen bytes é and more".encode()])
    names = np.empty((5, 37), np.uint8)
    name_by_hash(values, offsets, np.frombuffer(b"text:", np.uint8), names)
    written = [name.tobytes().decode() for name in names]
    assert written[0] == written[3] and len(set(written)) == 4
    assert written[4] == "text:56fe5facbd886707a36b23e1592b2967"


@given(st.binary(min_size=1, max_size=60), st.data())
@settings(max_examples=300, deadline=None)
def test_texts_that_differ_in_a_bit_or_in_length_have_other_hashes(content, data):
    values = np.frombuffer(content + bytes(1), np.uint8).copy()
    before = hash_bytes(values, 0, len(content))
    assert before == hash_bytes(np.frombuffer(b"x" + content, np.uint8), 1, len(content) + 1)
    assert before != hash_bytes(values, 0, len(content) + 1) and before != hash_bytes(values, 0, len(content) - 1)
    values[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    changed = hash_bytes(values, 0, len(content))
    assert changed[0] != before[0] and changed[1] != before[1]


def test_hashes_of_similar_texts_do_not_meet():
    texts = [f"{'x' * (i % 50)}{i}{'y' * (i % 7)}".encode() for i in range(20_000)]
    values, offsets = buffers(texts)
    pairs = [hash_bytes(values, offsets[i], offsets[i + 1]) for i in range(len(texts))]
    assert len({a for a, _ in pairs}) == len({b for _, b in pairs}) == len(set(texts))
    ones = np.array([bin(int(a)).count("1") for a, _ in pairs])
    assert 31.5 < ones.mean() < 32.5
