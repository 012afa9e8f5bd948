"""Memory of one training process, by part, in bytes: see `states` and `activations` for what is counted how.

Tensors are counted, and the peak of their sum is not: gradients are as if they were all there when the activations are.
What a kernel needs for itself, and what of a heap is free but in pieces, is not counted.

Error of the total as last measured, against the peak resident memory of processes on a CPU (torch 2.13; vocabulary of
8,000, 2,048 tokens in a micro-batch). 7 million parameters, one process: float32 -6 %, with Muon -7 %, with recompute =
"full" -11 %; bf16 -19 %, and -23 % with 8,192 tokens; two processes with FSDP2 -15 %. 23 million parameters, two
processes with ZeroRedundancyOptimizer: -15 %. The plan is of the tensors: leave a third on top of it.
Preflight measures it anew for each run.
"""

from dataclasses import asdict, dataclass

from stages.plan.activations import (
    FLOAT_BYTES,
    activation_bytes_per_token,
    compute_bytes,
    mask_bytes_per_token,
    residual_bytes,
)
from stages.plan.states import all_state_bytes, held_state_bytes
from stages.pretrain.config import ModelConfig, PretrainConfig
from stages.pretrain.model.counts import parameters, shapes
from stages.pretrain.parallel.layout import Layout, layout_of

# Interpreter, torch, transformers and numba, before any tensor: 0.74 GB resident on Linux.
PROCESS_BYTES = 740_000_000
# Units whose float32 gradients are on their way: one that is reduced and one that is made.
UNITS_UNDER_WAY = 2


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes of one process. copies: weights in the type of the matrix products, which are whole where FSDP has gathered
    them, and gradients that are not reduced yet. mask: of attention, while it is made. loss: scores of a chunk of
    tokens, and the gradients that the loss makes with them. update: what the optimizer needs for a while, when the
    activations are gone. staging: the copy of weights and states from which a checkpoint is written. host: what lies on
    the host instead of the GPU: that copy, and with offload_optimizer weights, gradients and states; these are 0 above
    then. process: what is there without a model.
    """

    weights: int
    gradients: int
    optimizer: int
    copies: int
    activations: int
    mask: int
    loss: int
    update: int
    staging: int
    host: int
    process: int

    @property
    def total(self) -> int:
        """The most at a time of the memory that the training computes in: activations are gone when weights are
        updated."""
        passing = self.activations + self.mask + self.loss
        rest = sum(asdict(self).values()) - passing - self.update - self.host
        return rest + max(passing, self.update)


def memory(model: ModelConfig, pretrain: PretrainConfig, vocabulary_size: int) -> Memory:
    """An estimate for the process that holds most. The shape must be resolved; vocabulary_size: padded."""
    layout = layout_of(pretrain)
    count = parameters(model, vocabulary_size).total
    shard = -(-count // layout.shards)
    sequences = max(size for _, size in pretrain.batch_sizes())
    mine = -(-sequences // layout.num_processes)
    rows = min(pretrain.micro_batch_sequences, mine)
    tokens, accumulates = rows * pretrain.sequence_tokens, mine > rows
    states = held_state_bytes(model, pretrain, layout, vocabulary_size)
    on_host, on_gpu = pretrain.offload_optimizer, pretrain.device == "cuda"
    staging = staging_bytes(model, pretrain, layout, vocabulary_size)
    return Memory(
        weights=0 if on_host else FLOAT_BYTES * shard,
        gradients=0 if on_host else FLOAT_BYTES * shard,
        optimizer=0 if on_host else states,
        copies=weight_copies(model, pretrain, layout, vocabulary_size, accumulates=accumulates),
        activations=tokens * activation_bytes_per_token(model, pretrain, layout),
        mask=tokens * mask_bytes_per_token(pretrain),
        loss=loss_bytes(model, pretrain, layout, vocabulary_size, tokens=tokens, accumulates=accumulates),
        update=0 if on_host else update_bytes(model, pretrain, layout, vocabulary_size),
        staging=0 if on_gpu else staging,
        host=(2 * FLOAT_BYTES * shard + states if on_host else 0) + (staging if on_gpu else 0),
        process=PROCESS_BYTES,
    )


def staging_bytes(model: ModelConfig, pretrain: PretrainConfig, layout: Layout, vocabulary_size: int) -> int:
    """What a process copies when a checkpoint is begun: an even share of weights and states, since each number is
    written by one process; of a redundant training one group writes all."""
    if not pretrain.asynchronous_checkpoints:
        return 0
    weights = FLOAT_BYTES * parameters(model, vocabulary_size).total
    writers = layout.shards if pretrain.redundant else layout.num_processes
    return -(-(weights + all_state_bytes(model, pretrain, vocabulary_size)) // writers)


def weight_copies(
    model: ModelConfig, pretrain: PretrainConfig, layout: Layout, vocabulary_size: int, *, accumulates: bool
) -> int:
    """Plain and replicated models: autocast keeps a narrow copy of each matrix of the layers until the backward pass is
    done. Sharded ones: FSDP holds the rest of the model and the layers of the unit at work and of those gathered ahead,
    or everything where it is not given up after the forward pass; and whole float32 gradients of what is not reduced
    yet, which is everything if only the last of several micro-batches reduces.
    """
    count = parameters(model, vocabulary_size)
    narrow = compute_bytes(pretrain)
    layers = count.non_embedding - model.hidden_size
    if not layout.is_sharded:
        return narrow * (count.attention + count.feed_forward) if narrow < FLOAT_BYTES else 0
    unit = -(-layers // model.num_layers) * layout.layers_per_unit
    rest = count.total - layers
    gathered = min((1 + layout.prefetch_units) * unit, layers) + rest if layout.reshards_after_forward else count.total
    under_way = count.total if accumulates else max(UNITS_UNDER_WAY * unit, rest)
    return narrow * gathered + FLOAT_BYTES * min(under_way, count.total)


def loss_bytes(
    model: ModelConfig,
    pretrain: PretrainConfig,
    layout: Layout,
    vocabulary_size: int,
    *,
    tokens: int,
    accumulates: bool,
) -> int:
    """Scores of a chunk in float32 and beside them, where products are narrow, their gradient in that type; the output
    matrix in that type, if it is not FSDP that makes such copies, and what the chunk adds to its gradient; the hidden
    states and their gradient. The whole gradient of the output matrix is counted among the gradients, unless those of
    earlier micro-batches are there already.
    """
    narrow, matrix = compute_bytes(pretrain), vocabulary_size * model.hidden_size
    chunk = min(pretrain.loss_chunk_tokens, tokens)
    scores = chunk * vocabulary_size * (FLOAT_BYTES + (narrow if narrow < FLOAT_BYTES else 0))
    copies = 0 if narrow == FLOAT_BYTES else narrow * matrix * (1 if layout.is_sharded else 2)
    whole = FLOAT_BYTES * matrix if accumulates else 0
    return scores + copies + whole + 2 * tokens * model.hidden_size * residual_bytes(pretrain, layout)


def update_bytes(model: ModelConfig, pretrain: PretrainConfig, layout: Layout, vocabulary_size: int) -> int:
    """A copy of the weights where the size of the update is measured; of Muon the directions of all its matrices, in
    float32 (on GPUs half of it); with moments in eight bits those of one matrix in float32."""
    all_shapes = shapes(model, vocabulary_size)
    pieces = layout.num_processes if layout.shards_states_only else layout.shards
    found = FLOAT_BYTES * -(-parameters(model, vocabulary_size).total // pieces)
    if pretrain.optimizer == "muon":
        directions = sum(of.numel * of.count for of in all_shapes if of.is_layer_matrix)
        found += FLOAT_BYTES * -(-directions // pieces)
    if pretrain.optimizer_states == "8bit":
        found += 2 * FLOAT_BYTES * -(-max(of.numel for of in all_shapes if of.columns) // layout.shards)
    return found
