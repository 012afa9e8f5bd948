"""GGUF files of our models: a writer, and a reader that gives a Hugging Face state dict back.

Quantised files are measured through this reader, so that what is measured is what was written: block scales, rounding
and the permutation of query and key rows included.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from data.errors import InputError
from stages.export import gguf_architecture
from stages.export.gguf_architecture import ARCHITECTURES, ROPE_FACTORS, head_size
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
    reasons = gguf_architecture.unfit(config)
    if quantisation == "q4_0":
        inputs = {
            "hidden_size": config.hidden_size,
            "num_attention_heads * head_dim": config.num_attention_heads * head_size(config),
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


def permute(values: np.ndarray, num_heads: int) -> np.ndarray:
    """Rows of a query or key projection, from two halves of each head (Hugging Face) to interleaved pairs (llama.cpp).

    values: float32[num_heads * head_dim, ...], weights or biases; for the key projection `num_heads` is the number of
    key-value heads.
    """
    halves = values.reshape(num_heads, 2, len(values) // num_heads // 2, *values.shape[1:])
    return halves.swapaxes(1, 2).reshape(values.shape)


def unpermute(values: np.ndarray, num_heads: int) -> np.ndarray:
    """The inverse of `permute`."""
    pairs = values.reshape(num_heads, len(values) // num_heads // 2, 2, *values.shape[1:])
    return pairs.swapaxes(1, 2).reshape(values.shape)


def _heads(name: str, num_heads: int, num_kv_heads: int) -> int | None:
    """By how many heads the rows of a Hugging Face tensor are permuted; None if they are not."""
    if name.endswith(("q_proj.weight", "q_proj.bias")):
        return num_heads
    return num_kv_heads if name.endswith(("k_proj.weight", "k_proj.bias")) else None


def _permuted_heads(name: str, config: Any) -> int | None:
    """The same for a model whose architecture may not be permuted at all."""
    if not ARCHITECTURES[config.model_type].interleaved:
        return None
    return _heads(name, config.num_attention_heads, config.num_key_value_heads)


class _Names:
    """Names of tensors in the file, by those of Hugging Face."""

    def __init__(self, config: Any) -> None:
        import gguf

        self.architecture = gguf.MODEL_ARCH[ARCHITECTURES[config.model_type].name]
        self._names = gguf.get_tensor_name_map(self.architecture, config.num_hidden_layers)

    def __call__(self, name: str) -> str:
        found = self._names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert found is not None, name
        return found


def write(model: Any, tokenizer_model: Path, path: Path, quantisation: Quantisation) -> None:
    """Write a transformers model with its tokenizer.

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
    names = _Names(config)
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[names.architecture])
    _write_header(writer, config, quantisation)
    _write_tokenizer(writer, tokenizer)
    factors = gguf_architecture.rope_factors(config)
    if factors is not None:
        writer.add_tensor(ROPE_FACTORS, factors)
    for name, weight in _weights(model):
        heads = _permuted_heads(name, config)
        values = permute(weight, heads) if heads else weight
        kind = _kind(name, values, quantisation)
        writer.add_tensor(names(name), gguf.quants.quantize(np.ascontiguousarray(values), kind), raw_dtype=kind)
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


def _write_header(writer: Any, config: Any, quantisation: Quantisation) -> None:
    import gguf

    writer.add_name(NAME)
    gguf_architecture.write_architecture(writer, config)
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
    names = _Names(config)
    state = {}
    for name, shape in _shapes(config).items():
        target = names(name)
        if target not in stored:
            raise InputError(f"{path.name} has no tensor {target}")
        tensor = stored[target]
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        if tuple(values.shape) != shape:
            raise InputError(f"{path.name}: tensor {target} is {tuple(values.shape)}, not {shape}")
        heads = _permuted_heads(name, config)
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
    """Name and shape of every tensor of the model, a tied output projection left out."""
    import torch
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    tied = config.tie_word_embeddings
    return {name: tuple(t.shape) for name, t in model.state_dict().items() if not (tied and name == "lm_head.weight")}
