"""The plan stage: instant, reproducible, and another plan for another layout."""

import json
import subprocess
import sys
import time

import pytest

from data.errors import InputError
from stages.base import Job, execute
from stages.journal import Event
from stages.plan import STAGE
from stages.plan.config import PlanConfig
from stages.pretrain.config import ModelConfig, PretrainConfig
from stages.store import Artifact, Store
from tests.stages.token_chain import corpus, pretokenize, tokenizer


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, Artifact]:
    store = Store(tmp_path_factory.mktemp("plan"))
    text = corpus(store)
    return store, pretokenize(store, text, tokenizer(store, text))


def plan(
    tokens: tuple[Store, Artifact],
    events: list[Event] | None = None,
    step_seconds: float | None = None,
    **pretrain: object,
) -> Artifact:
    store, found = tokens
    config = PlanConfig(
        model=ModelConfig(), pretrain=PretrainConfig.model_validate(pretrain), step_seconds=step_seconds
    )
    job = Job(
        stage=STAGE, config=config, externals=STAGE.externals(config, store), inputs={"tokens": (found,)}, label="t"
    )
    return execute(job, store, listeners=(events.append,) if events is not None else ())


def test_figures_hang_together(tokens: tuple[Store, Artifact]) -> None:
    made = plan(tokens, num_steps=100)
    facts = made.facts
    assert json.loads((made.path / "plan.json").read_text()) == facts
    assert (
        facts["vocabulary_size"] == 512 and facts["tokens"] == 100 * 8 * 256 == facts["steps"] * facts["batch_tokens"]
    )
    assert facts["flops"]["total"] == facts["flops"]["per_token"] * facts["tokens"]
    assert facts["parameters"]["total"] == sum(
        facts["parameters"][part] for part in ("embedding", "attention", "feed_forward", "norms", "output")
    )
    memory = facts["memory"]
    passing = sum(memory[part] for part in ("activations", "mask", "loss"))
    lasting = sum(memory[part] for part in ("weights", "gradients", "optimizer", "copies", "staging", "process"))
    assert memory["total"] == lasting + max(passing, memory["update"]) and memory["host"] == 0
    assert facts["checkpoints"]["bytes_each"] == 12 * facts["parameters"]["total"]
    assert set(facts["domains"]) == {"prose", "code", "tiny"}
    assert sum(found["weight"] for found in facts["domains"].values()) == pytest.approx(1, abs=1e-5)
    assert facts["packing"] == {"kind": "stream", "sequences": "exact"}


def test_warnings_reach_the_journal(tokens: tuple[Store, Artifact]) -> None:
    events: list[Event] = []
    made = plan(tokens, events, num_steps=5000)
    warnings = [event["text"] for event in events if event["kind"] == "warning"]
    assert warnings == made.facts["warnings"]
    assert any("'prose' is read" in text for text in warnings)


def test_the_plan_says_how_far_apart_durable_checkpoints_are_once_the_time_of_a_step_is_known(
    tokens: tuple[Store, Artifact],
) -> None:
    assert plan(tokens).facts["cadence"] is None, "arithmetic alone does not know"
    events: list[Event] = []
    found = plan(tokens, events, step_seconds=2.0, num_steps=5000, checkpoint_every_steps=100)
    (warning,) = [event["text"] for event in events if event["kind"] == "warning" and "durable" in event["text"]]
    assert "makes a durable checkpoint every 3 min at 2 s a step" in warning and "1800 to 3600 steps" in warning
    assert found.facts["cadence"]["warning"] == warning
    well = plan(tokens, step_seconds=2.0, num_steps=5000, checkpoint_every_steps=1800).facts
    assert not well["cadence"]["warning"] and well["cadence"]["interval_seconds"] == 3600
    assert plan(tokens, keep_every=1).facts["checkpoints"]["remote"] > plan(tokens).facts["checkpoints"]["remote"]


def test_another_layout_is_another_plan(tokens: tuple[Store, Artifact]) -> None:
    one, two = plan(tokens), plan(tokens, num_processes=2)
    assert one.key != two.key and two.facts["memory"]["weights"] < one.facts["memory"]["weights"]
    assert plan(tokens, attention="eager").facts["memory"]["activations"] > one.facts["memory"]["activations"]
    assert plan(tokens, recompute="full").facts["memory"]["activations"] < one.facts["memory"]["activations"]
    assert plan(tokens, prefetch_batches=2).key == one.key, "what the plan does not depend on is not in its key"


def test_an_impossible_mixture_is_refused(tokens: tuple[Store, Artifact]) -> None:
    with pytest.raises(InputError, match="'proze'.*code, prose, tiny"):
        plan(tokens, mixture={"proze": 1.0})


def test_it_is_arithmetic_only() -> None:
    """No torch, and a blink."""
    script = "import sys, stages.plan; assert not {'torch', 'transformers', 'datasets', 'numba'} & set(sys.modules)"
    started = time.monotonic()
    subprocess.run([sys.executable, "-c", script], check=True)
    assert time.monotonic() - started < 10
