"""A user relies on: no document is left out or divided, and no shard is longer than was asked, but for a document that
is.
"""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.curate.artifact import file_path
from stages.shard_plan import plan_shards


def one_by_one(lengths: list[int], shard_bytes: int) -> list[tuple[int, int, int]]:
    """first row, number of rows, bytes of each shard."""
    found: list[list[int]] = []
    for row, length in enumerate(lengths):
        if not found or found[-1][2] + length > shard_bytes:
            found.append([row, 0, 0])
        found[-1][1:] = [found[-1][1] + 1, found[-1][2] + length]
    return [(first, rows, size) for first, rows, size in found] or [(0, 0, 0)]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("corpus")
    (made / "train").mkdir()
    return made


@settings(max_examples=60)
@given(
    lengths=st.lists(st.integers(0, 30), max_size=60),
    shard_bytes=st.integers(1, 40),
    rows_in_group=st.integers(1, 20),
    rows_in_file=st.integers(1, 70),
)
def test_shards_are_those_of_taking_documents_one_by_one(
    corpus: Path, lengths: list[int], shard_bytes: int, rows_in_group: int, rows_in_file: int
) -> None:
    table = pa.table(
        {"id": [f"{i}" for i in range(len(lengths))], "text": ["é" * (n // 2) + "x" * (n % 2) for n in lengths]},
        schema=pa.schema([("id", pa.string()), ("text", pa.string())]),
    )
    for path in (corpus / "train").iterdir():
        path.unlink()
    for number, first in enumerate(range(0, max(1, len(lengths)), rows_in_file)):
        part = table.slice(first, rows_in_file)
        pq.write_table(part, file_path(corpus, "train", "a", number), row_group_size=rows_in_group)
    plans = plan_shards(corpus, shard_bytes)
    starts, first = [], 0
    for plan in plans:
        starts.append((first, plan.num_rows, plan.text_bytes))
        first += plan.num_rows
    assert starts == one_by_one(lengths, shard_bytes)
    assert [plan.number for plan in plans] == list(range(len(plans)))
    assert [name for plan in plans for name in plan.rows().column("id").to_pylist()] == table["id"].to_pylist()
