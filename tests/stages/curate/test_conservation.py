"""Every record of every file is accounted for, whatever is in it, and the accounts agree with what was written."""

import gzip
import json
import random
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from stages.curate import CurateConfig
from stages.curate.artifact import domain_paths
from stages.store import Artifact
from tests.stages.curate.curated import corpus, curate, kept_texts, rows, sentences, small_batches, source, write_jsonl

NUM_RECORDS = 10_000


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def accounts(made: Artifact) -> dict[str, dict[str, tuple[int, int]]]:
    """Source file -> outcome -> documents and bytes; asserts that each file's balance."""
    found: dict[str, dict[str, tuple[int, int]]] = {}
    for row in pq.read_table(made.path / "accounting.parquet").to_pylist():
        found.setdefault(row["source"], {})[row["outcome"]] = (row["documents"], row["bytes"])
    for file, outcomes in found.items():
        fates = [entry for outcome, entry in outcomes.items() if outcome != "read"]
        assert outcomes["read"] == tuple(map(sum, zip(*fates, strict=True))), (file, outcomes)
    return found


def assert_accounts_agree_with_files(made: Artifact) -> None:
    """By source file: what the accounts say is kept and dropped is what the files of the artifact hold."""
    told = accounts(made)
    for split in ("train", "heldout"):
        documents, num_bytes = Counter[str](), Counter[str]()
        for paths in domain_paths(made.path, split).values():
            for path in paths:
                for row in pq.ParquetFile(path).read(["source", "text"]).to_pylist():
                    documents[row["source"]] += 1
                    num_bytes[row["source"]] += len(row["text"].encode())
        assert {f: o[split] for f, o in told.items() if split in o} == {
            file: (count, num_bytes[file]) for file, count in documents.items()
        }
    gone = Counter((row["source"], row["reason"]) for row in rows(made, "dropped.parquet"))
    sizes = Counter[tuple[str, str]]()
    for row in rows(made, "dropped.parquet"):
        sizes[row["source"], row["reason"]] += row["num_bytes"]
    assert {
        (file, outcome.removeprefix("dropped: ")): entry
        for file, outcomes in told.items()
        for outcome, entry in outcomes.items()
        if outcome.startswith("dropped: ")
    } == {key: (count, sizes[key]) for key, count in gone.items()}


def malformed(rng: random.Random, number: int) -> bytes:
    """A line that is not, or may not be, a JSON object with a text."""
    text = sentences(rng, rng.choice([1, 4]))
    kinds = (
        lambda: bytes(rng.randrange(256) for _ in range(rng.randint(1, 80))).replace(b"\n", b" ") or b"x",
        lambda: json.dumps({"text": text + chr(rng.randrange(0xD800, 0xE000)) + "end"}).encode(),
        lambda: json.dumps({"text": f"{text}\0{text[:20]}"}).encode(),
        lambda: json.dumps({"text": f"\u2028{text}\u2029\x85\v\f{number}"}, ensure_ascii=False).encode(),
        lambda: json.dumps({"text": f"{text}\r\n{number}"}).encode() + b"\r",
        lambda: json.dumps({"text": text})[: rng.randint(1, 40)].encode(),
        lambda: json.dumps({"text": rng.choice([None, 1, 1.5, True, [], {}, "", " \t "])}).encode(),
        lambda: json.dumps(rng.choice([None, 17, "text", [text], {"other": text}])).encode(),
        lambda: b"[" * rng.choice([3, 5000]) + b'{"text": "x"}',
        lambda: b'{"text": "a' + str(number).encode() + b'", "text": "' + text.replace("\n", " ").encode() + b'"}',
        lambda: b'{"n": 1' + b"0" * rng.choice([3, 400]) + b', "text": "' + text.replace("\n", " ").encode() + b'"}',
        lambda: json.dumps({"text": text}).encode().replace(b"a", b"\xff", 1),
        lambda: json.dumps({"text": text * rng.choice([1, 30])}).encode(),
    )
    return rng.choice(kinds)()


def test_ten_thousand_malformed_records_are_each_accounted_for(monkeypatch):
    small_batches(monkeypatch, 300_000)
    rng = random.Random(6)
    lines = [malformed(rng, number) for number in range(NUM_RECORDS)]
    lines = [line for line in lines if line.strip()]
    lines += [json.dumps(record).encode() for record in corpus(30)]
    per_file = [lines[number::3] for number in range(3)]
    for number, mine in enumerate(per_file):
        content = b"\n".join(mine) + b"\n" * (number % 2)
        Path(f"f{number}.jsonl.gz" if number == 2 else f"f{number}.jsonl").write_bytes(
            gzip.compress(content) if number == 2 else content
        )
    made = curate(CurateConfig(sources=(source("f*.jsonl*", id_field=None),), near_threshold=0.9))
    told = accounts(made)
    assert {file: outcomes["read"][0] for file, outcomes in told.items()} == {
        f"f{number}.jsonl{'.gz' if number == 2 else ''}": len(mine) for number, mine in enumerate(per_file)
    }
    assert_accounts_agree_with_files(made)
    (facts,) = made.facts["sources"]
    assert {"malformed JSON", "invalid UTF-8", "text missing", "text not a string", "empty"} <= set(facts["rejected"])
    assert set(facts["repaired"]) == {"NUL removed", "lone surrogate replaced by U+FFFD"}


def test_edits_and_drops_of_every_step_balance_in_each_file():
    rng = random.Random(7)
    notice = "All rights to this text are with the people who wrote it, every one of them."
    for number in range(3):
        records = [
            {"text": f"{notice}\n{sentences(rng, 7)}\nWrite to someone{i}@example{i}.net if you can."}
            for i in range(20)
        ]
        records += [{"text": records[0]["text"]}, {"text": f"{records[1]['text']} Really."}, {"text": notice}]
        records += [{"text": "de: der Hund und die Katze sind im Garten, und wir gehen heute nach Hause. " * 2}]
        write_jsonl(f"a{number}.jsonl", records)
    made = curate(
        CurateConfig(
            sources=(source("a*.jsonl", id_field=None, quality="none"),),
            languages=("en", "unknown"),
            pii=("email",),
            repeated_line_documents=10,
        )
    )
    assert_accounts_agree_with_files(made)
    domain = made.facts["domains"]["web"]
    assert set(domain["edited"]) == {"personal data", "repeated lines"} and made.facts["pii"]["email"] >= 60
    assert {"language: de not wanted", "quality: only repeated lines"} <= set(domain["dropped"])
    assert domain["bytes_in"] == (
        domain["train_bytes"]
        + domain["heldout_bytes"]
        + sum(domain["edited"].values())
        + sum(entry["bytes"] for entry in domain["dropped"].values())
    )
    texts = [row["text"] for side in ("train", "heldout") for row in rows(made, f"{side}/web")]
    assert texts and not any(notice in text or "@" in text for text in texts)
    funnel = made.facts["funnel"]["domains"]["web"]
    assert funnel[0] == [domain["documents_in"], domain["bytes_in"]]
    assert funnel[-1] == [
        domain["train_documents"] + domain["heldout_documents"],
        domain["train_bytes"] + domain["heldout_bytes"],
    ]
    assert all(before[0] >= after[0] for before, after in zip(funnel, funnel[1:], strict=False))


def test_lines_that_c4_does_not_want_are_edited_away_under_their_name():
    records = [{"text": f"{record['text']}\nNo end of a sentence", "id": record["id"]} for record in corpus(20)]
    write_jsonl("a.jsonl", records)
    made = curate(CurateConfig(sources=(source(quality="c4"),)))
    assert made.facts["domains"]["web"]["edited"] == {"lines that the C4 rules remove": 20 * 21}
    assert {text for texts in kept_texts(made).values() for text in texts} == {record["text"] for record in corpus(20)}
