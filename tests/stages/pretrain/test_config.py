from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from data.errors import InputError
from stages.fingerprint import identity
from stages.plan.stage import make_plan
from stages.pretrain.config import ModelConfig, PretrainConfig
from stages.pretrain.job import data_fingerprint, make_job
from tests.stages.pretrain.model.test_config_json import written

BUCKETS = {"packing": "length-buckets"}


def test_durable_steps_always_end_with_the_last_step() -> None:
    def steps(num_steps: int, every: int) -> tuple[int, ...]:
        return PretrainConfig(num_steps=num_steps, checkpoint_every_steps=every).durable_steps()

    assert steps(10, 4) == (4, 8, 10)
    assert steps(8, 4) == (4, 8)
    assert steps(3, 4) == (3,)


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


def test_sequences_longer_than_the_context_of_a_huggingface_config_are_refused(tmp_path: Path) -> None:
    model = ModelConfig(huggingface_config=written(tmp_path, max_position_embeddings=100))
    with pytest.raises(InputError, match="sequence_tokens = 256 is more than max_position_embeddings in .* = 100"):
        make_plan(
            model.resolved(),
            PretrainConfig(model=model),
            vocabulary_size=67,
            padded_vocabulary_size=72,
            domains={},
            most_epochs=1,
        )
    with pytest.raises(InputError, match="sequence_tokens = 256 is more than max_position_embeddings in .* = 100"):
        make_job(
            PretrainConfig(model=model),
            tokens=tmp_path,
            facts={"vocabulary_size": 67, "padded_vocabulary_size": 72, "eos_id": 2},
            tokens_digest="digest",
            config_fingerprint="key",
            directory=tmp_path / "run",
        )
