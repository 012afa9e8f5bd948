"""Memory of one training process, by part, in bytes.

Weights, gradients and both AdamW moments are float32: 16 bytes a parameter (Rajbhandari et al., ZeRO, 2020, section
3.1, without its extra half-precision copies), divided over the processes by FSDP. Activations are what autograd keeps
of transformers' LlamaForCausalLM with scaled_dot_product_attention and no recomputation, counted tensor by tensor.
That count is within 1 % of what saved_tensors_hooks find in one process, which a test holds it to.

Error of the total as last measured, against the peak resident memory of processes on CPU (torch 2.13; 0.8 and 26
million parameters, 2,048 tokens a step): one process -5 % to +1 %, two processes with FSDP -14 % to +3 %. Preflight
measures it anew for each run.
"""

from dataclasses import dataclass

from stages.plan.compute import parameters
from stages.pretrain.config import ModelConfig, PretrainConfig

FLOAT_BYTES = 4
MOMENTS_BYTES = 8
PROCESS_BYTES = 550_000_000  # interpreter, torch and transformers, before any tensor: 0.4 to 0.6 GB resident on Linux


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes of one process. copies: weights in the type of the matrix products, which are whole where FSDP has gathered
    them. logits: the largest tensor of the loss, its logarithm and its gradient. process: what is there without a
    model.
    """

    weights: int
    gradients: int
    optimizer: int
    copies: int
    activations: int
    logits: int
    process: int

    @property
    def total(self) -> int:
        return (
            self.weights + self.gradients + self.optimizer + self.copies + self.activations + self.logits + self.process
        )


def memory(model: ModelConfig, pretrain: PretrainConfig, vocabulary_size: int) -> Memory:
    """An estimate for the process that holds most. The shape must be resolved."""
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
        activations=tokens * activation_bytes_per_token(model, pretrain.precision),
        logits=tokens * logit_bytes_per_token(vocabulary_size, pretrain.precision),
        process=PROCESS_BYTES,
    )


def weight_copies(model: ModelConfig, pretrain: PretrainConfig, vocabulary_size: int) -> int:
    """One process: with bf16, autocast keeps a copy of each matrix until the backward pass is done. Several: FSDP holds
    at most two gathered layers (the one at work and the next), or the embedding and the output projection, and the
    float32 gradient of one of them before it is reduced.
    """
    count = parameters(model, vocabulary_size)
    compute_bytes = 2 if pretrain.precision == "bf16" else FLOAT_BYTES
    if pretrain.num_processes == 1:
        return 2 * count.matrices(model.tie_embeddings) if pretrain.precision == "bf16" else 0
    layer = -(-(count.attention + count.feed_forward) // model.num_layers) + 2 * model.hidden_size
    ends = count.embedding + count.output + model.hidden_size
    return compute_bytes * max(2 * layer, layer + ends) + FLOAT_BYTES * max(layer, ends)


def activation_bytes_per_token(model: ModelConfig, precision: str) -> int:
    """What the backward pass needs of one token, from the embedding to the input of the output projection.

    Per layer, d = hidden size, q = query width, k = key-value width, f = intermediate size:
    the residual stream and its normalised value before attention and before the feed-forward block (4 d, float32);
    inputs of the matrix products: in float32 the scaled norms and attention's result (2 d + q), in bf16 a copy for
    each of the six products that read them (5 d + q); rotated queries, keys and values (q + 2 k); the two feed-forward
    products, the activated gate and their product (4 f); one logarithm a head and the two scales of the norms.
    """
    hidden, query = model.hidden_size, model.num_heads * model.head_size
    key_value = model.num_kv_heads * model.head_size
    if precision == "bf16":
        inputs, compute_bytes = 5 * hidden + query, 2
    else:
        inputs, compute_bytes = 2 * hidden + query, FLOAT_BYTES
    layer = FLOAT_BYTES * (4 * hidden + model.num_heads + 2) + compute_bytes * (
        inputs + query + 2 * key_value + 4 * model.intermediate_size
    )
    final_norm = FLOAT_BYTES * (2 * hidden + 1) + compute_bytes * hidden
    return model.num_layers * layer + final_norm


def logit_bytes_per_token(vocabulary_size: int, precision: str) -> int:
    """The loss holds the logits in float32 and their log-softmax, or that and its gradient; bf16 logits beside them."""
    return vocabulary_size * (2 * FLOAT_BYTES + (2 if precision == "bf16" else 0))
