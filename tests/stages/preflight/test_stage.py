"""The gate: an artifact only if every check passed, and every check heard before it says no."""

import json
from pathlib import Path
from typing import Any

import pytest

from data.errors import InputError
from stages.base import Job, execute
from stages.errors import TryAgain
from stages.journal import Event
from stages.plan import STAGE as PLAN
from stages.plan.config import PlanConfig
from stages.preflight import STAGE, checks
from stages.preflight.config import PreflightConfig
from stages.pretrain.config import ModelConfig, PretrainConfig
from stages.store import Artifact, Store
from stages.suites import SuitesConfig
from tests.stages.token_chain import corpus, pretokenize, tokenizer

MODEL = {"hidden_size": 32, "num_layers": 1, "num_heads": 2, "num_kv_heads": 1, "intermediate_size": 64}
PRETRAIN = {
    "sequence_tokens": 32, "batch_sequences": 4, "num_steps": 30, "precision": "fp32", "threads": 1, "device": "cpu",
    "heldout_sequences": 4,
}  # fmt: skip
NAMES = list(checks.NAMES)


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, Artifact, Artifact]:
    store = Store(tmp_path_factory.mktemp("preflight"))
    text = corpus(store)
    model = tokenizer(store, text)
    return store, model, pretokenize(store, text, model)


def preflight(
    chain: tuple[Store, Artifact, Artifact],
    events: list[Event],
    suites: SuitesConfig = SuitesConfig(),  # noqa: B008
    **pretrain: Any,
) -> Artifact:
    store, model, tokens = chain
    shared = {"model": ModelConfig(**MODEL), "pretrain": PretrainConfig(**(PRETRAIN | pretrain))}  # type: ignore[arg-type]
    plan_config, config = PlanConfig(**shared), PreflightConfig(**shared, suites=suites)
    plan = execute(Job(stage=PLAN, config=plan_config, externals={}, inputs={"tokens": (tokens,)}, label="test"), store)
    inputs = {"tokens": (tokens,), "tokenizer": (model,), "plan": (plan,)}
    job = Job(stage=STAGE, config=config, externals=STAGE.externals(config, store), inputs=inputs, label="test")
    return execute(job, store, listeners=(events.append,))


def statuses(events: list[Event]) -> dict[str, str]:
    return {event["name"]: event["status"] for event in events if event["kind"] == "check"}


def fake_trial(*arguments: Any, **settings: Any) -> dict[str, Any]:
    return {
        "losses": [6.2, 6.1], "gradient_norms": [1.0, 1.0], "heldout_loss": 6.2, "seconds": [1.0, 1.0],
        "sequence_tokens": [32, 32],
        "checkpoint_bytes": 10**6, "peak_memory_bytes": 10**8, "num_processes": 1, "device": "cpu", "parameters": 7,
    }  # fmt: skip


def test_a_sound_run_passes_with_real_steps(chain: tuple[Store, Artifact, Artifact]) -> None:
    events: list[Event] = []
    made = preflight(chain, events)
    assert statuses(events) == dict.fromkeys(NAMES, "pass")
    assert [check["name"] for check in json.loads((made.path / "checks.json").read_text())] == NAMES
    assert len(made.facts["losses"]) == 2 and 6 < made.facts["losses"][0] < 6.5
    measured = made.manifest.measurements
    plan = next(a for a in chain[0].all() if a.stage == "plan")
    assert 0 < measured["checkpoint_bytes"] - plan.facts["checkpoints"]["bytes_each"] < 100_000, "names and metadata"
    assert made.facts["parameters"] == plan.facts["parameters"]["total"]
    assert sorted(path.name for path in made.path.iterdir()) == ["checks.json", "events.jsonl", "manifest.json"]


def test_all_checks_are_heard_before_it_fails(
    chain: tuple[Store, Artifact, Artifact], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: Any, **settings: Any) -> None:
        raise ArithmeticError("a defect in the exporter")

    monkeypatch.setattr("stages.pretrain.trials.trial", fake_trial)
    monkeypatch.setattr("stages.preflight.stage.free_bytes", lambda folder: 1000)
    monkeypatch.setattr("stages.export.hf.save", broken)
    events: list[Event] = []
    with pytest.raises(InputError, match="2 of 9 checks failed") as raised:
        preflight(chain, events, num_steps=31)
    assert "disk: 0.00 GB free" in str(raised.value) and "ArithmeticError: a defect" in str(raised.value)
    expected = dict.fromkeys(NAMES, "pass") | {"disk": "fail", "export hf": "fail"}
    assert statuses(events) == expected
    done = [(event["done"], event["total"]) for event in events if event["kind"] == "progress"]
    assert done[0] == (0, 9) and done[-1] == (9, 9)
    assert any("in broken" in event["text"] for event in events if event["kind"] == "note"), "the traceback is kept"


def test_too_little_free_disk_alone_is_tried_again_after_all_checks_are_heard(
    chain: tuple[Store, Artifact, Artifact], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stages.pretrain.trials.trial", fake_trial)
    monkeypatch.setattr("stages.preflight.stage.free_bytes", lambda folder: 1000)
    events: list[Event] = []
    with pytest.raises(TryAgain, match=r"disk: 0\.00 GB free, checkpoints need 0\.01 GB; free some space"):
        preflight(chain, events, num_steps=35)
    assert statuses(events) == dict.fromkeys(NAMES, "pass") | {"disk": "fail"}


def test_steps_that_do_not_run_are_a_failure_and_nothing_is_measured(
    chain: tuple[Store, Artifact, Artifact], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*arguments: Any, **settings: Any) -> None:
        raise RuntimeError("the trial of 2 steps failed: out of memory")

    monkeypatch.setattr("stages.pretrain.trials.trial", fails)
    events: list[Event] = []
    with pytest.raises(InputError, match="out of memory"):
        preflight(chain, events, num_steps=32)
    assert statuses(events)["two batches"] == "fail" and statuses(events)["memory"] == "not_applicable"


def test_what_passes_by_itself_is_tried_again(
    chain: tuple[Store, Artifact, Artifact], monkeypatch: pytest.MonkeyPatch
) -> None:
    def held(*arguments: Any, **settings: Any) -> None:
        raise TryAgain("the GPU is held by another process")

    monkeypatch.setattr("stages.pretrain.trials.trial", held)
    with pytest.raises(TryAgain, match="held"):
        preflight(chain, [], num_steps=33)


def test_tokens_of_another_tokenizer_are_refused(
    chain: tuple[Store, Artifact, Artifact], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("stages.pretrain.trials.trial", fake_trial)
    store, _, tokens = chain
    other = tokenizer(store, corpus(store), seed=9, sample_bytes=200_000)
    events: list[Event] = []
    with pytest.raises(InputError, match="another tokenizer"):
        preflight((store, other, tokens), events, num_steps=34)
    assert statuses(events)["tokens"] == "fail"


def test_other_suites_than_those_of_the_corpus_are_refused(
    chain: tuple[Store, Artifact, Artifact], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("stages.pretrain.trials.trial", fake_trial)
    suite = tmp_path / "mine.toml"
    task = 'name = "indent"\nsource = "template"\nversion = 1\nlimit = 3\n'
    suite.write_text(f'name = "mine"\naxis = "capability"\nversion = 1\n[[tasks]]\n{task}')
    events: list[Event] = []
    with pytest.raises(InputError, match="decontaminated against other suites than the recipe's; run curate"):
        preflight(chain, events, SuitesConfig(names=(str(suite),)), num_steps=36)
    assert statuses(events)["decontamination"] == "fail"


def test_tokens_of_a_corpus_that_is_gone_are_refused(
    chain: tuple[Store, Artifact, Artifact], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stages.pretrain.trials.trial", fake_trial)
    monkeypatch.setattr(Store, "find", lambda store, stage, key: None)
    events: list[Event] = []
    with pytest.raises(InputError, match="not in this store, so nothing tells what it was decontaminated against"):
        preflight(chain, events, num_steps=37)
    assert statuses(events)["decontamination"] == "fail"
