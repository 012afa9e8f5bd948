"""Which of the dropped documents are shown, whatever the shards that they were in."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.curate import CurateConfig, audit
from stages.curate.tables import SAMPLES
from stages.report.curation import drop_rows, read_samples
from tests.stages.curate.curated import corpus, curate, small_batches, source, write_jsonl


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
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("stages.curate.tables.TABLES_TOGETHER", 3)
        audit.write_samples(parts, path)
    found = pq.read_table(path)
    assert found.schema == SAMPLES
    hashes = audit.hashes(pa.array(reasons, pa.string()), pa.array(ids, pa.string())).tolist()
    by_hash = sorted(zip(reasons, hashes, ids, strict=True))
    wanted = []
    for reason in sorted(set(reasons)):
        wanted += [name for r, _, name in by_hash if r == reason][: audit.NUM_SAMPLES]
    assert found["id"].to_pylist() == wanted
    assert all(
        text == (f"{name} " + "é" * 400)[:300] for name, text in zip(wanted, found["excerpt"].to_pylist(), strict=True)
    )


def test_twenty_drops_of_each_reason_are_shown_with_how_they_begin(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small_batches(monkeypatch, 2000)
    short = {f"short{n:02}": f"Only {n} words." for n in range(30)}
    records = corpus(20)
    copies = [dict(record, id=f"copy{n}") for n, record in enumerate(records[:5])]
    write_jsonl("a.jsonl", records + copies + [{"text": text, "id": name} for name, text in short.items()])
    made = curate(CurateConfig(sources=(source(),), workers=1, most_lost_share=1))
    shown = {row["reason"]: row for row in drop_rows(made.facts, read_samples(made))}
    few = shown["quality: least words"]
    assert few["documents"] == 30 and len(few["samples"]) == 20
    assert all(short[sample["id"]] == sample["excerpt"] for sample in few["samples"])
    repeats = [s for reason, row in shown.items() if reason.startswith("exact duplicate") for s in row["samples"]]
    texts = {record["id"]: record["text"] for record in records + copies}
    assert len(repeats) == 5 and all(s["excerpt"] == texts[s["id"]][:300] for s in repeats)
    assert all(texts[s["survivor"]] == texts[s["id"]] for s in repeats)
