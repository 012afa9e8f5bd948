"""Documents that end where their memory ends are compared as any others: nothing looks behind the last byte."""

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from data.dedup import dedup_kernels as kernels
from data.dedup.banding import NearDuplicateSettings
from data.dedup.repeated_lines import count_lines, remove_lines
from data.dedup.signature_kernels import single_spaced
from data.dedup.signatures import NUM_BYTES, NUM_NGRAMS, sign
from data.reading.tables import text_buffers
from tests.data.dedup.signed import column
from tests.data.text.last_page import at_the_end

SETTINGS = NearDuplicateSettings(ngram_words=2)
PIECES = st.sampled_from(
    ["a", " ", "\n", "word ", "\t\r\n", "x" * 63, "y" * 64, "é", "中", "one line of it\n", "z" * 200]
)
TEXTS = st.lists(st.lists(PIECES, max_size=12).map("".join), min_size=1, max_size=4)


def ending_column(texts: list[str]) -> pa.LargeStringArray:
    """The second and later texts of a column of which the last byte is the last of its page."""
    encoded = [text.encode() for text in ["before", *texts]]
    offsets = np.cumsum([0, *map(len, encoded)])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(at_the_end(b"".join(encoded)))]
    return pa.Array.from_buffers(pa.large_string(), len(encoded), buffers).slice(1)


@given(TEXTS)
@settings(max_examples=100, deadline=None)
def test_signatures_and_lines(texts):
    ending, plain = ending_column(texts), column([*texts, " " * 64]).slice(0, len(texts))
    assert sign(ending, SETTINGS).equals(sign(plain, SETTINGS))
    (hashes, counts), (other_hashes, other_counts) = count_lines(ending, 3), count_lines(plain, 3)
    assert hashes.tolist() == other_hashes.tolist() and counts.tolist() == other_counts.tolist()
    assert remove_lines(ending, hashes[::2], 3)[0].equals(remove_lines(plain, hashes[::2], 3)[0])


@given(TEXTS)
@settings(max_examples=100, deadline=None)
def test_payloads_fill_their_room_and_no_more(texts):
    signed, rows = sign(column(texts), SETTINGS), np.arange(len(texts))
    counts = np.zeros(len(texts), np.int64)
    for write, room in (
        (kernels.write_single_spaced, (signed.column(NUM_BYTES).to_numpy() + 7) // 8),
        (kernels.write_gram_sets, signed.column(NUM_NGRAMS).to_numpy().astype(np.int64)),
    ):
        grams = (2,) if write is kernels.write_gram_sets else ()
        found = []
        for texts_as in (ending_column(texts), column(texts)):
            out = at_the_end(bytes(8 * int(room.sum())))
            out = out.view(np.uint64) if grams else out
            write(*text_buffers(texts_as), rows, *grams, out, np.cumsum(room) - room, room, counts)
            assert (counts != kernels.ANOTHER_TEXT).all()
            found.append(out.tolist())
        assert found[0] == found[1]


@given(TEXTS)
@settings(max_examples=50, deadline=None)
def test_single_spaced_text_needs_a_block_more_than_its_bytes(texts):
    data = texts[0].encode()
    out = at_the_end(bytes(len(data) + 64))
    count = single_spaced(at_the_end(data), 0, len(data), out)
    assert bytes(out[:count]) == b" ".join(data.split())
