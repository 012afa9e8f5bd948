"""Parameters of a decoder of any family, tensor by tensor, and the floating-point operations of training it.

Imports neither torch nor transformers.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Literal

from stages.pretrain.model.shape import ModelConfig

Part = Literal["embedding", "attention", "feed_forward", "norms", "biases", "output"]


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Of `count` like tensors; columns: 0 where they are vectors."""

    part: Part
    rows: int
    columns: int
    count: int

    @property
    def numel(self) -> int:
        """Numbers in one of them."""
        return self.rows * max(self.columns, 1)

    @property
    def is_layer_matrix(self) -> bool:
        """Whether they map activations to activations within a layer."""
        return self.part in ("attention", "feed_forward")


def shapes(model: ModelConfig, vocabulary_size: int) -> tuple[Shape, ...]:
    """All parameters of the model that transformers builds. Its shape must be resolved."""
    hidden, wide = model.hidden_size, model.intermediate_size
    query, key = model.num_heads * model.head_size, model.num_kv_heads * model.head_size
    in_a_layer: list[tuple[Part, int, int, int]] = [
        ("attention", query, hidden, 1),
        ("attention", key, hidden, 2),
        ("attention", hidden, query, 1),
        ("feed_forward", wide, hidden, 2),
        ("feed_forward", hidden, wide, 1),
        ("norms", hidden, 0, 2),
        ("norms", model.head_size, 0, 2 if model.family == "qwen3" else 0),
        ("biases", query, 0, int(model.input_bias)),
        ("biases", key, 0, 2 * model.input_bias),
        ("biases", hidden, 0, model.attention_bias + model.mlp_bias),
        ("biases", wide, 0, 2 * model.mlp_bias),
    ]
    return (
        Shape(part="embedding", rows=vocabulary_size, columns=hidden, count=1),
        *(
            Shape(part=part, rows=rows, columns=columns, count=model.num_layers * number)
            for part, rows, columns, number in in_a_layer
            if number
        ),
        Shape(part="norms", rows=hidden, columns=0, count=1),
        *([] if model.tie_embeddings else [Shape(part="output", rows=vocabulary_size, columns=hidden, count=1)]),
    )


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """Numbers of parameters. `attention` and `feed_forward` are those of matrices; `output` is 0 where the output
    projection is the embedding."""

    embedding: int
    attention: int
    feed_forward: int
    norms: int
    biases: int
    output: int

    @property
    def total(self) -> int:
        return self.embedding + self.non_embedding + self.output

    @property
    def non_embedding(self) -> int:
        """Without the embedding and the output projection, as scaling laws count (Kaplan et al., 2020, section 2.1)."""
        return self.attention + self.feed_forward + self.norms + self.biases

    @property
    def multiplied(self) -> int:
        """Weights that a forward pass multiplies with: the embedding is looked up, the output projection is multiplied
        with, even where it is the same matrix."""
        return self.attention + self.feed_forward + (self.output or self.embedding)


def parameters(model: ModelConfig, vocabulary_size: int) -> Parameters:
    """Those of `shapes`, by part."""
    found: Counter[Part] = Counter()
    for shape in shapes(model, vocabulary_size):
        found[shape.part] += shape.count * shape.numel
    return Parameters(
        embedding=found["embedding"],
        attention=found["attention"],
        feed_forward=found["feed_forward"],
        norms=found["norms"],
        biases=found["biases"],
        output=found["output"],
    )


@dataclass(frozen=True, kw_only=True)
class Flops:
    """Floating-point operations of training (forward and backward) for one token of a sequence."""

    matrices: int
    attention: int

    @property
    def per_token(self) -> int:
        return self.matrices + self.attention


def flops(model: ModelConfig, vocabulary_size: int, sequence_tokens: int) -> Flops:
    """Six for each weight that is multiplied with, two forward and four backward (Kaplan et al., Scaling Laws for
    Neural Language Models, 2020, section 2.1), and 12 x layers x width x sequence for attention scores and their use
    (Chowdhery et al., PaLM, 2022, appendix B).

    Attention is counted over the whole sequence, as for a published model FLOPs utilisation; a kernel that leaves out
    the masked half does half of that part.
    """
    return Flops(
        matrices=6 * parameters(model, vocabulary_size).multiplied,
        attention=12 * model.num_layers * model.num_heads * model.head_size * sequence_tokens,
    )
