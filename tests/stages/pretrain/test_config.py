import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from data.errors import InputError
from stages.fingerprint import identity
from stages.pretrain.config import ModelConfig, PretrainConfig
from stages.pretrain.job import data_fingerprint, make_job

LLAMA = {
    "model_type": "llama",
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "intermediate_size": 100,
    "tie_word_embeddings": False,
    "rope_parameters": {"rope_type": "default", "rope_theta": 5e5},
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 4096,
    "vocab_size": 32000,
}


BUCKETS = {"packing": "length-buckets"}


def written(folder: Path, **changes: Any) -> str:
    path = folder / "config.json"
    path.write_text(json.dumps({**LLAMA, **changes}))
    return str(path)


def test_durable_steps_always_end_with_the_last_step() -> None:
    def steps(num_steps: int, every: int) -> tuple[int, ...]:
        return PretrainConfig(num_steps=num_steps, checkpoint_every_steps=every).durable_steps()

    assert steps(10, 4) == (4, 8, 10)
    assert steps(8, 4) == (4, 8)
    assert steps(3, 4) == (3,)


@pytest.mark.parametrize(
    ("model", "names"),
    [
        ({"hidden_size": 130, "num_heads": 4}, ["model.hidden_size", "model.num_heads"]),
        ({"hidden_size": 9, "num_heads": 3}, ["model.hidden_size", "even"]),
        ({"num_heads": 4, "num_kv_heads": 3}, ["model.num_heads", "model.num_kv_heads"]),
    ],
)
def test_an_impossible_shape_names_the_settings(model: dict[str, int], names: list[str]) -> None:
    with pytest.raises(ValidationError) as error:
        ModelConfig(**model)
    assert all(name in str(error.value) for name in names)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"sequence_tokens": 512}, "pretrain.sequence_tokens"),
        ({"num_processes": 9}, "pretrain.num_processes"),
        ({"mixture": {"code": 0.0}}, "pretrain.mixture"),
        ({"mixture_temperature": 0}, "mixture_temperature"),
        ({"mixture_most_epochs": 0}, "mixture_most_epochs"),
        ({"mixture_schedule": [{"from_step": 5, "weights": {"code": -1}}]}, "pretrain.mixture_schedule"),
        ({"mixture_schedule": [{"from_step": 5, "weights": {}}]}, "at least one domain"),
        ({"mixture_schedule": [{"from_step": n, "weights": {"a": 1}} for n in (5, 5)]}, "from_step must rise"),
        ({"length_schedule": [{"from_step": 5, "longest_tokens": 64}]}, 'needs pretrain.packing = "length-buckets"'),
        (BUCKETS | {"length_schedule": [{"from_step": 5, "longest_tokens": 96}]}, "longest_tokens = 96.*power of two"),
        (BUCKETS | {"length_schedule": [{"from_step": 5, "longest_tokens": 512}]}, "at most pretrain.sequence_tokens"),
        (BUCKETS | {"sequence_tokens": 192}, "pretrain.sequence_tokens = 192 must be a power of two"),
        (BUCKETS | {"cross_document_attention": True}, "pretrain.cross_document_attention has no effect"),
        ({"attention": "flex", "device": "cpu"}, "pretrain.attention"),
        ({"shards_url": "s3://bucket/train"}, "pretrain.cache_directory"),
        ({"cache_directory": "/cache"}, "pretrain.shards_url"),
        ({"cache_bytes": 5}, "pretrain.cache_bytes has no effect without pretrain.shards_url"),
    ],
)
def test_settings_that_cannot_work_together_are_refused(settings: dict[str, Any], name: str) -> None:
    with pytest.raises(ValidationError, match=name):
        PretrainConfig(**settings)


def test_layout_is_not_identity_and_precision_is() -> None:
    base = identity(PretrainConfig())
    elsewhere = PretrainConfig(num_processes=2, threads=7, micro_batch_sequences=1, compile=True, checkpoint_seconds=5)
    assert identity(elsewhere) == base
    read_otherwise = PretrainConfig(attention="eager", shards_url="s3://b", cache_directory="/c", reader_threads=7)
    assert identity(read_otherwise) == base
    assert identity(PretrainConfig(precision="fp32")) != base


@pytest.mark.parametrize(
    "changes",
    [
        {"mixture": {"code": 1.0}},
        {"mixture_schedule": [{"from_step": 9, "weights": {"code": 1.0}}]},
        {"mixture_temperature": 2.0},
        {"mixture_most_epochs": 4.0},
        {"packing": "best-fit"},
        {"cross_document_attention": True},
        BUCKETS | {"length_schedule": [{"from_step": 9, "longest_tokens": 64}]},
        {"batch_sequences": 9},
        {"seed": 2},
    ],
)
def test_what_decides_on_the_data_is_in_its_fingerprint(changes: dict[str, Any]) -> None:
    config = PretrainConfig.model_validate(changes)
    base = BUCKETS if "length_schedule" in changes else {}
    assert data_fingerprint(config, "a") != data_fingerprint(PretrainConfig.model_validate(base), "a")
    assert data_fingerprint(config, "a") != data_fingerprint(config, "b")
    elsewhere = config.model_copy(update={"learning_rate": 1e-4, "num_processes": 2, "max_exclusions": 9})
    assert data_fingerprint(elsewhere, "a") == data_fingerprint(config, "a")


def test_the_length_of_a_training_decides_on_its_data_only_under_a_cap_on_epochs() -> None:
    for cap, same in ((None, True), (4.0, False)):
        short, long = (PretrainConfig(mixture_most_epochs=cap, num_steps=steps) for steps in (100, 200))
        assert (data_fingerprint(short, "a") == data_fingerprint(long, "a")) is same


def test_a_huggingface_config_gives_the_whole_shape(tmp_path: Path) -> None:
    shape = ModelConfig(huggingface_config=written(tmp_path)).resolved()
    assert shape == ModelConfig(
        hidden_size=48,
        num_layers=3,
        num_heads=6,
        num_kv_heads=2,
        intermediate_size=100,
        tie_embeddings=False,
        rope_theta=5e5,
        norm_epsilon=1e-6,
        context_tokens=4096,
    )


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"model_type": "qwen3"}, "model_type"),
        ({"attention_bias": True}, "attention_bias"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"rope_parameters": {"rope_type": "llama3", "rope_theta": 1e4}}, "rotary"),
        ({"rope_parameters": None, "rope_scaling": {"type": "linear", "factor": 2}}, "rotary"),
        ({"head_dim": 16}, "head_dim"),
        ({"num_attention_heads": 5}, "num_heads"),
    ],
)
def test_a_setting_that_would_be_ignored_is_refused(tmp_path: Path, changes: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError, match=named):
        ModelConfig(huggingface_config=written(tmp_path, **changes)).resolved()


def test_the_content_of_a_huggingface_config_is_identity_and_its_place_is_not(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one, same = (ModelConfig(huggingface_config=written(tmp_path / name)) for name in "ab")
    assert (identity(one), one.externals()) == (identity(same), same.externals())
    before = one.externals()
    written(tmp_path / "a", hidden_size=96)
    assert one.externals() != before


def test_a_missing_or_broken_huggingface_config_is_the_users(tmp_path: Path) -> None:
    missing = ModelConfig(huggingface_config=str(tmp_path / "none.json"))
    for call in (missing.resolved, missing.externals):
        with pytest.raises(InputError, match="no file"):
            call()
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(InputError, match="not JSON"):
        ModelConfig(huggingface_config=str(tmp_path / "broken.json")).resolved()
    (tmp_path / "list.json").write_text("[1]")
    with pytest.raises(InputError, match="not a JSON object"):
        ModelConfig(huggingface_config=str(tmp_path / "list.json")).resolved()
    with pytest.raises(InputError, match="rotary settings"):
        ModelConfig(huggingface_config=written(tmp_path, rope_parameters=["default"])).resolved()
    (tmp_path / "empty.json").write_text("{}")
    with pytest.raises(InputError, match="num_attention_heads"):
        ModelConfig(huggingface_config=str(tmp_path / "empty.json")).resolved()


def test_sequences_longer_than_the_context_of_a_huggingface_config_are_refused(tmp_path: Path) -> None:
    model = ModelConfig(huggingface_config=written(tmp_path, max_position_embeddings=100))
    with pytest.raises(InputError, match="sequence_tokens = 256 is more than the model's context of 100"):
        make_job(
            PretrainConfig(model=model),
            tokens=tmp_path,
            facts={"vocabulary_size": 67, "padded_vocabulary_size": 72, "eos_id": 2},
            tokens_digest="digest",
            config_fingerprint="key",
            directory=tmp_path / "run",
        )
