"""A second run against a corpus that is there keeps what is new and nothing twice."""

import itertools
import random
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from data.errors import InputError
from stages.curate import STAGE, CurateConfig
from stages.curate.work import read_arrow
from stages.store import Artifact, Store
from tests.stages.curate.curated import corpus, curate, dropped, kept_texts, rows, sentences, source, write_jsonl


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def first() -> Artifact:
    write_jsonl("old.jsonl", corpus(40))
    return curate(CurateConfig(sources=(source("old.jsonl", group_field="from"),)))


def config(first: Artifact, **settings) -> CurateConfig:
    return CurateConfig(sources=(source("new.jsonl"),), **{"known_corpora": (str(first.path),)} | settings)


def test_documents_of_a_known_corpus_survive_and_are_not_written_again(first):
    old, new = corpus(40), corpus(12, seed=1)
    rng, copies = random.Random(2), []
    for i in range(6):
        copies.append({"id": f"exact{i}", "text": old[3 * i]["text"].replace("\n", "\n\n")})
        copies.append({"id": f"near{i}", "text": old[3 * i + 1]["text"] + f"\nA last line, number {'abcdef'[i]}."})
    held = {row["id"] for row in rows(first, "heldout/web")}
    inside = next(record for record in old if record["id"] in held)
    copies.append({"id": "holds", "text": f"{sentences(rng, 40)}\n{inside['text']}\n{sentences(rng, 40)}"})
    longer = [dict(record, id=f"new{i}") for i, record in enumerate(new)]
    write_jsonl("new.jsonl", copies + longer)
    made = curate(config(first))
    gone = dropped(made)
    for i in range(6):
        assert gone[f"exact{i}"] == ("exact duplicate of a known corpus", old[3 * i]["id"])
        assert gone[f"near{i}"] == ("near duplicate of a known corpus", old[3 * i + 1]["id"])
    assert gone["holds"] == ("holds a held-out text", inside["id"])
    texts = kept_texts(made)
    assert texts["train"] | texts["heldout"] == {record["text"] for record in new}
    assert made.manifest.externals["known_corpora"] == [first.digest]


def test_a_third_run_knows_both(first):
    write_jsonl("new.jsonl", corpus(12, seed=1))
    second = curate(config(first))
    third = corpus(9, seed=3)
    mixed = [*corpus(40)[:5], *corpus(12, seed=1)[:5], *third]
    write_jsonl("new.jsonl", [dict(record, id=f"m{i}") for i, record in enumerate(mixed)])
    made = curate(config(first, known_corpora=(str(first.path), str(second.path))))
    assert len(dropped(made)) == 10
    texts = kept_texts(made)
    assert texts["train"] | texts["heldout"] == {record["text"] for record in third}


def test_a_known_document_counts_although_another_known_one_resembles_it():
    words = ["".join(pair) for pair in itertools.product("abcdefghijkl", repeat=2)]

    def chained(number: int) -> dict:
        return {"id": f"chain{number}", "text": " ".join(words[10 * number : 10 * number + 110])}

    corpora = []
    for number in range(2):
        write_jsonl(f"old{number}.jsonl", [chained(number), *corpus(6, seed=10 + number)])
        made = curate(CurateConfig(sources=(source(f"old{number}.jsonl", quality="none"),), heldout_max_bytes=100))
        assert not dropped(made)
        corpora.append(str(made.path))
    write_jsonl("new.jsonl", [chained(2), *corpus(6, seed=20)])
    made = curate(
        CurateConfig(sources=(source("new.jsonl", quality="none"),), known_corpora=tuple(corpora), overlap_text_share=1)
    )
    assert dropped(made)["chain2"] == ("near duplicate of a known corpus", "chain1")


def test_names_of_known_documents_are_not_given_again(first):
    write_jsonl("new.jsonl", corpus(12, seed=1))
    made = curate(config(first))
    assert {row["id"] for side in ("train", "heldout") for row in rows(made, f"{side}/web")} == {
        f"d{i:03}~2" for i in range(12)
    }


def test_the_index_has_a_row_for_each_document(first):
    for split in ("train", "heldout"):
        for path in (first.path / split).iterdir():
            index = first.path / "index" / split / f"{path.stem}.arrow"
            assert read_arrow(index).num_rows == pq.read_metadata(path).num_rows > 0


def test_other_settings_and_other_folders_are_refused_with_the_fix(first):
    write_jsonl("new.jsonl", corpus(12, seed=1))
    with pytest.raises(InputError, match=r"other settings .*ngram_words 5, not 7.*set curate.near_threshold"):
        curate(config(first, near_ngram_words=7))
    with pytest.raises(InputError, match="none is no finished corpus; name a folder"):
        STAGE.externals(config(first, known_corpora=("none",)), Store(Path()))
