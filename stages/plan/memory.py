"""Memory of one training process, by part, in bytes.

Weights, gradients and both AdamW moments are float32: 16 bytes a parameter (Rajbhandari et al., ZeRO, 2020, section
3.1, without its extra half-precision copies), divided over the processes by FSDP. Activations are what autograd keeps
of transformers' LlamaForCausalLM without recomputation, counted tensor by tensor for each way to compute attention.
That count is within 1 % of what saved_tensors_hooks find in one process, which a test holds it to.

Error of the total as last measured, against the peak resident memory of processes on CPU (torch 2.13; 0.8 and 24
million parameters, bf16, every way to compute attention that a CPU has): with 2,048 tokens in a micro-batch one process
-4 % to -7 %, two processes with FSDP -1 % to -10 %; with 8,192 tokens, where the heap is never given back, -8 % to
-26 %. Preflight measures it anew for each run.
"""

from dataclasses import asdict, dataclass

from stages.plan.compute import parameters
from stages.pretrain.config import ModelConfig, PretrainConfig
from stages.pretrain.model.attention import BLOCK_TOKENS

FLOAT_BYTES = 4
MOMENTS_BYTES = 8
# Interpreter, torch, transformers and numba, before any tensor: 0.5 to 0.7 GB resident on Linux.
PROCESS_BYTES = 650_000_000


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes of one process. copies: weights in the type of the matrix products, which are whole where FSDP has gathered
    them. mask: of attention, while it is made. logits: the largest tensor of the loss, its logarithm and its gradient.
    process: what is there without a model.
    """

    weights: int
    gradients: int
    optimizer: int
    copies: int
    activations: int
    mask: int
    logits: int
    process: int

    @property
    def total(self) -> int:
        return sum(asdict(self).values())


def memory(model: ModelConfig, pretrain: PretrainConfig, vocabulary_size: int) -> Memory:
    """An estimate for the process that holds most. The shape must be resolved; vocabulary_size: padded."""
    processes = pretrain.num_processes
    count = parameters(model, vocabulary_size)
    shard = -(-count.total // processes)
    rows = min(pretrain.micro_batch_sequences, -(-pretrain.batch_sequences // processes))
    tokens = rows * pretrain.sequence_tokens
    return Memory(
        weights=FLOAT_BYTES * shard,
        gradients=FLOAT_BYTES * shard,
        optimizer=MOMENTS_BYTES * shard,
        copies=weight_copies(model, pretrain, vocabulary_size),
        activations=tokens * activation_bytes_per_token(model, pretrain),
        mask=tokens * mask_bytes_per_token(pretrain),
        logits=tokens * logit_bytes_per_token(vocabulary_size, pretrain.precision),
        process=PROCESS_BYTES,
    )


def weight_copies(model: ModelConfig, pretrain: PretrainConfig, vocabulary_size: int) -> int:
    """One process: with bf16, autocast keeps a copy of each matrix until the backward pass is done. Several: FSDP holds
    at most two gathered layers (the one at work and the next), or the embedding and the output projection, and the
    float32 gradient of one of them before it is reduced.
    """
    count = parameters(model, vocabulary_size)
    compute_bytes = _compute_bytes(pretrain)
    if pretrain.num_processes == 1:
        return 2 * count.matrices(model.tie_embeddings) if pretrain.precision == "bf16" else 0
    layer = -(-(count.attention + count.feed_forward) // model.num_layers) + 2 * model.hidden_size
    ends = count.embedding + count.output + model.hidden_size
    return compute_bytes * max(2 * layer, layer + ends) + FLOAT_BYTES * max(layer, ends)


def activation_bytes_per_token(model: ModelConfig, pretrain: PretrainConfig) -> int:
    """What the backward pass needs of one token, from the embedding to the input of the output projection.

    Per layer, d = hidden size, q = query width, k = key-value width, f = intermediate size:
    the residual stream and its normalised value before attention and before the feed-forward block (4 d, float32);
    inputs of the matrix products: in float32 the scaled norms and attention's result (2 d + q), in bf16 a copy for
    each of the six products that read them (5 d + q); rotated queries, keys and values, the latter two spread over all
    heads where the kernel does not share them (q + 2 k, or 3 q); the two feed-forward products, the activated gate and
    their product (4 f); one logarithm a head and the two scales of the norms. Once: cosine and sine of each position.
    Masked attention keeps its mask, the same one in all layers; eager attention keeps its weights in place of the
    logarithms, which are a matrix of tokens by tokens for each head, in float32 and in the type of the products.
    """
    hidden, query, tokens = model.hidden_size, model.num_heads * model.head_size, pretrain.sequence_tokens
    compute_bytes = _compute_bytes(pretrain)
    inputs = 5 * hidden + query if pretrain.precision == "bf16" else 2 * hidden + query
    key_value = query if _repeats_keys(model, pretrain) else model.num_kv_heads * model.head_size
    heads = FLOAT_BYTES * model.num_heads
    once = FLOAT_BYTES * 2 * model.head_size
    if pretrain.attention == "eager":
        heads *= tokens
        if pretrain.precision == "bf16":
            heads += compute_bytes * model.num_heads * tokens
    elif pretrain.attention == "sdpa" and pretrain.needs_mask:
        once += compute_bytes * tokens
    layer = FLOAT_BYTES * (4 * hidden + 2) + heads
    layer += compute_bytes * (inputs + query + 2 * key_value + 4 * model.intermediate_size)
    final_norm = FLOAT_BYTES * (2 * hidden + 1) + compute_bytes * hidden
    return model.num_layers * layer + once + final_norm


def mask_bytes_per_token(pretrain: PretrainConfig) -> int:
    """What making the mask needs beside what is kept of it: which tokens attend to which, a byte each; and where
    attention is eager the mask itself, which only the forward pass holds. flex_attention has lists of blocks instead:
    while they are made, two integers a token and, as measured, 30 bytes for each two blocks of tokens.
    """
    tokens = pretrain.sequence_tokens
    if pretrain.attention == "flex":
        return 2 * FLOAT_BYTES + 1 - (-30 * tokens // BLOCK_TOKENS**2)
    if pretrain.attention == "eager":
        return (1 + _compute_bytes(pretrain)) * tokens
    return tokens if pretrain.needs_mask else 0


def _compute_bytes(pretrain: PretrainConfig) -> int:
    return 2 if pretrain.precision == "bf16" else FLOAT_BYTES


def _repeats_keys(model: ModelConfig, pretrain: PretrainConfig) -> bool:
    """Whether transformers spreads keys and values over all heads before the kernel sees them."""
    if pretrain.attention == "flex":
        return model.num_heads & (model.num_heads - 1) != 0
    return pretrain.attention == "eager" or pretrain.needs_mask


def logit_bytes_per_token(vocabulary_size: int, precision: str) -> int:
    """The loss holds the logits in float32 and their log-softmax, or that and its gradient; bf16 logits beside them."""
    return vocabulary_size * (2 * FLOAT_BYTES + (2 if precision == "bf16" else 0))
