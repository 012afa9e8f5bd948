"""What the backward pass needs of the forward pass, in bytes of one token, counted tensor by tensor.

It is what autograd keeps of the decoders of transformers, for each way to compute attention, each precision and each
mode of recomputation. The count is within 1 % of what saved_tensors_hooks find in one process, which a test holds it
to. Compiled layers keep less: a compiler joins what is cheap.
"""

from stages.pretrain.config import ModelConfig, PretrainConfig
from stages.pretrain.memory.recompute import num_recomputed
from stages.pretrain.model.attention import BLOCK_TOKENS
from stages.pretrain.parallel.layout import Layout

FLOAT_BYTES = 4


def compute_bytes(pretrain: PretrainConfig) -> int:
    """Of a number in the matrix products, those in 8 bits aside, whose inputs come in 16."""
    return FLOAT_BYTES if pretrain.precision == "fp32" else 2


def residual_bytes(pretrain: PretrainConfig, layout: Layout) -> int:
    """Of a number in the residual stream: autocast leaves it in float32, and FSDP's policy narrows all weights, the
    embedding's among them."""
    return compute_bytes(pretrain) if layout.is_sharded else FLOAT_BYTES


def activation_bytes_per_token(model: ModelConfig, pretrain: PretrainConfig, layout: Layout) -> int:
    """The most that is held at a time, from the embedding to the input of the output projection.

    Layers that recompute keep their input, and beside it what `operators` or a compiler's budget keep; one of them is
    whole while its backward pass runs.
    """
    whole = layer_bytes_per_token(model, pretrain, layout)
    entry = residual_bytes(pretrain, layout) * model.hidden_size
    recomputed = num_recomputed(pretrain, model.num_layers)
    kept = model.num_layers - recomputed
    once = residual_bytes(pretrain, layout) * 2 * model.head_size
    if _has_mask(pretrain):
        once += compute_bytes(pretrain) * pretrain.sequence_tokens
    ends = once + _norm_bytes(model, pretrain, layout, readers=0)
    if pretrain.recompute == "budget" and pretrain.compile:
        return ends + model.num_layers * (entry + round(pretrain.recompute_kept_share * (whole - entry)))
    each = entry + (_operator_bytes(model, pretrain) if pretrain.recompute == "operators" else 0)
    if not recomputed:
        return ends + kept * whole
    return ends + max(recomputed * each + kept * whole, (recomputed - 1) * each + whole)


def layer_bytes_per_token(model: ModelConfig, pretrain: PretrainConfig, layout: Layout) -> int:
    """Of one layer that keeps all. d = hidden size, q = query width, k = key-value width, f = intermediate size:
    two norms (`_norm_bytes`), which three and two matrix products read; attention's result, which one reads (q);
    rotated queries, keys and values, the latter two spread over all heads where the kernel does not share them
    (q + 2 k, or 3 q); the two feed-forward products, the activated gate and their product (4 f); one logarithm a head.
    Eager attention keeps its weights in place of the logarithms, which are a matrix of tokens by tokens for each head,
    in float32 and in the type of the products. Family qwen3 keeps two norms more, of queries and of keys.
    """
    query, narrow = model.num_heads * model.head_size, compute_bytes(pretrain)
    key = model.num_kv_heads * model.head_size
    heads = FLOAT_BYTES * model.num_heads
    if pretrain.attention == "eager":
        heads *= pretrain.sequence_tokens
        if narrow < FLOAT_BYTES:
            heads += narrow * model.num_heads * pretrain.sequence_tokens
    read = query if _repeats_keys(model, pretrain) else key
    products = narrow * (query + query + 2 * read + 4 * model.intermediate_size)
    norms = _norm_bytes(model, pretrain, layout, readers=3) + _norm_bytes(model, pretrain, layout, readers=2)
    if model.family == "qwen3":
        norms += _head_norm_bytes(model, pretrain)
    return norms + heads + products


def _norm_bytes(model: ModelConfig, pretrain: PretrainConfig, layout: Layout, *, readers: int) -> int:
    """Of an RMSNorm whose result so many matrix products read. It keeps its input in float32, the scale, and the
    normalised input, and its readers the result: in float32 one tensor; from autocast a narrow copy for each of them;
    where the residual stream is narrow, one narrow tensor."""
    hidden, narrow, residual = model.hidden_size, compute_bytes(pretrain), residual_bytes(pretrain, layout)
    copies = readers if narrow < residual else min(readers, 1)
    return FLOAT_BYTES * (hidden + 1) + residual * hidden + narrow * copies * hidden


def _head_norm_bytes(model: ModelConfig, pretrain: PretrainConfig) -> int:
    """Of the norms of queries and keys: their inputs in float32, a scale for each head, and the normalised inputs."""
    heads = model.num_heads + model.num_kv_heads
    return heads * (FLOAT_BYTES * (model.head_size + 1) + compute_bytes(pretrain) * model.head_size)


def _operator_bytes(model: ModelConfig, pretrain: PretrainConfig) -> int:
    """Results that `operators` keep of one layer: of the seven matrix products, and of attention with its logarithms,
    or of its two products where it is eager."""
    query, key = model.num_heads * model.head_size, model.num_kv_heads * model.head_size
    narrow, kept = compute_bytes(pretrain), 0
    if "matmul" in pretrain.recompute_keep:
        kept += narrow * (query + 2 * key + 2 * model.hidden_size + 2 * model.intermediate_size)
    if "attention" in pretrain.recompute_keep:
        kept += narrow * query
        scores = narrow * pretrain.sequence_tokens if pretrain.attention == "eager" else FLOAT_BYTES
        kept += scores * model.num_heads
    return kept


def mask_bytes_per_token(pretrain: PretrainConfig) -> int:
    """What making the mask needs beside what is kept of it: which tokens attend to which, a byte each; and where
    attention is eager the mask itself, which only the forward pass holds. flex_attention has lists of blocks instead:
    while they are made, two integers a token and, as measured, 30 bytes for each two blocks of tokens.
    """
    tokens = pretrain.sequence_tokens
    if pretrain.attention == "flex":
        return 2 * FLOAT_BYTES + 1 - (-30 * tokens // BLOCK_TOKENS**2)
    if pretrain.attention == "eager":
        return (1 + compute_bytes(pretrain)) * tokens
    return tokens if _has_mask(pretrain) else 0


def _has_mask(pretrain: PretrainConfig) -> bool:
    """Whether torch's attention gets a mask of tokens by tokens, the same one in all layers: on GPUs, to keep documents
    apart. What will be trained on is not known here where it is not said; then it counts."""
    return pretrain.attention == "sdpa" and pretrain.needs_mask and pretrain.device != "cpu"


def _repeats_keys(model: ModelConfig, pretrain: PretrainConfig) -> bool:
    """Whether keys and values are spread over all heads before the kernel sees them."""
    if pretrain.attention == "flex":
        return model.num_heads & (model.num_heads - 1) != 0
    return pretrain.attention in ("eager", "flash") or _has_mask(pretrain)
