"""Parameters of a decoder of any family and the floating-point operations of training it."""

from dataclasses import dataclass

from stages.pretrain.config import ModelConfig


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

    def matrices(self, tied: bool) -> int:
        """Weights that a forward pass multiplies with: the embedding is looked up, the output projection is multiplied
        with, even where it is the same matrix.
        """
        return self.attention + self.feed_forward + (self.embedding if tied else self.output)


def parameters(model: ModelConfig, vocabulary_size: int) -> Parameters:
    """Parameters of the model that transformers builds. The shape must be resolved.

    Per layer: queries and output hidden x (heads x head size) each, keys and values hidden x (kv heads x head size)
    each, three feed-forward matrices hidden x intermediate, two RMSNorms of hidden and in family qwen3 two of the head
    size; one RMSNorm behind the last layer.
    """
    query_width = model.num_heads * model.head_size
    kv_width = model.num_kv_heads * model.head_size
    head_norms = 2 * model.head_size if model.family == "qwen3" else 0
    biases = (
        model.input_bias * (query_width + 2 * kv_width)
        + model.attention_bias * model.hidden_size
        + model.mlp_bias * (2 * model.intermediate_size + model.hidden_size)
    )
    return Parameters(
        embedding=vocabulary_size * model.hidden_size,
        attention=model.num_layers * model.hidden_size * 2 * (query_width + kv_width),
        feed_forward=model.num_layers * 3 * model.hidden_size * model.intermediate_size,
        norms=model.num_layers * (2 * model.hidden_size + head_norms) + model.hidden_size,
        biases=model.num_layers * biases,
        output=0 if model.tie_embeddings else vocabulary_size * model.hidden_size,
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
        matrices=6 * parameters(model, vocabulary_size).matrices(model.tie_embeddings),
        attention=12 * model.num_layers * model.num_heads * model.head_size * sequence_tokens,
    )
