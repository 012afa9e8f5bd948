"""A user relies on: a Hugging Face config.json is honoured in full, or refused by the key that would not be."""

import json
from pathlib import Path
from typing import Any

import pytest

from data.errors import InputError
from stages.fingerprint import identity
from stages.pretrain.model.build import huggingface_config
from stages.pretrain.model.shape import ModelConfig

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
# As published beside the weights of Llama 3.2 1B, Mistral 7B v0.3, Qwen2.5 0.5B, Qwen3 0.6B and Granite 3.0 2B.
PUBLISHED: dict[str, dict[str, Any]] = {
    "llama": {
        "architectures": ["LlamaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
        "bos_token_id": 128000, "eos_token_id": 128001, "head_dim": 64, "hidden_act": "silu", "hidden_size": 2048,
        "initializer_range": 0.02, "intermediate_size": 8192, "max_position_embeddings": 131072, "mlp_bias": False,
        "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8,
        "pretraining_tp": 1, "rms_norm_eps": 1e-05,
        "rope_scaling": {
            "factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192,
            "rope_type": "llama3",
        },
        "rope_theta": 500000.0, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
        "transformers_version": "4.45.0.dev0", "use_cache": True, "vocab_size": 128256,
    },
    "mistral": {
        "architectures": ["MistralForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2,
        "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336,
        "max_position_embeddings": 32768, "model_type": "mistral", "num_attention_heads": 32, "num_hidden_layers": 32,
        "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "sliding_window": None,
        "tie_word_embeddings": False, "torch_dtype": "bfloat16", "transformers_version": "4.42.0.dev0",
        "use_cache": True, "vocab_size": 32768,
    },
    "qwen2": {
        "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643, "eos_token_id": 151643,
        "hidden_act": "silu", "hidden_size": 896, "initializer_range": 0.02, "intermediate_size": 4864,
        "max_position_embeddings": 32768, "max_window_layers": 24, "model_type": "qwen2", "num_attention_heads": 14,
        "num_hidden_layers": 24, "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
        "sliding_window": 32768, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
        "transformers_version": "4.40.1", "use_cache": True, "use_mrope": False, "use_sliding_window": False,
        "vocab_size": 151936,
    },
    "qwen3": {
        "architectures": ["Qwen3ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
        "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 1024,
        "initializer_range": 0.02, "intermediate_size": 3072, "max_position_embeddings": 40960,
        "max_window_layers": 28, "model_type": "qwen3", "num_attention_heads": 16, "num_hidden_layers": 28,
        "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_scaling": None, "rope_theta": 1000000,
        "sliding_window": None, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
        "transformers_version": "4.51.0", "use_cache": True, "use_sliding_window": False, "vocab_size": 151936,
    },
    "granite": {
        "architectures": ["GraniteForCausalLM"], "attention_bias": False, "attention_dropout": 0.1,
        "attention_multiplier": 0.015625, "bos_token_id": 0, "embedding_multiplier": 12.0, "eos_token_id": 0,
        "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 8192,
        "logits_scaling": 8.0, "max_position_embeddings": 4096, "mlp_bias": False, "model_type": "granite",
        "num_attention_heads": 32, "num_hidden_layers": 40, "num_key_value_heads": 8, "pad_token_id": 0,
        "residual_multiplier": 0.22, "rms_norm_eps": 1e-05, "rope_scaling": None, "rope_theta": 10000.0,
        "tie_word_embeddings": True, "torch_dtype": "bfloat16", "transformers_version": "4.46.0.dev0",
        "use_cache": True, "vocab_size": 49152,
    },
}  # fmt: skip


def written(folder: Path, **changes: Any) -> str:
    path = folder / "config.json"
    path.write_text(json.dumps({**LLAMA, **changes}))
    return str(path)


def shape_of(folder: Path, values: dict[str, Any]) -> ModelConfig:
    path = folder / "config.json"
    path.write_text(json.dumps(values))
    return ModelConfig(huggingface_config=str(path)).resolved()


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


@pytest.mark.parametrize("family", PUBLISHED)
def test_published_models_are_built_as_transformers_builds_them(family: str, tmp_path: Path) -> None:
    """Everything that their configuration says, but what is of files and tokens."""
    from transformers import AutoConfig

    values = {**PUBLISHED[family], "attention_dropout": 0.0}
    ours = huggingface_config(shape_of(tmp_path, values), vocabulary_size=1000, eos_id=2).to_dict()
    theirs = AutoConfig.for_model(**values).to_dict()
    tokens_and_files = {"vocab_size", "eos_token_id", "bos_token_id", "pad_token_id", "dtype", "transformers_version"}
    # Without a window, nothing asks these.
    unused = {"max_window_layers", "use_mrope"}
    compared = theirs.keys() - tokens_and_files - unused
    assert {name: ours.get(name) for name in compared} == {name: theirs[name] for name in compared}


@pytest.mark.parametrize("family", PUBLISHED)
def test_keys_that_a_file_lacks_are_what_transformers_takes_them_for(family: str, tmp_path: Path) -> None:
    from transformers import AutoConfig

    needed = {"model_type", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"}
    if family not in ("llama", "granite"):
        needed |= {"num_key_value_heads"}
    if family == "mistral":
        needed |= {"sliding_window"}
    values = {name: PUBLISHED[family][name] for name in needed}
    ours = huggingface_config(shape_of(tmp_path, values), vocabulary_size=32_000, eos_id=2).to_dict()
    theirs = AutoConfig.for_model(**values).to_dict()
    compared = theirs.keys() - {"eos_token_id", "bos_token_id", "pad_token_id", "dtype", "architectures", "vocab_size"}
    assert {name: ours.get(name) for name in compared} == {name: theirs[name] for name in compared}
    for name in needed - {"model_type"}:
        with pytest.raises(InputError, match=name):
            shape_of(tmp_path, {key: value for key, value in values.items() if key != name})


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"model_type": "gemma3"}, "model_type = 'gemma3'; supported are llama, mistral, qwen2, qwen3, granite"),
        ({"model_type": "qwen2", "use_sliding_window": True}, "use_sliding_window"),
        ({"model_type": "qwen3", "layer_types": ["full_attention", "sliding_attention"]}, "layer_types"),
        ({"model_type": "mistral", "sliding_window": 4096}, "sliding_window = 4096"),
        ({"model_type": "mistral"}, "no sliding_window"),
        ({"model_type": "qwen2", "attention_bias": True}, "model.attention_bias has no effect"),
        ({"model_type": "mistral", "sliding_window": None, "mlp_bias": True}, "model.mlp_bias has no effect"),
        ({"residual_multiplier": 0.5}, "residual_multiplier = 0.5"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"attention_dropout": 0.1}, "attention_dropout = 0.1"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"auto_map": {"AutoModelForCausalLM": "modeling_own.Own"}}, "auto_map"),
        ({"num_experts": 8}, "num_experts = 8"),
        ({"rope_parameters": {"rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0}}, "llama3.* needs high_freq"),
        ({"rope_parameters": {"rope_type": "ntk", "rope_theta": 1e4}}, "rope_type = 'ntk'"),
        ({"rope_parameters": {"rope_type": "linear", "factor": 2.0, "beta": 1.0}}, "beta has no effect"),
        ({"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"model_type": "qwen2", "head_dim": 16}, "model.head_dim has no effect"),
        ({"num_attention_heads": 5}, r"config.json: model.hidden_size = 48 is not divisible by model.num_heads = 5$"),
        ({"hidden_size": "48.5"}, r"config.json: hidden_size = '48.5': Input should be a valid integer.*an integer$"),
        ({"num_hidden_layers": 0}, r"config.json: num_hidden_layers = 0: Input should be greater than or equal to 1$"),
    ],
)
def test_a_setting_that_would_be_ignored_is_refused(tmp_path: Path, changes: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError, match=named):
        ModelConfig(huggingface_config=written(tmp_path, **changes)).resolved()


def test_what_is_off_or_says_nothing_of_the_model_is_not_refused(tmp_path: Path) -> None:
    base = ModelConfig(huggingface_config=written(tmp_path)).resolved()
    more = {"use_mrope": False, "quantization_config": None, "auto_map": {}, "_name_or_path": "x", "head_dim": 8}
    assert ModelConfig(huggingface_config=written(tmp_path, **more)).resolved() == base.model_copy(
        update={"head_dim": 8}
    )


def test_older_names_of_a_stretched_rotary_embedding_mean_the_same(tmp_path: Path) -> None:
    old = {"rope_parameters": None, "rope_theta": 7e4, "rope_scaling": {"type": "linear", "factor": 2.0}}
    shape = ModelConfig(huggingface_config=written(tmp_path, **old)).resolved()
    assert (shape.rope_theta, shape.rope_scaling) == (7e4, {"rope_type": "linear", "factor": 2.0})
    new = {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 7e4}}
    assert ModelConfig(huggingface_config=written(tmp_path, **new)).resolved() == shape


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
    with pytest.raises(InputError, match="model_type"):
        ModelConfig(huggingface_config=str(tmp_path / "empty.json")).resolved()
