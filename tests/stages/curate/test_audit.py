"""Which of the dropped documents are shown does not depend on the shards that they were in."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.curate import audit
from stages.curate.tables import SAMPLES


def table(ids: list[str], reasons: list[str]) -> pa.Table:
    n = len(ids)
    return audit.dropped_table(
        ids=pa.array(ids, pa.string()),
        domain="web",
        source=pa.array(["a"] * n, pa.string()),
        language=pa.array(["en"] * n, pa.string()),
        reason=pa.array(reasons, pa.string()),
        detail=pa.array([""] * n, pa.string()),
        score=np.zeros(n),
        survivor=None,
        num_bytes=np.arange(n),
    )


def texts(ids: list[str]) -> pa.LargeStringArray:
    return pa.array([f"{name} " + "é" * 400 for name in ids], pa.large_string())


@given(st.lists(st.sampled_from(["empty", "quality: least words", "x"]), max_size=120), st.integers(1, 50))
@settings(max_examples=25, deadline=None)
def test_samples_are_the_same_for_any_sharding(tmp_path_factory, reasons, shard_rows):
    ids = [f"d{i}" for i in range(len(reasons))]
    parts = [
        audit.sample(table(ids[at : at + shard_rows], reasons[at : at + shard_rows]), texts(ids[at : at + shard_rows]))
        for at in range(0, len(ids), shard_rows)
    ]
    path = tmp_path_factory.mktemp("samples") / "samples.parquet"
    audit.write_samples(parts, path)
    found = pq.read_table(path)
    assert found.schema == SAMPLES
    by_digest = sorted(zip(reasons, (audit.digest(r, n) for r, n in zip(reasons, ids, strict=True)), ids, strict=True))
    wanted = []
    for reason in sorted(set(reasons)):
        wanted += [name for r, _, name in by_digest if r == reason][: audit.NUM_SAMPLES]
    assert found["id"].to_pylist() == wanted
    assert all(
        text == (f"{name} " + "é" * 400)[:300] for name, text in zip(wanted, found["excerpt"].to_pylist(), strict=True)
    )
