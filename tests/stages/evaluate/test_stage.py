from importlib import metadata
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch

from data.errors import InputError
from data.vocabulary.vocabulary import Vocabulary
from eval.suites import load_suite
from stages.base import execute
from stages.evaluate import STAGE, EvaluateConfig
from stages.evaluate import stage as evaluate_stage
from stages.export import hf
from stages.fingerprint import identity
from stages.resolve import Resolver
from stages.scored_model import load_scored_model
from stages.store import Artifact, Store
from tests.data.texts import code, prose
from tests.stages.export.made import (
    job,
    model,
    publish,
    publish_checkpoint,
    publish_corpus,
    publish_tokenizer,
    tokenizer_model,
)

SUITE = """
name = "few"
axis = "capability"
version = 3
tasks = [
    { name = "bracket_1", source = "template", version = 2, limit = 40, chance = 0.5 },
    { name = "agreement", source = "template", version = 1, limit = 40, chance = 0.5 },
    { name = "word_order", source = "heldout", version = 1, limit = 4 },
]
"""
NO_SUITES = {"names": (), "last_names": ()}
HELDOUT = {"code": list(code()[:3]), "prose": list(prose()[:5]), "empty": [""]}


class OneConfig:
    """A recipe of one stage."""

    name = "made"

    def __init__(self, config: Any) -> None:
        self.config_for = lambda stage: config


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("store")
    (folder / "few.toml").write_text(SUITE)
    store = Store(folder)
    return {
        "store": store,
        "suites": {"names": (str(folder / "few.toml"),), "last_names": ()},
        "corpus": publish_corpus(store, HELDOUT),
        "tokenizer": publish_tokenizer(store),
        "model": publish_checkpoint(store, model()),
    }


def evaluate(inputs: dict[str, Any], root: Path, **settings: Any) -> Artifact:
    artifacts = {name: inputs[name] for name in ("model", "corpus", "tokenizer")}
    chosen = {"domain_bytes": 2000, "suites": inputs["suites"], **settings}
    return execute(job(STAGE, chosen, **artifacts), Store(root))


@pytest.fixture(scope="module")
def evaluation(inputs: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return evaluate(inputs, tmp_path_factory.mktemp("evaluation"))


def test_scores_of_every_domain_and_task_are_facts(inputs: dict[str, Any], evaluation: Artifact) -> None:
    facts = evaluation.facts
    assert facts["model"] == {
        "stage": "checkpoint",
        "key": inputs["model"].key,
        "step": 7,
        "tokens_seen": 700,
        "form": "",
        "start_token": "always",
    }
    assert facts["suites"] == {"few": 3}
    assert set(facts["bits_per_byte"]) == {"code", "prose"}, "a domain without text has no score"
    for domain, score in facts["bits_per_byte"].items():
        assert score["low"] <= score["value"] <= score["high"] and 1990 < score["num_bytes"] <= 2000
        assert 0 < facts["baselines"][domain]["gzip-9"] < 8
    assert {name: task["num_items"] for name, task in facts["tasks"].items()} == {
        "bracket_1": 40,
        "agreement": 40,
        "word_order": 4,
    }


def test_the_shipped_core_suite_is_asked_whole(inputs: dict[str, Any], tmp_path: Path) -> None:
    facts = evaluate(inputs, tmp_path, suites={"names": ("core",), "last_names": ()}).facts
    tasks = {task.name: task for task in load_suite("core").tasks}
    assert facts["suites"] == {"core": load_suite("core").version}
    assert set(facts["tasks"]) == set(tasks) and facts["skipped_tasks"] == {}
    for name, task in facts["tasks"].items():
        assert task["num_items"] == tasks[name].limit or tasks[name].source == "heldout"
        assert task["chance"] is not None and task["standard_error"] is not None


def test_bits_per_byte_equal_a_direct_computation(inputs: dict[str, Any], evaluation: Artifact) -> None:
    """One document at a time, windows of 64 tokens by hand, the end-of-document token before and none after."""
    vocabulary = Vocabulary.load(inputs["tokenizer"].path / "tokenizer.model")
    texts = {f"{domain}/{i}": text for domain, found in HELDOUT.items() for i, text in enumerate(found)}
    made = model()
    rows = pq.read_table(evaluation.path / "documents.parquet").to_pylist()
    assert rows
    for row in rows:
        text = texts[row["id"]].encode()[: row["num_bytes"]].decode()
        sequence, nats, position = [2, *vocabulary.encode(text)], 0.0, 1
        while position < len(sequence):
            end = min(position + 64, len(sequence))
            begin = max(0, end - 65)
            with torch.inference_mode():
                scores = made(torch.tensor([sequence[begin : end - 1]])).logits[0].double().log_softmax(-1)
            nats -= sum(float(scores[i - 1 - begin, sequence[i]]) for i in range(position, end))
            position = end
        assert row["num_bits"] == pytest.approx(nats / 0.6931471805599453, rel=1e-5)
        assert row["num_tokens"] == len(sequence) - 1


def test_every_item_is_written_and_adds_up_to_its_score(evaluation: Artifact) -> None:
    rows = pq.read_table(evaluation.path / "items.parquet").to_pylist()
    for task, score in evaluation.facts["tasks"].items():
        own = [row for row in rows if row["task"] == task]
        assert len(own) == score["num_items"] and sum(row["score"] for row in own) / len(own) == pytest.approx(
            score["value"]
        )
        assert len({row["cluster"] for row in own}) == score["num_clusters"]
        for row in own:
            best = max(range(len(row["log_likelihoods"])), key=row["log_likelihoods"].__getitem__)
            assert row["predicted"] == best and row["score"] == float(best == row["gold"])


def test_it_is_the_same_every_time_and_another_model_is_really_asked(
    inputs: dict[str, Any], evaluation: Artifact, tmp_path: Path
) -> None:
    assert evaluate(inputs, tmp_path / "again").digest == evaluation.digest
    other = publish_checkpoint(inputs["store"], model(seed=1), step=8)
    found = evaluate({**inputs, "model": other}, tmp_path / "again")
    assert found.facts["bits_per_byte"] != evaluation.facts["bits_per_byte"]
    assert found.facts["tasks"] != evaluation.facts["tasks"]


def test_an_exported_model_scores_as_its_checkpoint(
    inputs: dict[str, Any], evaluation: Artifact, tmp_path: Path
) -> None:
    tokenizer = tokenizer_model(tmp_path)
    facts = {"step": 7, "tokens_seen": 700}
    exported = publish(
        inputs["store"], "export", lambda folder: hf.save(model(), tokenizer, folder / "hf", eos_id=2), facts
    )
    found = evaluate({**inputs, "model": exported}, tmp_path)
    assert (
        found.facts["bits_per_byte"] == evaluation.facts["bits_per_byte"]
        and found.facts["tasks"] == evaluation.facts["tasks"]
    )
    assert found.facts["model"]["stage"] == "export"


def test_an_export_without_the_hugging_face_form_is_explained(inputs: dict[str, Any]) -> None:
    bare = publish(inputs["store"], "export", lambda folder: (folder / "sample.txt").touch(), {})
    with pytest.raises(InputError, match="has no form hf to evaluate; export it"):
        load_scored_model(bare)


def test_without_suites_there_are_only_bits_per_byte(inputs: dict[str, Any], tmp_path: Path) -> None:
    found = evaluate(inputs, tmp_path, suites=NO_SUITES)
    assert found.facts["tasks"] == {} and set(found.facts["bits_per_byte"]) == {"code", "prose"}
    assert pq.read_table(found.path / "items.parquet").num_rows == 0
    assert job(STAGE, {"suites": NO_SUITES}).externals == {}, "and lm-eval's version is no part of the key"


def test_what_it_leaves_for_a_while_is_where_the_next_attempt_clears(
    inputs: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An evaluation that is killed removes nothing itself."""
    made, places = evaluate_stage.make_subject, []

    def subject(inputs: Any, texts: Any, scratch: Path, *more: Any) -> Any:
        places.append(scratch)
        return made(inputs, texts, scratch, *more)

    monkeypatch.setattr(evaluate_stage, "make_subject", subject)
    found = evaluate(inputs, tmp_path, suites=NO_SUITES)
    (place,) = places
    assert place.parent == Store(tmp_path).work_path("evaluate", found.key) and not place.exists()


def test_speed_settings_are_no_part_of_the_key_and_the_suites_are() -> None:
    fast = identity(EvaluateConfig(threads=2, batch_tokens=99, nice=19))
    assert fast == identity(EvaluateConfig()) != identity(EvaluateConfig(domain_bytes=1))
    assert job(STAGE, {}).externals["suites"]


def test_a_checkpoint_on_the_way_has_a_key_without_what_only_finished_models_are_asked(inputs: dict[str, Any]) -> None:
    store = inputs["store"]
    on_the_way = publish_checkpoint(store, model(), step=5, last=False)

    def key(of: Artifact, **settings: Any) -> str:
        chosen = STAGE.config(**{"suites": {"names": ("core",), "last_names": ()}, **settings})
        named = {"model": of, "corpus": inputs["corpus"], "tokenizer": inputs["tokenizer"]}
        return Resolver(OneConfig(chosen), store, {STAGE.name: STAGE}).job("evaluate", **named).key

    more = {"suites": {"names": ("core",), "last_names": ("efficiency",)}}
    assert key(on_the_way, **more) == key(on_the_way) == key(on_the_way, form="gguf-f32")
    assert key(inputs["model"], **more) != key(inputs["model"]) == key(inputs["model"], form="gguf-f32")
    assert key(on_the_way, suites={"names": ("core", "regression"), "last_names": ()}) != key(on_the_way)


def absent(name: str, *more: Any) -> Any:
    raise metadata.PackageNotFoundError(name)


def test_without_lm_eval_the_key_needs_the_fix_unless_there_are_no_suites(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eval.suites.metadata.version", absent)
    with pytest.raises(InputError, match="lm-eval, which is not installed here: `pip install lm-eval`"):
        job(STAGE, {})
    assert job(STAGE, {"suites": NO_SUITES}).externals == {}


@pytest.mark.parametrize("find", [absent, lambda name: None])
def test_without_lm_eval_a_run_names_the_fix_before_any_work(
    inputs: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, find: Any
) -> None:
    monkeypatch.setattr("eval.suites.importlib.util.find_spec", find)
    with pytest.raises(InputError, match="lm-eval, which is not installed here: `pip install lm-eval`"):
        evaluate(inputs, tmp_path)
