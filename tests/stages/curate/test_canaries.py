"""Planted canaries reach training text as they are, whatever curation does to all else."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from data.canaries import canary
from stages.curate import STAGE, CurateConfig, Source
from stages.store import Store
from stages.suites import SuitesConfig
from tests.stages.curate.curated import corpus, curate, dropped, rows, source, write_jsonl
from tests.stages.curate.test_conservation import accounts, assert_accounts_agree_with_files

SEED, NUMBER = 3, 40
TEXTS = [canary(SEED, index).text for index in range(NUMBER)]


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def planted(**settings: object) -> Source:
    return Source(**({"kind": "canaries", "seed": SEED, "number": NUMBER} | settings))  # type: ignore[arg-type]


def test_nothing_is_judged_edited_compared_or_held_out() -> None:
    """Every setting here would take canaries away, or half of what they say: they are alike, short, no prose, hold
    numbers, repeat a line of another document, and there are as many groups of them as documents."""
    records = corpus(30)
    records[0]["text"] += "\n" + TEXTS[0]
    records += [{"text": TEXTS[0] + "and more of it in the same line " * 3, "id": f"r{i}"} for i in range(3)]
    records += [{"text": text, "id": f"c{i}"} for i, text in enumerate(TEXTS)]
    write_jsonl("a.jsonl", records)
    config = CurateConfig(
        sources=(source(quality="none"), planted()),
        languages=("fi", "unknown", "en", "sv", "de", "nl"),
        pii=("secret", "email", "iban", "card", "ip", "phone"),
        near_threshold=0.1,
        near_ngram_words=2,
        overlap_ngram_words=5,
        overlap_short_words=1,
        overlap_text_share=0.01,
        heldout_fraction=0.5,
        repeated_line_documents=1,
        repeated_line_characters=5,
        suites=SuitesConfig(names=("safety",), last_names=()),
        most_lost_share=1,
    )
    made = curate(config)
    found = rows(made, "train/canary")
    assert [row["text"] for row in found] == TEXTS, "in order, each once, byte for byte"
    assert {row["language"] for row in found} == {""} and len({row["group"] for row in found}) == NUMBER
    assert rows(made, "heldout/canary") == [] and not (made.path / "heldout" / "canary-00000.parquet").exists()
    assert not [name for name in dropped(made) if name.startswith("canaries:")]
    assert_accounts_agree_with_files(made)
    size = sum(map(len, TEXTS))
    assert accounts(made)[f"canaries:{SEED}"] == {"read": (NUMBER, size), "train": (NUMBER, size)}
    assert made.facts["domains"]["canary"] | {"dropped": {}, "edited": {}} == made.facts["domains"]["canary"]
    assert not {row["text"] for row in rows(made, "train/web")} & set(TEXTS), "the same texts, not planted, all go"


def test_the_other_domains_are_what_they_are_without_canaries() -> None:
    write_jsonl("a.jsonl", corpus(60))
    alone, beside = (curate(CurateConfig(sources=found), root=name) for name, found in
                     (("alone", (source(),)), ("beside", (planted(), source()))))  # fmt: skip
    for split in ("train", "heldout"):
        assert rows(alone, f"{split}/web") == rows(beside, f"{split}/web")
    assert rows(alone, "heldout/web")


def test_another_number_or_seed_or_definition_is_another_corpus(monkeypatch: pytest.MonkeyPatch) -> None:
    write_jsonl("a.jsonl", corpus(3))
    config = CurateConfig(sources=(source(), planted()))
    before = STAGE.externals(config, Store(Path()))
    assert before == STAGE.externals(config, Store(Path()))
    monkeypatch.setattr("stages.curate.sources.DEFINITION", 2)
    assert before != STAGE.externals(config, Store(Path()))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"number": 0}, "a source of kind canaries needs number"),
        ({"domain": "web"}, "domain has no effect on a source of kind canaries"),
        ({"quality": "prose"}, "quality has no effect on a source of kind canaries"),
        ({"max_bytes": 5}, "max_bytes has no effect on a source of kind canaries"),
    ],
)
def test_what_makes_no_sense_is_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        planted(**settings)


def test_the_domain_is_theirs_and_one_source_plants_them() -> None:
    with pytest.raises(ValidationError, match="'canary' is the domain of planted canaries"):
        source(domain="canary")
    with pytest.raises(ValidationError, match="seed has no effect on a source of kind jsonl"):
        source(seed=4)
    with pytest.raises(ValidationError, match="several sources are of kind canaries"):
        CurateConfig(sources=(planted(), planted(seed=9)))
