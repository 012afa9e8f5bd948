from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from data.errors import InputError
from stages.export import gguf_file, hf
from stages.export.tokenizer import read_sentencepiece
from tests.stages.export.made import ODD_SIZE, OF_FAMILY, config, model, tokenizer_model

DYNAMIC = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
YARN = {"rope_type": "yarn", "rope_theta": 5000.0, "factor": 4.0, "original_max_position_embeddings": 16}
LLAMA3 = {**YARN, "rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
PROMPTS = torch.tensor([[2, 5, 300, 77, 410, 9], [2, 500, 500, 3, 4, 600], [2, 150, 2, 90, 33, 21]])


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tokenizer_model(tmp_path_factory.mktemp("tokenizer"))


def logits(made: Any) -> torch.Tensor:
    with torch.inference_mode():
        return made(PROMPTS).logits


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("family", OF_FAMILY)
def test_float32_comes_back_bit_for_bit(family: str, tied: bool, tokenizer: Path, tmp_path: Path) -> None:
    made = model(family=family, tie_word_embeddings=tied)
    gguf_file.write(made, tokenizer, tmp_path / "m.gguf", "f32")
    loaded = gguf_file.load(tmp_path / "m.gguf", made.config)
    for name, tensor in made.state_dict().items():
        assert torch.equal(tensor, loaded.state_dict()[name]), name
    assert torch.equal(logits(made), logits(loaded))
    hf.save(made, tokenizer, tmp_path / "hf", eos_id=2)
    assert torch.equal(logits(made), logits(hf.load(tmp_path / "hf")))


def test_four_bits_come_back_within_their_step(tokenizer: Path, tmp_path: Path) -> None:
    """Q4_0: 16 levels over the range that the largest value of a block of 32 spans; the embedding has 8 bits."""
    made = model()
    gguf_file.write(made, tokenizer, tmp_path / "m.gguf", "q4_0")
    loaded = gguf_file.load(tmp_path / "m.gguf", made.config).state_dict()
    for name, tensor in made.state_dict().items():
        if tensor.ndim == 1:
            assert torch.equal(tensor, loaded[name]), name
            continue
        steps = 127 if name in ("model.embed_tokens.weight", "lm_head.weight") else 8
        largest = tensor.reshape(-1, 32).abs().amax(1, keepdim=True)
        error = (tensor - loaded[name]).reshape(-1, 32).abs()
        assert error.max() > 0 and bool((error <= 1.02 * largest / steps).all()), name
    assert (tmp_path / "m.gguf").stat().st_size < sum(4 * t.numel() for t in made.state_dict().values()) / 3


@pytest.mark.parametrize("quantisation", ["f32", "q4_0"])
def test_another_permutation_of_the_keys_would_be_seen(
    quantisation: gguf_file.Quantisation, tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control: key rows permuted by the number of query heads over key-value heads."""
    made = model()
    right = gguf_file._heads
    monkeypatch.setattr(
        gguf_file, "_heads", lambda name, heads, kv: heads // kv if "k_proj" in name else right(name, heads, kv)
    )
    gguf_file.write(made, tokenizer, tmp_path / "m.gguf", quantisation)
    monkeypatch.setattr(gguf_file, "_heads", right)
    loaded = gguf_file.load(tmp_path / "m.gguf", made.config)
    name = "model.layers.0.self_attn.k_proj.weight"
    ours, theirs = made.state_dict()[name], loaded.state_dict()[name]
    assert float((ours - theirs).norm() / ours.norm()) > 0.5
    assert float((logits(made) - logits(loaded)).abs().max()) > 0.1


def test_permutation_interleaves_the_halves_of_each_head() -> None:
    weight = np.arange(12, dtype=np.float32).reshape(12, 1)  # two heads of six
    assert gguf_file.permute(weight, 2)[:, 0].tolist() == [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]
    assert gguf_file.permute(weight[:, 0], 2).tolist() == gguf_file.permute(weight, 2)[:, 0].tolist(), "a bias too"
    for heads in (1, 2, 3, 6):
        assert np.array_equal(gguf_file.unpermute(gguf_file.permute(weight, heads), heads), weight)


def test_the_header_says_what_a_reader_would_otherwise_guess(tokenizer: Path, tmp_path: Path) -> None:
    import gguf

    made = model()
    gguf_file.write(made, tokenizer, tmp_path / "m.gguf", "f32")
    fields = gguf.GGUFReader(tmp_path / "m.gguf").fields
    said = {name: field.contents() for name, field in fields.items()}
    for flag in ("add_bos_token", "add_eos_token", "add_space_prefix"):
        assert said[f"tokenizer.ggml.{flag}"] is False, "written although it is false"
    assert said["tokenizer.ggml.model"] == "llama"
    assert (
        said["tokenizer.ggml.eos_token_id"],
        said["tokenizer.ggml.bos_token_id"],
        said["tokenizer.ggml.unknown_token_id"],
    ) == (2, 2, 0)
    pieces = read_sentencepiece(tokenizer).pieces
    assert said["tokenizer.ggml.tokens"] == [piece.text for piece in pieces]
    kinds = said["tokenizer.ggml.token_type"]
    assert kinds == [piece.kind for piece in pieces] and kinds.count(6) == 256, "byte pieces are of type BYTE"
    assert said["tokenizer.ggml.scores"] == pytest.approx([piece.score for piece in pieces])
    assert (
        said["llama.attention.head_count"],
        said["llama.attention.head_count_kv"],
        said["llama.attention.key_length"],
    ) == (8, 2, 8)
    assert said["llama.rope.freq_base"] == 5000.0 and said["llama.vocab_size"] == ODD_SIZE


@pytest.mark.parametrize(
    ("changes", "reasons"),
    [
        (
            {"hidden_size": 72, "num_attention_heads": 9, "num_key_value_heads": 3},
            ["hidden_size = 72", "head_dim = 72"],
        ),
        ({"intermediate_size": 100}, ["intermediate_size = 100"]),
        ({"head_dim": 6}, ["num_attention_heads * head_dim = 48"]),
        ({"family": "qwen3", "attention_bias": True}, ["attention_bias", "qwen3"]),
        ({"family": "qwen2", "rope_parameters": LLAMA3}, ["rotary embedding is scaled by llama3", "qwen2"]),
        ({"rope_parameters": DYNAMIC}, ["rotary embedding is scaled by dynamic"]),
        ({"rope_parameters": YARN | {"beta_fast": 16}}, ["constants of its own (beta_fast)"]),
        ({"family": "mistral", "sliding_window": 32}, ["a window of 32 tokens"]),
    ],
)
def test_a_shape_without_a_form_is_refused_before_any_work(
    changes: dict[str, Any], reasons: list[str], tokenizer: Path, tmp_path: Path
) -> None:
    class OnlyConfig:
        def __init__(self) -> None:
            self.config = config(**changes)

    assert gguf_file.unfit(config(**changes), "q4_0")
    with pytest.raises(InputError) as refusal:
        gguf_file.write(OnlyConfig(), tokenizer, tmp_path / "m.gguf", "q4_0")
    assert all(reason in str(refusal.value) for reason in reasons) and not any(tmp_path.iterdir())


def test_rows_that_are_not_the_tokenizers_are_refused_in_every_form(tokenizer: Path, tmp_path: Path) -> None:
    padded = model(vocab_size=640)
    for write in (
        lambda: gguf_file.write(padded, tokenizer, tmp_path / "m.gguf", "f32"),
        lambda: hf.save(padded, tokenizer, tmp_path / "hf", eos_id=2),
    ):
        with pytest.raises(InputError, match="640 vocabulary rows"):
            write()


def test_a_file_of_another_model_is_not_taken(tokenizer: Path, tmp_path: Path) -> None:
    gguf_file.write(model(), tokenizer, tmp_path / "m.gguf", "f32")
    with pytest.raises(InputError, match="no tensor blk.2"):
        gguf_file.load(tmp_path / "m.gguf", config(num_hidden_layers=3))
    with pytest.raises(InputError, match=r"tensor blk.0.ffn_\w+.weight is"):
        gguf_file.load(tmp_path / "m.gguf", config(intermediate_size=128))


def test_an_architecture_that_is_not_known_is_refused() -> None:
    from transformers import AutoConfig

    (reason,) = gguf_file.unfit(AutoConfig.for_model("olmo2", hidden_size=64, intermediate_size=96), "f32")
    assert "olmo2" in reason and "granite" in reason


def test_the_header_of_granite_has_its_multipliers(tokenizer: Path, tmp_path: Path) -> None:
    import gguf

    gguf_file.write(model(family="granite"), tokenizer, tmp_path / "m.gguf", "q4_0")
    fields = gguf.GGUFReader(tmp_path / "m.gguf").fields
    said = {name: field.contents() for name, field in fields.items()}
    assert said["general.architecture"] == "granite"
    names = ("embedding_scale", "attention.scale", "residual_scale", "logit_scale")
    assert [said[f"granite.{name}"] for name in names] == pytest.approx([3.0, 0.2, 0.5, 4.0])


def test_the_same_model_gives_the_same_bytes(tokenizer: Path, tmp_path: Path) -> None:
    made = model()
    for name in ("a", "b"):
        gguf_file.write(made, tokenizer, tmp_path / name / "m.gguf", "q4_0")
        hf.save(made, tokenizer, tmp_path / name / "hf", eos_id=2)
    for path in (tmp_path / "a").rglob("*"):
        if path.is_file():
            assert path.read_bytes() == (tmp_path / "b" / path.relative_to(tmp_path / "a")).read_bytes(), path.name


def test_a_pickle_beside_the_weights_is_not_read(tokenizer: Path, tmp_path: Path) -> None:
    hf.save(model(), tokenizer, tmp_path / "hf", eos_id=2)
    (tmp_path / "hf" / "model.safetensors").unlink()
    torch.save({}, tmp_path / "hf" / "pytorch_model.bin")
    with pytest.raises(OSError, match="safetensors"):
        hf.load(tmp_path / "hf")
