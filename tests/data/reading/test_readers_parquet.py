"""Reading Parquet: what becomes of each row, and that ranges of row groups give what the whole gives."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.errors import InputError
from data.reading import parquet as reader
from data.reading.parquet import row_group_bytes
from tests.data.reading.records_of import LINE_BOUNDARIES, parquet


def strings(values: list[bytes | None]) -> pa.Array:
    """A column that says it is text, whatever the bytes are."""
    raw = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(raw), raw.buffers())


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.dictionary(pa.int32(), pa.string())]
)
def test_texts_of_every_string_type(tmp_path, kind):
    texts = pa.array([LINE_BOUNDARIES, None, "b"])
    pq.write_table(pa.table({"body": texts.cast(kind), "n": [5, 6, 7]}), tmp_path / "a.parquet")
    found = parquet(tmp_path / "a.parquet", text="body", id="n")
    assert found.texts == [LINE_BOUNDARIES, "b"] and [row["id"] for row in found.rows] == ["5", "7"]
    assert [(record.id, record.reason) for record in found.rejected] == [("6", "text missing")]


def test_strings_that_are_not_utf8_are_set_aside_and_nul_is_removed(tmp_path):
    bad = strings([b"\xff\xfe", b"good", b"a\0b", b" \n", b"\xed\xa0\x80", None, b"\0"])
    pq.write_table(pa.table({"text": bad}), tmp_path / "a.parquet")
    found = parquet(tmp_path / "a.parquet")
    assert found.texts == ["good", "ab"] and found.repairs["NUL removed"] == 2
    assert [record.reason for record in found.rejected] == [
        "invalid UTF-8",
        "empty",
        "invalid UTF-8",
        "text missing",
        "empty",
    ]
    assert [row["id"].rpartition("#")[2] for row in found.rows] == ["1", "2"]


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]
)
def test_ids_and_groups_come_from_columns_of_names(tmp_path, kind):
    names = pa.array(["x", None, "", "a\0b", "same"]).cast(kind)
    table = {"text": ["one", "two", "three", "four", "four"], "id": names, "group": pa.array([1, 2, None, 2, None])}
    pq.write_table(pa.table(table), tmp_path / "a.parquet")
    found = parquet(tmp_path / "a.parquet", id="id", group="group").rows
    place = f"{tmp_path}/a.parquet"
    assert [row["id"] for row in found] == ["x", f"{place}#1", f"{place}#2", "ab", "same"]
    assert [row["group"] for row in found][:4:1] == ["1", "2", found[2]["group"], "2"]
    assert found[2]["group"].startswith("text:") and found[4]["group"].startswith("text:")
    assert found[2]["group"] != found[4]["group"]


def test_names_that_are_not_utf8_name_nothing(tmp_path):
    pq.write_table(pa.table({"text": ["a", "b"], "id": strings([b"\xff", b"good"])}), tmp_path / "a.parquet")
    assert [row["id"] for row in parquet(tmp_path / "a.parquet", id="id").rows] == [f"{tmp_path}/a.parquet#0", "good"]


def test_files_that_do_not_fit_are_errors(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"content": ["a"], "n": [1], "x": [1.5]}), path)
    with pytest.raises(InputError, match="no column 'text'; it has content, n, x"):
        parquet(path)
    with pytest.raises(InputError, match="column 'n' holds int64, not text; set the source's text_field"):
        parquet(path, text="n")
    with pytest.raises(InputError, match="column 'x' holds double, not names .*; set the source's id_field"):
        parquet(path, text="content", id="x")
    (tmp_path / "b.parquet").write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match="b.parquet: not a readable Parquet file"):
        parquet(tmp_path / "b.parquet")
    with pytest.raises(InputError, match="b.parquet: not a readable Parquet file"):
        row_group_bytes(tmp_path / "b.parquet")


def test_a_text_column_is_found_among_nested_ones(tmp_path):
    table = pa.table({"meta": [{"a": 1, "b": "x"}] * 3, "text": ["one", "two", "three"]})
    pq.write_table(table, tmp_path / "a.parquet")
    assert parquet(tmp_path / "a.parquet").texts == ["one", "two", "three"]


@pytest.mark.parametrize("piece_bytes", [1, 300, 1 << 20])
def test_ranges_of_row_groups_give_what_the_whole_gives(tmp_path, monkeypatch, piece_bytes):
    monkeypatch.setattr(reader, "PIECE_BYTES", piece_bytes)
    rng = np.random.default_rng(3)
    texts = [None if n == 0 else "x" * n + "\0" * (n % 11 == 1) for n in rng.integers(0, 60, 100).tolist()]
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": texts}), path, row_group_size=13)
    whole = parquet(path)
    assert len(row_group_bytes(path)) == 8 and len(whole.rows) + len(whole.rejected) == 100
    parts = [parquet(path, begin, end) for begin, end in ((0, 1), (1, 4), (4, 8))]
    assert [row for part in parts for row in part.rows] == whole.rows
    assert [record for part in parts for record in part.rejected] == whole.rejected


@given(st.lists(st.none() | st.binary(max_size=6) | st.text("a \0é\u2028", max_size=4).map(str.encode), max_size=30))
@settings(max_examples=60, deadline=None)
def test_every_row_is_a_document_or_set_aside(tmp_path_factory, values):
    path = tmp_path_factory.mktemp("p") / "a.parquet"
    pq.write_table(pa.table({"text": strings(values)}), path, row_group_size=7)
    found = parquet(path)
    kept = []
    for value in values:
        try:
            text = (value or b"").decode().replace("\0", "")
        except UnicodeDecodeError:
            continue
        if text.strip():
            kept.append(text)
    assert found.texts == kept and len(found.rows) + len(found.rejected) == len(values)
    places = [
        int(name.rpartition("#")[2]) for name in [*(r["id"] for r in found.rows), *(r.id for r in found.rejected)]
    ]
    assert sorted(places) == list(range(len(values)))
