"""Weights and what the optimizer keeps of them, tensor by tensor, in bytes of one process.

float32 weights, gradients and both moments of AdamW are 16 bytes a parameter (Rajbhandari et al., ZeRO, 2020, section
3.1, without its extra half-precision copies). Muon keeps one moment of the layers' matrices; in eight bits a moment of
a matrix is a byte a number and a float32 scale for each block of a row; an average of the weights is float32.
"""

from stages.plan.activations import FLOAT_BYTES
from stages.pretrain.config import ModelConfig, PretrainConfig
from stages.pretrain.model.counts import Shape, shapes
from stages.pretrain.optimise.eight_bit import num_blocks
from stages.pretrain.parallel.layout import Layout


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
