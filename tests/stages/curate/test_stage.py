"""The curate stage: what a corpus promises to the stages after it, and what a user hears whose sources are bad."""

import random
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from data.errors import InputError
from data.heldout.judged_item import JudgedItem
from stages.curate import STAGE, CurateConfig, Source
from stages.curate.config import Uncovered
from stages.errors import TryAgain
from stages.journal import Event, read_events
from stages.store import Store
from stages.suites import SuitesConfig
from tests.stages.curate.curated import corpus, curate, dropped, kept_texts, rows, sentences, source, write_jsonl

AMHARIC = (
    "የሰው ልጅ ሁሉ ሲወለድ ነጻና በክብርና በመብትም እኩልነት ያለው ነው። የተፈጥሮ ማስተዋልና ሕሊና ስላለው አንዱ ሌላውን በወንድማማችነት መንፈስ መመልከት ይገባዋል።",
    "እያንዳንዱ ሰው የመኖር፣ በነጻነትና በሰላም የመኖር መብት አለው። ማንም ሰው በባርነት ወይም በግዴታ አገልጋይነት አይያዝም።",
)


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_every_record_is_kept_or_dropped_with_a_reason():
    records = corpus()
    records += [{"text": records[1]["text"] + "  \n", "id": "spaced"}, {"text": "too short", "id": "short"}]
    write_jsonl("a.jsonl", records)
    with open("a.jsonl", "ab") as file:
        file.write(b'{"text": "\xff"}\n{"text": \n{"no": 1}\n{"text": "  "}\n{"text": "x\\ud800", "id": "repaired"}\n')
    made = curate(CurateConfig(sources=(source(),)))
    facts = made.facts["domains"]["web"]
    train, heldout, gone = rows(made, "train/web"), rows(made, "heldout/web"), dropped(made)
    assert facts["documents_in"] == 67 == len(train) + len(heldout) + len(gone)
    texts = [row["text"] for row in train + heldout]
    assert sum(len(text.encode()) for text in texts) == facts["train_bytes"] + facts["heldout_bytes"]
    in_table = Counter(row["reason"] for row in rows(made, "dropped.parquet"))
    assert in_table == {reason: entry["documents"] for reason, entry in facts["dropped"].items()}
    assert (
        sum(row["num_bytes"] for row in rows(made, "dropped.parquet"))
        == facts["bytes_in"] - facts["train_bytes"] - facts["heldout_bytes"]
    )
    assert {gone[f"a.jsonl#{n}"][0] for n in (63, 64, 65, 66)} == {
        "invalid UTF-8",
        "malformed JSON",
        "text missing",
        "empty",
    }
    assert gone["short"] == ("quality: least words", "bound 30") and gone["repaired"][0] == "quality: least words"
    assert gone["d001"][0].startswith("exact duplicate") and gone["d001"][1] == "spaced"
    assert made.facts["sources"][0]["repaired"] == {"lone surrogate replaced by U+FFFD": 1}
    original = {record["text"] for record in records}
    assert set(texts) <= original and len(set(texts)) == len(texts)
    schema = pq.read_schema(made.path / "train/web-00000.parquet")
    assert schema.names == ["id", "text", "domain", "group", "source", "language"]
    assert schema.field("text").type == pa.large_string()


def test_the_result_does_not_depend_on_workers_and_repeats_byte_for_byte():
    write_jsonl("a.jsonl", corpus(90) + [dict(record, id=record["id"] + "copy") for record in corpus(30)])
    one = curate(CurateConfig(sources=(source(),), workers=1), "one")
    four = curate(CurateConfig(sources=(source(),), workers=4, warn_lost_share=0.1), "four")
    assert one.key == four.key and one.digest == four.digest
    files = [{e.path: e.digest for e in made.manifest.files if not e.measured} for made in (one, four)]
    assert files[0] == files[1] and set(files[0]) == {
        *(f"{side}/web-00000.parquet" for side in ("train", "heldout")),
        *(f"index/{side}/web-00000.arrow" for side in ("train", "heldout")),
        *(f"{name}.parquet" for name in ("dropped", "samples", "accounting")),
        "facts.json",
    }


def test_renamed_and_reordered_files_leave_the_same_texts():
    records = corpus(80)
    for i in range(10):
        records.append({"text": records[i]["text"].replace("river", "stream", 1), "id": f"near{i}"})
    random.Random(1).shuffle(records)
    for number in range(3):
        write_jsonl(f"a{number}.jsonl", records[number::3])
        write_jsonl(f"b{7 - number}.jsonl", records[number::3][::-1])
    kept = []
    for pattern in ("a*.jsonl", "b*.jsonl"):
        made = curate(CurateConfig(sources=(source(pattern, id_field=None),)))
        kept.append([{row["text"] for row in rows(made, f"{side}/web")} for side in ("train", "heldout")])
        assert sum(entry["documents"] for entry in made.facts["domains"]["web"]["dropped"].values()) == 10
    assert kept[0] == kept[1]


def test_groups_are_whole_on_one_side_in_every_domain():
    rng = random.Random(3)
    for domain in ("prose", "notes"):
        write_jsonl(f"{domain}.jsonl", [{"text": sentences(rng, 6), "file": f"f{i % 60}"} for i in range(120)])
    sources = tuple(source(f"{d}.jsonl", domain=d, group_field="file", id_field=None) for d in ("prose", "notes"))
    made = curate(CurateConfig(sources=sources, heldout_fraction=0.2))
    sides = {
        side: {row["group"] for d in ("prose", "notes") for row in rows(made, f"{side}/{d}")}
        for side in ("train", "heldout")
    }
    assert not sides["train"] & sides["heldout"] and len(sides["train"] | sides["heldout"]) == 60
    assert made.facts["heldout_groups"] == len(sides["heldout"]) > 1


def test_training_text_that_repeats_held_out_text_goes_and_held_out_text_stays():
    records = corpus(60)
    write_jsonl("a.jsonl", records)
    config = CurateConfig(sources=(source(group_field="from"),), heldout_fraction=0.2)
    held = rows(curate(config), "heldout/web")
    rng, text = random.Random(9), held[0]["text"]
    lines = text.split("\n")
    padding = sentences(rng, 3)
    copies = {
        "exact": text.replace("\n", "  \n"),
        "near": text + "\nOne more line of it.",
        "part": "\n".join(lines[:6]) + "\n" + padding,
        "whole": sentences(rng, 30) + "\n" + text + "\n" + sentences(rng, 30),
        "little": lines[0] + "\n" + sentences(rng, 12),
    }
    training_group = next(r["from"] for r in records if r["from"] not in {row["group"] for row in held})
    write_jsonl("a.jsonl", records + [{"text": t, "id": name, "from": training_group} for name, t in copies.items()])
    made = curate(config)
    gone = dropped(made)
    assert [row["id"] for row in rows(made, "heldout/web")] == [row["id"] for row in held]
    assert gone["exact"] == ("exact duplicate of held-out text", held[0]["id"])
    assert gone["near"] == ("near duplicate of held-out text", held[0]["id"])
    assert gone["part"][0] == "overlap with held-out text" and "little" not in gone
    assert gone["whole"] == ("holds a held-out text", held[0]["id"])


def test_training_text_that_holds_a_suite_item_goes(monkeypatch):
    items = [JudgedItem("riddles", "0", "short item"), JudgedItem("riddles", "1", sentences(random.Random(11), 3))]
    monkeypatch.setattr("stages.curate.pipeline.fixed_texts", lambda names, waived: iter(items))
    records = corpus(20)
    records.append({"text": records[0]["text"] + "\n" + sentences(random.Random(12), 200) + "\n" + items[1].text})
    records[-1]["id"] = "leak"
    write_jsonl("a.jsonl", records)
    made = curate(CurateConfig(sources=(source(),), heldout_max_bytes=1000))
    assert dropped(made)["leak"] == ("holds a suite item", "riddles 1")
    assert made.facts["decontamination"]["tasks"] == {"riddles": {"items": 2, "too_short": 1, "documents": 1}}


def test_what_the_suites_ask_and_what_the_files_hold_is_in_the_key():
    write_jsonl("a.jsonl", corpus(5))
    config = CurateConfig(sources=(source(),))
    before = STAGE.externals(config, Store(Path()))
    assert STAGE.externals(config, Store(Path())) == before and list(before["sources"][0]["files"]) == ["a.jsonl"]
    assert (
        STAGE.externals(CurateConfig(sources=config.sources, suites=SuitesConfig(names=())), Store(Path()))["suites"]
        != before["suites"]
    )
    write_jsonl("a.jsonl", corpus(5, seed=1))
    assert STAGE.externals(config, Store(Path()))["sources"] != before["sources"]


def test_the_version_of_lm_eval_is_in_the_key_where_its_items_are_read_and_only_there(monkeypatch):
    write_jsonl("a.jsonl", corpus(5))
    Path("hub.toml").write_text(
        'name = "hub"\naxis = "capability"\nversion = 1\n'
        '[[tasks]]\nname = "piqa"\nsource = "lm_eval"\nversion = 1\nlimit = 3\n'
    )

    def externals(names: tuple[str, ...], waived: tuple[str, ...] = ()) -> dict:
        suites = SuitesConfig(names=names, waived_tasks=waived)
        return STAGE.externals(CurateConfig(sources=(source(),), suites=suites), Store(Path()))

    found = []
    for version in ("0.4.13", "0.4.14"):
        monkeypatch.setattr("eval.suites.metadata.version", lambda name, version=version: version)
        found.append([externals(("hub.toml",)), externals(("hub.toml",), ("piqa",)), externals(("core",))])
    (read, waived, own), (read_later, waived_later, own_later) = found
    assert read != read_later and (waived, own) == (waived_later, own_later)


def test_a_source_that_changes_while_it_is_read_is_read_again_later():
    write_jsonl("a.jsonl", corpus(20))

    def grow(event: Event) -> None:
        if event["kind"] == "progress" and event["name"].startswith("read"):
            with open("a.jsonl", "a") as file:
                file.write('{"text": "late"}\n')

    with pytest.raises(TryAgain, match="a source changed while it was being read"):
        curate(CurateConfig(sources=(source(),)), listeners=(grow,))


def test_text_without_word_spaces_is_kept():
    rng = random.Random(4)
    chinese = ["".join(chr(rng.randrange(0x4E00, 0x9000)) for _ in range(300)) + "。" for _ in range(30)]
    write_jsonl("a.jsonl", [{"text": text} for text in chinese] + corpus(3))
    made = curate(CurateConfig(sources=(source(id_field=None),)))
    assert not made.facts["domains"]["web"]["dropped"]


def test_text_of_a_language_without_rules_is_kept_and_told_or_dropped_as_the_recipe_says():
    write_jsonl("a.jsonl", [{"text": text, "id": text[:9]} for text in AMHARIC] + corpus(3))
    config = CurateConfig(sources=(source(quality="fineweb"),))
    made = curate(config)
    assert made.facts["not_judged"] == {
        "am": {"web": {"documents": 2, "bytes": sum(len(text.encode()) for text in AMHARIC)}}
    }
    assert {text for texts in kept_texts(made).values() for text in texts} >= set(AMHARIC)
    made = curate(config.model_copy(update={"uncovered_languages": Uncovered.DROP}))
    gone = rows(made, "dropped.parquet")
    assert {(row["reason"], row["detail"], row["score"]) for row in gone} == {
        ("quality: no rules for the language", "", None)
    }


def test_code_is_judged_as_code_and_a_preset_can_be_chosen():
    code = [f"def f{i}(x):\n" + "\n".join(f"    x[{i}{j}] += {j}" for j in range(20)) for i in range(10)]
    for i, text in enumerate(code):
        Path(f"m{i}.py").write_text(text)
    settings = {"kind": "text", "path": "m*.py", "domain": "code", "id_field": None}
    kept = curate(CurateConfig(sources=(source(**settings | {"quality": "code"}),), near_threshold=1.0))
    assert kept.facts["domains"]["code"]["dropped"] == {}
    assert [row["group"] for row in rows(kept, "heldout/code")][0].endswith(".py")
    with pytest.raises(InputError, match="the corpus is empty: 10 records read, 10 dropped, most bytes as 'quality: "):
        curate(CurateConfig(sources=(source(**settings),), identify_languages=False))


def test_line_boundaries_inside_a_text_survive_reading_and_writing():
    odd = "one\u2028two\x85three\x0bfour\x0cfive\r\nsix\u2029"
    records = [{"text": odd + record["text"], "id": record["id"]} for record in corpus(10)]
    write_jsonl("a.jsonl", records)
    made = curate(CurateConfig(sources=(source(),)))
    found = {row["id"]: row["text"] for side in ("train", "heldout") for row in rows(made, f"{side}/web")}
    assert found == {record["id"]: record["text"] for record in records}


def test_a_limit_stops_reading_and_says_so():
    write_jsonl("a.jsonl", corpus(50))
    made = curate(CurateConfig(sources=(source(max_bytes=5000),)))
    (facts,) = made.facts["sources"]
    assert facts["stopped_at_max_bytes"] == ["web"] and 5000 <= facts["bytes"]["web"] < 6500


def test_reading_a_dataset_comes_to_its_end():
    import datasets

    datasets.Dataset.from_list(corpus(300)).save_to_disk("saved")
    chosen = Source(kind="huggingface", name="saved", domain="web", id_field="id")
    events: list[Event] = []
    curate(CurateConfig(sources=(chosen,)), listeners=(events.append,))
    shown = [(e["done"], e["total"]) for e in events if e["kind"] == "progress" and e["name"].startswith("read")]
    assert shown[0] == (0, 1) and shown[-1] == (1, 1)


def test_ids_that_repeat_are_told_apart():
    records = corpus(12)
    write_jsonl("a.jsonl", [dict(record, id="same") for record in records])
    made = curate(CurateConfig(sources=(source(),)))
    ids = [row["id"] for side in ("train", "heldout") for row in rows(made, f"{side}/web")]
    assert sorted(ids) == sorted(["same", *[f"same~{n}" for n in range(2, 13)]])
    assert made.facts["sources"][0]["renamed_ids"] == 11


def test_a_domain_that_loses_much_is_warned_of():
    records = corpus(10)
    write_jsonl("a.jsonl", records + [dict(record, id=f"{record['id']}-{n}") for record in records for n in range(4)])
    made = curate(CurateConfig(sources=(source(),)))
    (warning,) = [event["text"] for event in read_events(made.path / "events.jsonl") if event["kind"] == "warning"]
    assert warning.startswith("domain 'web' lost 80% of its bytes: 40 dropped, ") and "exact duplicate" in warning
    assert warning.endswith(f"`python -m stages dropped {made.key}` shows what went")


def test_the_expected_recall_is_told_and_settings_without_any_are_refused():
    write_jsonl("a.jsonl", corpus(10))
    made = curate(CurateConfig(sources=(source(),)))
    found = made.facts["near_duplicates"]
    assert found["expected_recall_at_threshold"] >= 0.99 and found["bands"] * found["rows"] <= 128
    told = f"{found['expected_recall_at_threshold']:.4f} of the pairs at 0.8"
    assert any(told in event.get("text", "") for event in read_events(made.path / "events.jsonl"))
    with pytest.raises(ValidationError, match="greater than or equal to 0.5"):
        CurateConfig(near_recall=0.4)


def test_the_python_environment_is_curated_into_its_domains():
    chosen = Source(kind="python-environment", domains=("reference", "licence"), max_bytes=300_000)
    made = curate(CurateConfig(sources=(chosen,)))
    assert set(made.facts["domains"]) == {"reference", "licence"}
    reference, licence = made.facts["domains"]["reference"], made.facts["domains"]["licence"]
    assert reference["train_documents"] > 30 and reference["heldout_documents"] >= 1
    assert any("duplicate" in reason for reason in licence["dropped"])
    assert "longhaul" not in made.manifest.externals["sources"][0]["packages"]


def test_a_setting_without_effect_is_warned_of():
    write_jsonl("a.jsonl", corpus(20))
    made = curate(CurateConfig(sources=(source(),), classifier_least=0.7, repeated_line_characters=50))
    warnings = [event["text"] for event in read_events(made.path / "events.jsonl") if event["kind"] == "warning"]
    assert [text.split()[0] for text in warnings] == ["curate.classifier_least", "curate.repeated_line_characters"]
