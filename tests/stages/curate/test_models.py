"""A trained classifier and an n-gram model of clean text in a run of the stage."""

import random
from pathlib import Path

import pyarrow as pa
import pytest

from data.errors import InputError
from data.quality.classifier_training import TrainingSettings, train_classifier
from data.quality.ngram_training import NgramSettings, train_ngrams
from stages.curate import STAGE, CurateConfig
from stages.store import Store
from tests.stages.curate.curated import corpus, curate, dropped, kept_texts, rows, source, write_jsonl


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def good(count: int, seed: int) -> list[str]:
    return [record["text"] for record in corpus(count, seed)]


def bad(count: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    words = ("cheap", "pills", "click", "winner", "casino", "free", "offer", "now")
    return ["\n".join(" ".join(rng.choice(words) for _ in range(9)) for _ in range(8)) for _ in range(count)]


def column(texts: list[str]) -> pa.LargeStringArray:
    return pa.array(texts, pa.large_string())


def records() -> list[dict]:
    return [{"id": f"good{i:02}", "text": text} for i, text in enumerate(good(20, 1))] + [
        {"id": f"bad{i:02}", "text": text} for i, text in enumerate(bad(9, 1))
    ]


def config(**settings) -> CurateConfig:
    return CurateConfig(sources=(source(quality="none"),), **settings)


def test_what_the_classifier_scores_low_goes_with_its_score_and_the_better_copy_survives():
    train_classifier(column(good(300, 2)), column(bad(300, 2)), TrainingSettings())[0].save(Path("quality.arrow"))
    spoilt = {"id": "spoilt", "text": good(20, 1)[0] + "\nClick now."}  # longer, and worse
    write_jsonl("a.jsonl", [*records(), spoilt])
    made = curate(config(classifier="quality.arrow"))
    gone = {row["id"]: row for row in rows(made, "dropped.parquet")}
    assert gone.pop("spoilt")["survivor"] == "good00" and set(gone) == {f"bad{i:02}" for i in range(9)}
    assert all(row["reason"] == "quality: least classifier score" and row["score"] < 0.5 for row in gone.values())
    texts = kept_texts(made)
    assert texts["train"] | texts["heldout"] == set(good(20, 1))
    assert len(made.manifest.externals["classifier"]) == 64


def test_text_that_the_ngram_model_finds_strange_goes():
    model = train_ngrams(column(good(20, 1)), NgramSettings(least_word_count=1))
    model.save(Path("clean.arrow"))
    worst, best = model.bits_per_byte(column(good(20, 1))).max(), model.bits_per_byte(column(bad(9, 1))).min()
    assert worst < best
    write_jsonl("a.jsonl", records())
    made = curate(config(perplexity_model="clean.arrow", perplexity_most=float(worst + best) / 2))
    assert {name: reason for name, (reason, _) in dropped(made).items()} == {
        f"bad{i:02}": "quality: most bits per byte" for i in range(9)
    }


def test_a_model_is_known_by_its_content_and_missed_by_its_name():
    write_jsonl("a.jsonl", records())
    keys = []
    for seed in (2, 3):
        train_classifier(column(good(300, seed)), column(bad(300, seed)), TrainingSettings())[0].save(Path("q.arrow"))
        keys.append(STAGE.externals(config(classifier="q.arrow"), Store(Path()))["classifier"])
    Path("q.arrow").rename("moved.arrow")
    assert STAGE.externals(config(classifier="moved.arrow"), Store(Path()))["classifier"] == keys[1] != keys[0]
    with pytest.raises(InputError, match="curate.classifier: there is no file q.arrow; train one"):
        curate(config(classifier="q.arrow"))
