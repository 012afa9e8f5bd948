"""From a recipe that plants canaries to the evaluation that finds them: curate, tokenize, train, evaluate."""

from pathlib import Path

import pytest

from stages.base import Job, execute
from stages.curate import CurateConfig, Source
from stages.evaluate import STAGE as EVALUATE
from stages.evaluate import EvaluateConfig
from stages.pretrain import STAGE as PRETRAIN
from stages.store import Artifact, Store
from stages.suites import SuitesConfig
from tests.stages import token_chain
from tests.stages.curate.curated import corpus, curate, source, write_jsonl
from tests.stages.pretrain import micro

NUMBER, SEED = 4, 3
SEQUENCE_TOKENS, BATCH_SEQUENCES, NUM_STEPS = 72, 4, 150
TIMES_SEEN = 50


def trained(store: Store, tokens: Artifact) -> Artifact:
    """The last checkpoint of a training that reads each canary TIMES_SEEN times: two of them stand in a sequence."""
    share = TIMES_SEEN * NUMBER / 2 / (NUM_STEPS * BATCH_SEQUENCES)
    config = micro.config(
        model={
            "hidden_size": 64,
            "num_layers": 2,
            "num_heads": 4,
            "num_kv_heads": 2,
            "intermediate_size": 128,
            "context_tokens": SEQUENCE_TOKENS,
            "initializer_std": 0.05,
        },
        sequence_tokens=SEQUENCE_TOKENS,
        packing="best-fit",
        batch_sequences=BATCH_SEQUENCES,
        num_steps=NUM_STEPS,
        checkpoint_every_steps=NUM_STEPS,
        mixture={"web": 1 - share, "canary": share},
    )
    externals = PRETRAIN.externals(config, store)
    made = execute(
        Job(stage=PRETRAIN, config=config, externals=externals, inputs={"tokens": (tokens,)}, label="t"), store
    )
    assert made.facts["mixture"]["canary"]["epochs"] == TIMES_SEEN
    (path,) = (store.artifacts_path / "checkpoint").iterdir()
    return Artifact(path)


def test_canaries_that_were_read_fifty_times_are_reported_and_those_never_read_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    store = Store(tmp_path)
    write_jsonl("a.jsonl", corpus(40))
    suites = SuitesConfig(names=("safety",), last_names=())
    planted = Source(kind="canaries", number=NUMBER, seed=SEED)
    sources = (source(quality="none"), planted)
    text = curate(CurateConfig(sources=sources, identify_languages=False, suites=suites))
    tokenizer = token_chain.tokenizer(store, text)
    model = trained(store, token_chain.pretokenize(store, text, tokenizer))

    config = EvaluateConfig(suites=suites, domain_bytes=1000)
    inputs = {"model": model, "corpus": text, "tokenizer": tokenizer}
    evaluation = token_chain.run_stage(store, EVALUATE, config, inputs)
    facts = evaluation.facts
    assert set(facts["bits_per_byte"]) == {"web"}, "canaries are no held-out text"
    task = facts["tasks"]["memorised_canaries"]
    assert task["value"] == 1 and task["num_items"] == task["planted"] == NUMBER
    assert task["control_value"] == 0 and task["control_exposure_bits"] < 4 < task["exposure_bits"]
    assert set(facts["tasks"]) == {"toxicity", "bias", "leaks", "memorised_text", "memorised_canaries"}
    assert set(facts["skipped_tasks"]) == {"refusal"}, "a model without a chat template"
    assert "alt-profanity-check" in evaluation.manifest.externals["toxicity"]
