"""Faults that users of comparable systems met, at the outermost layer that can show them."""

import itertools
import json
import random
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from data.errors import InputError
from stages.curate import CurateConfig
from stages.store import Artifact
from tests.stages.curate.curated import curate, dropped, rows, sentences, small_batches, source, write_jsonl


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def plain(**settings) -> CurateConfig:
    """Without rules that short made-up texts would break."""
    path = settings.pop("path", "a.jsonl")
    own = {name: settings.pop(name) for name in ("id_field", "group_field") if name in settings}
    return CurateConfig(sources=(source(path, quality="none", **own),), identify_languages=False, **settings)


def kept_ids(made: Artifact) -> list[str]:
    return sorted(row["id"] for side in ("train", "heldout") for row in rows(made, f"{side}/web"))


@pytest.mark.parametrize("order", range(4))
def test_of_equal_documents_with_odd_ids_exactly_one_survives(order):
    rng = random.Random(5)
    texts = {letter: sentences(rng, 6) for letter in "ABCD"}
    records = [{"id": f"{1000 + 7 * i}", "text": texts[letter]} for i, letter in enumerate("AAABBCD")]
    random.Random(order).shuffle(records)
    write_jsonl("a.jsonl", records)
    made = curate(plain())
    assert kept_ids(made) == ["1000", "1021", "1035", "1042"] and len(dropped(made)) == 3
    assert {name: to for name, (_, to) in dropped(made).items()} == {"1007": "1000", "1014": "1000", "1028": "1021"}


def test_a_chain_of_similar_texts_does_not_collapse_and_long_random_texts_stay():
    words = ["".join(pair) for pair in itertools.product("abcdefghijklmnop", repeat=2)]
    chain = [{"id": f"chain{i:02}", "text": " ".join(words[10 * i : 10 * i + 110])} for i in range(11)]
    rng = random.Random(1)
    letters = "etaoinsh"
    noise = [
        {
            "id": f"noise{i:03}",
            "text": " ".join("".join(rng.choice(letters) for _ in range(rng.randint(2, 9))) for _ in range(600)),
        }
        for i in range(200)
    ]
    write_jsonl("a.jsonl", chain + noise)
    made = curate(plain(near_threshold=0.8))
    assert all(name.startswith("chain") for name in dropped(made))
    texts = {record["id"]: record["text"] for record in chain}
    gone = {name: to for name, (reason, to) in dropped(made).items() if reason.startswith("near duplicate of ")}
    assert 0 < len(gone) <= 7, "a text is similar to its two neighbours alone"
    for name, survivor in gone.items():
        mine, other = (
            {tuple(text.split()[at : at + 5]) for at in range(106)} for text in (texts[name], texts[survivor])
        )
        assert len(mine & other) / len(mine | other) >= 0.8


def test_a_source_that_is_all_but_wiped_out_fails_the_run():
    rng = random.Random(2)
    text = sentences(rng, 6)
    write_jsonl("a.jsonl", [{"text": sentences(rng, 6)} for _ in range(5)] + [{"text": text}] * 200)
    with pytest.raises(
        InputError,
        match=r"source jsonl a.jsonl lost 97.\d% of its bytes: 199 dropped, most bytes as 'exact duplicate of .* text'"
        r".*curate.most_lost_share",
    ):
        curate(plain(id_field=None))
    assert curate(plain(id_field=None, most_lost_share=1)).facts["domains"]["web"]["train_documents"] == 5


def test_texts_shorter_than_an_ngram_are_not_one_another():
    texts = ["cat", "dog", "cat", "猫", "犬", "a b c d", "", "   ", "\n", "two words", "other words"]
    write_jsonl("a.jsonl", [{"id": f"{i}", "text": text} for i, text in enumerate(texts)])
    made = curate(plain())
    reasons = {name: reason for name, (reason, _) in dropped(made).items()}
    assert reasons.pop("2").startswith("exact duplicate of ") and reasons == dict.fromkeys(["6", "7", "8"], "empty")
    assert made.facts["domains"]["web"]["dropped"]["empty"]["documents"] == 3


def test_a_least_share_is_a_least_share_and_its_bound_is_kept():
    rng = random.Random(6)
    records = [{"id": "digits", "text": " ".join(str(rng.randrange(1000, 9999)) for _ in range(100))}]
    for percent in (79, 80, 81):
        words = ["the", "and", *sentences(rng, 9).replace(".", "").split()[: percent - 2]]
        numbers = [str(rng.randrange(1000, 9999)) for _ in range(100 - percent)]
        records.append({"id": f"letters{percent}", "text": " ".join(words + numbers)})
    write_jsonl("a.jsonl", records)
    made = curate(CurateConfig(sources=(source(quality="gopher-quality"),), identify_languages=False))
    reason = "quality: least share of units with a letter"
    assert dropped(made) == {"digits": (reason, "bound 0.8"), "letters79": (reason, "bound 0.8")}
    assert kept_ids(made) == ["letters80", "letters81"]


def test_survivors_do_not_depend_on_how_documents_are_cut_into_files_and_shards(monkeypatch):
    rng = random.Random(3)
    records = [{"id": f"d{i:03}", "text": sentences(rng, 6), "n": i % 9} for i in range(90)]
    records += [{"id": f"e{i:03}", "text": records[i * 3]["text"] + " ", "n": i} for i in range(5)]
    records += [
        {"id": f"f{i:03}", "text": records[i * 5 + 1]["text"].replace("river", "rivers", 1), "n": i} for i in range(5)
    ]
    kept = []
    for run, (num_files, batch_bytes) in enumerate([(3, 1 << 24), (3, 3000), (1, 1500), (7, 10_000)]):
        folder = Path(f"run{run}")
        folder.mkdir()
        random.Random(run).shuffle(records)
        for number in range(num_files):
            write_jsonl(f"{folder}/{'zyxwvut'[number]}.jsonl", records[number::num_files])
        small_batches(monkeypatch, batch_bytes)
        made = curate(plain(path=f"{folder}/*.jsonl", group_field="n", workers=run % 2 + 1))
        assert len(dropped(made)) == 10
        kept.append([sorted(row["id"] for row in rows(made, f"{side}/web")) for side in ("train", "heldout")])
    assert kept[1:] == kept[:-1]


def test_a_lone_surrogate_costs_only_a_character_and_raw_bytes_only_a_record():
    rng = random.Random(4)
    good = [sentences(rng, 6) for _ in range(4)]
    lines = [json.dumps({"id": f"g{i}", "text": text}).encode() for i, text in enumerate(good)]
    lines.insert(1, json.dumps({"id": "half", "text": "\ud83d" + sentences(rng, 6)}).encode())
    lines.insert(3, b"\xff\xfe")
    lines.append(json.dumps({"id": "nul", "text": "a\0b" + sentences(rng, 6)}).encode())
    Path("a.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    made = curate(plain())
    texts = {row["id"]: row["text"] for side in ("train", "heldout") for row in rows(made, f"{side}/web")}
    assert [texts[f"g{i}"] for i in range(4)] == good
    assert texts["half"][0] == "\ufffd" and texts["nul"].startswith("ab") and len(texts) == 6
    (facts,) = made.facts["sources"]
    assert facts["rejected"] == {"invalid UTF-8": 1}
    assert facts["repaired"] == {"NUL removed": 1, "lone surrogate replaced by U+FFFD": 1}


def test_text_beyond_the_limit_of_a_batch_is_cut_between_documents(monkeypatch):
    small_batches(monkeypatch, 1024)
    records = [{"id": f"d{i:02}", "text": f"{i:03}" * 100} for i in range(50)] + [{"id": "long", "text": "x " * 2560}]
    write_jsonl("a.jsonl", records)
    made = curate(plain(near_threshold=1.0))
    found = {row["id"]: row["text"] for side in ("train", "heldout") for row in rows(made, f"{side}/web")}
    assert found == {record["id"]: record["text"] for record in records}
    schema = pq.read_schema(made.path / "train/web-00000.parquet")
    assert schema.field("text").type == "large_string"
    assert made.facts["domains"]["web"]["bytes_in"] == 50 * 300 + 5120
