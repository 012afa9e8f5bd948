"""Weights and what the optimizer keeps of them, tensor by tensor, in bytes of one process.

float32 weights, gradients and both moments of AdamW are 16 bytes a parameter (Rajbhandari et al., ZeRO, 2020, section
3.1, without its extra half-precision copies). Muon keeps one moment of the layers' matrices; in eight bits a moment of
a matrix is a byte a number and a float32 scale for each block of a row; an average of the weights is float32.
"""

from dataclasses import dataclass

from stages.plan.compute import parameters
from stages.pretrain.config import ModelConfig, PretrainConfig
from stages.pretrain.optimise.eight_bit import num_blocks
from stages.pretrain.parallel.layout import Layout

FLOAT_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Of `count` like tensors; columns: 0 where they are vectors."""

    rows: int
    columns: int
    count: int
    is_layer_matrix: bool

    @property
    def numel(self) -> int:
        """Numbers in one of them."""
        return self.rows * max(self.columns, 1)


def shapes(model: ModelConfig, vocabulary_size: int) -> tuple[Shape, ...]:
    """All parameters. The model's shape must be resolved."""
    hidden, wide, layers = model.hidden_size, model.intermediate_size, model.num_layers
    query, key = model.num_heads * model.head_size, model.num_kv_heads * model.head_size
    matrices = ((query, hidden, 1), (key, hidden, 2), (hidden, query, 1), (wide, hidden, 2), (hidden, wide, 1))
    vectors = [(hidden, 2)]
    if model.family == "qwen3":
        vectors.append((model.head_size, 2))
    if model.input_bias:
        vectors += [(query, 1), (key, 2)]
    if model.attention_bias:
        vectors.append((hidden, 1))
    if model.mlp_bias:
        vectors += [(wide, 2), (hidden, 1)]
    found = (
        Shape(rows=vocabulary_size, columns=hidden, count=1 if model.tie_embeddings else 2, is_layer_matrix=False),
        *(Shape(rows=r, columns=c, count=layers * number, is_layer_matrix=True) for r, c, number in matrices),
        *(Shape(rows=rows, columns=0, count=layers * number, is_layer_matrix=False) for rows, number in vectors),
        Shape(rows=hidden, columns=0, count=1, is_layer_matrix=False),
    )
    assert sum(of.numel * of.count for of in found) == parameters(model, vocabulary_size).total, (
        "parameters are missing"
    )
    return found


def state_bytes(shape: Shape, pretrain: PretrainConfig) -> int:
    """What the optimizer and the average keep of one whole tensor."""
    moments = 1 if pretrain.optimizer == "muon" and shape.is_layer_matrix else 2
    moment = FLOAT_BYTES * shape.numel
    if pretrain.optimizer_states == "8bit" and shape.columns:
        moment = shape.numel + FLOAT_BYTES * shape.rows * num_blocks(shape.columns)
    return moments * moment + (FLOAT_BYTES * shape.numel if pretrain.ema_decay else 0)


def all_state_bytes(model: ModelConfig, pretrain: PretrainConfig, vocabulary_size: int) -> int:
    """What the optimizer and the average keep, over all processes, each thing once."""
    return sum(of.count * state_bytes(of, pretrain) for of in shapes(model, vocabulary_size))


def held_state_bytes(model: ModelConfig, pretrain: PretrainConfig, layout: Layout, vocabulary_size: int) -> int:
    """The same for the process that holds most. Sharded parameters are cut evenly; where whole states have an owner,
    the largest tensors are dealt out first, each to the process that has least so far, as ZeroRedundancyOptimizer does.
    """
    if not layout.shards_states_only:
        return -(-all_state_bytes(model, pretrain, vocabulary_size) // layout.shards)
    numbers, held = [0] * layout.num_processes, [0] * layout.num_processes
    for shape in sorted(shapes(model, vocabulary_size), key=lambda of: -of.numel):
        for _ in range(shape.count):
            least = numbers.index(min(numbers))
            numbers[least] += shape.numel
            held[least] += state_bytes(shape, pretrain)
    return max(held)
