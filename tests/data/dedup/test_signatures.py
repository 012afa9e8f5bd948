"""Signatures against plain Python: fingerprints, MinHash values, and the files of shards."""

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.dedup.banding import NearDuplicateSettings
from data.dedup.signature_kernels import EMPTY, fill_bins, fingerprint, single_spaced
from data.dedup.signatures import (
    BANDS,
    FINGERPRINT,
    NUM_BYTES,
    NUM_NGRAMS,
    SKETCH,
    VERSION,
    DocumentShard,
    column_values,
    open_signatures,
    sign,
    signature_schema,
    texts_with,
)
from tests.data.dedup.signed import column
from tests.data.text.ngram_sets import hash_texts

MASK = 2**64 - 1
SPACED = st.lists(st.sampled_from([" ", "  ", "\n", "\t \r\n", "word", "x" * 63, "y" * 64, "é\x0b", "\u00a0"])).map(
    "".join
)
DEFAULT = NearDuplicateSettings()


def minhash(grams: set[int], k: int) -> list[int]:
    """By the definition: the least value of the first round in which something fell into a bin."""
    bins = [int(EMPTY)] * k
    for number in range(2 * k):
        found: dict[int, int] = {}
        for gram in grams:
            h = (gram ^ (number * 0x9E3779B97F4A7C15 & MASK)) * 0xA0761D6478BD642F & MASK if number else gram
            h = h ^ h >> 32 if number else h
            place = (h >> 32) * k >> 32 if number < k else number - k
            found[place] = min(found.get(place, int(EMPTY)), h & 0xFFFFFFFF)
        for place, value in found.items():
            bins[place] = value if bins[place] == EMPTY else bins[place]
        if int(EMPTY) not in bins:
            break
    return bins


@given(SPACED, st.integers(0, 70), SPACED)
@settings(max_examples=200, deadline=None)
def test_single_spaced_text_is_that_of_a_plain_reading(text, shift, behind):
    data = text.encode()
    expected = b" ".join(data.split())
    values = np.frombuffer(b"z" * shift + data + behind.encode(), np.uint8)
    out = np.full(len(data) + 64, 7, np.uint8)
    count = single_spaced(values, shift, shift + len(data), out)
    assert bytes(out[:count]) == expected


@given(st.lists(st.text(st.sampled_from("ab \n"), max_size=40), min_size=2, max_size=6))
@settings(max_examples=100, deadline=None)
def test_fingerprints_are_equal_where_single_spaced_texts_are(texts):
    signed = sign(column(texts), DEFAULT)
    prints = [tuple(row) for row in column_values(signed, FINGERPRINT, np.uint64).tolist()]
    plain = [" ".join(text.split()) for text in texts]
    assert [[a == b for b in prints] for a in prints] == [[a == b for b in plain] for a in plain]
    assert signed.column(NUM_BYTES).to_pylist() == [len(text) for text in plain]


def test_a_fingerprint_depends_on_every_byte_and_on_the_length():
    seen = set()
    for length in range(60):
        text = np.zeros(length + 64, np.uint8)
        seen.add(fingerprint(text, length))
        for place in range(length):
            text[:length] = 0
            text[place] = 1
            seen.add(fingerprint(text, length))
    assert len(seen) == 60 + sum(range(60))
    assert len({half for pair in seen for half in pair}) == 2 * len(seen), "each half tells texts apart"


@given(st.sets(st.integers(0, MASK), max_size=30), st.integers(1, 24))
@settings(max_examples=150, deadline=None)
def test_bins_are_those_of_the_definition(grams, k):
    bins = np.zeros(k, np.uint32)
    fill_bins(np.array([*grams, *grams], np.uint64), 2 * len(grams), bins)
    assert bins.tolist() == (minhash(grams, k) if grams else [int(EMPTY)] * k)


@pytest.mark.parametrize(("count", "k"), [(64, 24), (64, 40), (100, 24), (300, 96), (150, 96), (64, 128)])
def test_bins_of_many_ngrams_are_those_of_the_definition(count, k):
    rng = np.random.default_rng(count + k)
    for _ in range(20):
        grams, bins = rng.integers(0, MASK, count, np.uint64), np.zeros(k, np.uint32)
        fill_bins(grams, count, bins)
        assert bins.tolist() == minhash(set(grams.tolist()), k)


@pytest.mark.parametrize("size", [1, 3, 12, 150, 3000])
def test_bins_agree_as_often_as_sets_overlap(size):
    rng = np.random.default_rng(size)
    k, trials, agreements = 96, 200, []
    for _ in range(trials):
        common, left, right = (rng.integers(0, MASK, count, np.uint64) for count in (2 * size, size, size))
        bins = np.zeros((2, k), np.uint32)
        for row, own in enumerate((left, right)):
            grams = np.concatenate([common, own])
            fill_bins(grams, len(grams), bins[row])
        agreements.append((bins[0] == bins[1]).mean())
    deviation = np.std(agreements) / trials**0.5
    assert (
        abs(np.mean(agreements) - 0.5) < 4 * deviation and np.std(agreements) < 1.3 * (0.25 / min(k, 4 * size)) ** 0.5
    )


@given(
    st.lists(st.lists(st.sampled_from("abcdé"), max_size=12).map(" ".join), min_size=1, max_size=6), st.integers(1, 4)
)
@settings(max_examples=50, deadline=None)
def test_signatures_follow_from_the_ngrams_wherever_the_texts_stand(texts, n):
    chosen = NearDuplicateSettings.explicit(bands=6, rows=2, ngram_words=n)
    signed = sign(column(["other", *texts, "text"]).slice(1, len(texts)), chosen)
    assert signed.schema == signature_schema(chosen) and signed.num_rows == len(texts)
    keys: dict[tuple[int, ...], int] = {}
    for i, text in enumerate(texts):
        (grams,) = hash_texts([text.encode()], n)
        bins = minhash(set(grams.tolist()), 12) if len(grams) else [int(EMPTY)] * 12
        assert signed.column(NUM_NGRAMS)[i].as_py() == max(0, len(text.split()) - n + 1)
        assert column_values(signed, SKETCH, np.uint8)[i].tolist() == [value % 256 for value in bins]
        for band, key in enumerate(column_values(signed, BANDS, np.uint64)[i].tolist()):
            assert keys.setdefault((band, *bins[2 * band : 2 * band + 2]), key) == key
    assert len(set(keys.values())) == len(keys)


def test_signatures_of_this_version_are_these():
    """Corpora that were signed before are compared with new ones: who changes this raises VERSION."""
    texts = [
        "The quick brown fox jumps over the lazy dog, 3 times; internationalisation of the dog follows.",
        "Съешь же ещё этих мягких французских булок, да выпей чаю",
        "日本語のテストです。กี่วัน",
        "short",
    ]
    signed = sign(column(texts), DEFAULT)
    names = (FINGERPRINT, BANDS, SKETCH)
    content = b"".join(column_values(signed, name, np.uint8).tobytes() for name in names)
    assert (VERSION, hashlib.blake2b(content, digest_size=8).hexdigest()) == (1, "e06604701e142e4e")
    assert signed.schema.metadata[b"version"] == b"1"


@pytest.mark.parametrize("suffix", ["arrow", "parquet"])
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_texts_are_read_where_one_is_wanted(tmp_path, suffix, kind):
    texts = [f"text {i}" for i in range(10)]
    table = pa.table({"id": texts, "text": pa.array(texts, kind)})
    path = tmp_path / f"texts.{suffix}"
    if suffix == "parquet":
        pq.write_table(table, path, row_group_size=4)
    else:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=4)
    shard = DocumentShard(texts=path, signatures=path, num_documents=10)
    wanted = np.zeros(10, bool)
    assert list(texts_with(shard, wanted)) == []
    wanted[[2, 9]] = True
    found = [(first, part.to_pylist()) for first, part in texts_with(shard, wanted)]
    assert found == [(0, texts[:4]), (8, texts[8:])]
    assert all(part.type == pa.large_string() for _, part in texts_with(shard, wanted))


@pytest.mark.parametrize("num_documents", [0, 5])
def test_a_file_of_signatures_is_one_batch(tmp_path, num_documents):
    chosen = NearDuplicateSettings.explicit(bands=6, rows=2)
    signed = sign(column([f"some text of number {i} here" for i in range(num_documents)]), chosen)
    path = tmp_path / "signatures.arrow"
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, signed.schema) as writer:
        writer.write_table(pa.Table.from_batches([signed]), max_chunksize=2)
    opened = open_signatures(DocumentShard(texts=path, signatures=path, num_documents=num_documents))
    assert opened.num_rows == num_documents
    for name in signed.schema.names:
        assert opened.column(name).to_pylist() == signed.column(name).to_pylist()
    assert column_values(opened, BANDS, np.uint64).shape == (num_documents, 6)
