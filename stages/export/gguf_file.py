"""GGUF files of Llama models: a writer, and a reader that gives a Hugging Face state dict back.

Quantised files are measured through this reader, so that what is measured is what was written: block scales, rounding
and the permutation of query and key rows included.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from data.errors import InputError
from stages.export.tokenizer import SentencePieceModel, read_sentencepiece, require_rows

if TYPE_CHECKING:
    from torch import Tensor

Quantisation = Literal["f32", "q4_0"]
BLOCK = 32  # values that share a scale in Q4_0 and Q8_0
NAME = "longhaul"


def unfit(config: Any, quantisation: Quantisation) -> list[str]:
    """Why a model of this Hugging Face config cannot be written, one sentence each; known before any weight is
    touched.
    """
    reasons = []
    if config.model_type != "llama":
        reasons.append(f"its architecture is {config.model_type}; only llama can be written")
        return reasons
    rope = config.rope_parameters
    if rope.get("rope_type", "default") != "default":
        reasons.append(f"its rotary embedding is scaled ({rope['rope_type']})")
    if config.attention_bias or config.mlp_bias:
        reasons.append("its linear layers have biases")
    if quantisation == "q4_0":
        inputs = {
            "hidden_size": config.hidden_size,
            "num_attention_heads * head_dim": config.num_attention_heads * config.head_dim,
            "intermediate_size": config.intermediate_size,
        }
        reasons += [
            f"{name} = {width} is not a multiple of {BLOCK}, the block of Q4_0"
            for name, width in inputs.items()
            if width % BLOCK
        ]
    return reasons


def require_fit(config: Any, quantisation: Quantisation) -> None:
    """Raise InputError if `unfit` finds anything."""
    reasons = unfit(config, quantisation)
    if reasons:
        raise InputError(
            f"the model cannot be written as GGUF {quantisation}: {'; '.join(reasons)}. "
            "Change [model], or take the form out of export.forms"
        )


def permute(weight: np.ndarray, num_heads: int) -> np.ndarray:
    """Rows of a query or key projection, from two halves of each head (Hugging Face) to interleaved pairs (llama.cpp).

    weight: float32[num_heads * head_dim, hidden]; for the key projection `num_heads` is the number of key-value heads.
    """
    rows, width = weight.shape
    return weight.reshape(num_heads, 2, rows // num_heads // 2, width).swapaxes(1, 2).reshape(rows, width)


def unpermute(weight: np.ndarray, num_heads: int) -> np.ndarray:
    """The inverse of `permute`."""
    rows, width = weight.shape
    return weight.reshape(num_heads, rows // num_heads // 2, 2, width).swapaxes(1, 2).reshape(rows, width)


def _heads(name: str, num_heads: int, num_kv_heads: int) -> int | None:
    """By how many heads the rows of a Hugging Face tensor are permuted; None if they are not."""
    if name.endswith("q_proj.weight"):
        return num_heads
    return num_kv_heads if name.endswith("k_proj.weight") else None


def write(model: Any, tokenizer_model: Path, path: Path, quantisation: Quantisation) -> None:
    """Write a transformers Llama model with its tokenizer.

    q4_0: matrices in Q4_0, but the embedding and the output projection in Q8_0 (llama.cpp keeps them finer too); norms
    in float32. Raises InputError if the model does not fit the format, or its rows are not exactly the tokenizer's
    pieces.
    """
    import gguf

    config = model.config
    require_fit(config, quantisation)
    tokenizer = read_sentencepiece(tokenizer_model)
    require_rows(config.vocab_size, len(tokenizer.pieces))
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[gguf.MODEL_ARCH.LLAMA])
    _write_architecture(writer, config, quantisation)
    _write_tokenizer(writer, tokenizer)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for name, weight in _weights(model):
        heads = _heads(name, config.num_attention_heads, config.num_key_value_heads)
        values = permute(weight, heads) if heads else weight
        kind = _kind(name, values, quantisation)
        target = names.get_name(name, try_suffixes=(".weight",))
        assert target is not None, name
        writer.add_tensor(target, gguf.quants.quantize(np.ascontiguousarray(values), kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _weights(model: Any) -> Iterator[tuple[str, np.ndarray]]:
    """(name, float32 values) of every tensor, in the model's order; a tied output projection is not written twice."""
    for name, tensor in model.state_dict().items():
        if not (name == "lm_head.weight" and model.config.tie_word_embeddings):
            yield name, tensor.detach().float().cpu().numpy()


def _kind(name: str, values: np.ndarray, quantisation: Quantisation) -> Any:
    from gguf import GGMLQuantizationType as Kind

    if quantisation == "f32" or values.ndim == 1:
        return Kind.F32
    return Kind.Q8_0 if name in ("model.embed_tokens.weight", "lm_head.weight") else Kind.Q4_0


def _write_architecture(writer: Any, config: Any, quantisation: Quantisation) -> None:
    import gguf

    writer.add_name(NAME)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32 if quantisation == "f32" else gguf.LlamaFileType.MOSTLY_Q4_0)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)


def _write_tokenizer(writer: Any, tokenizer: SentencePieceModel) -> None:
    """The flags are written even when they are false: what is absent a reader fills with a default of its own, which
    for this kind is true.
    """
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([piece.text.encode() for piece in tokenizer.pieces])
    writer.add_token_scores([piece.score for piece in tokenizer.pieces])
    writer.add_token_types([piece.kind for piece in tokenizer.pieces])
    writer.add_unk_token_id(tokenizer.unk_id)
    writer.add_bos_token_id(tokenizer.eos_id)  # a document follows the end of another
    writer.add_eos_token_id(tokenizer.eos_id)
    writer.add_add_bos_token(False)
    writer.add_add_eos_token(False)
    writer.add_add_space_prefix(False)


def read_state_dict(path: Path, config: Any) -> "dict[str, Tensor]":
    """The weights of a file written by `write`, dequantised to float32, under their Hugging Face names; `config` is the
    model's Hugging Face config.

    Raises InputError if a tensor is missing or is of another shape than the config says.
    """
    import gguf
    import torch

    reader = gguf.GGUFReader(path)
    stored = {tensor.name: tensor for tensor in reader.tensors}
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    state = {}
    for name, shape in _shapes(config).items():
        target = names.get_name(name, try_suffixes=(".weight",))
        if target not in stored:
            raise InputError(f"{path.name} has no tensor {target}")
        tensor = stored[target]
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        if tuple(values.shape) != shape:
            raise InputError(f"{path.name}: tensor {target} is {tuple(values.shape)}, not {shape}")
        heads = _heads(name, config.num_attention_heads, config.num_key_value_heads)
        state[name] = torch.from_numpy(np.array(unpermute(values, heads) if heads else values, np.float32))
    if config.tie_word_embeddings:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    return state


def load(path: Path, config: Any) -> Any:
    """A transformers model, in eval mode, with the weights of a GGUF file."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(torch.nan)  # what the file does not give must show
    model.load_state_dict(read_state_dict(path, config), strict=True)
    return model.eval()


def _shapes(config: Any) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor of a Llama model, a tied output projection left out."""
    import torch
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    tied = config.tie_word_embeddings
    return {name: tuple(t.shape) for name, t in model.state_dict().items() if not (tied and name == "lm_head.weight")}
