"""What a model must offer to be scored, and what it may offer to be scored faster."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from torch import Tensor


class LanguageModel(Protocol):
    """A causal model: token ids in, logits out."""

    @property
    def max_length(self) -> int:
        """Tokens that the model can take at once."""

    @property
    def vocabulary_size(self) -> int:
        """Rows of its logits."""

    def logits(self, tokens: Tensor, keep: int) -> Tensor:
        """`tokens: int64[batch, length]` -> `float32[batch, keep, vocabulary_size]`, for the last `keep` positions.
        Position i predicts token i + 1 and sees none after i.
        """


class Continuation(Protocol):
    """Sequences that a model has read, to be continued token by token."""

    logits: Tensor
    """`float32[batch, vocabulary_size]`, of the token that comes next."""

    def extend(self, tokens: Tensor) -> None:
        """Read one more token of each: `tokens: int64[batch]`."""

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with these sequences alone."""


@runtime_checkable
class OpenModel(LanguageModel, Protocol):
    """A model that can be taken apart: what may be seen from where is an argument, the output projection is a step of
    its own, and what was read is kept.
    """

    @property
    def takes_trees(self) -> bool:
        """Whether it does all this; if not, only `logits` is called."""

    def states(self, tokens: Tensor, positions: Tensor | None, visible: Tensor | None) -> Tensor:
        """What the output projection takes: `[batch, length, width]`.

        tokens, positions: int64[batch, length]. visible: bool[batch, length, length], whether a row's place i sees its
        place j. Neither: each place sees those before it.
        """

    def project(self, states: Tensor) -> Tensor:
        """`states: [n, width]` -> logits, `float32[n, vocabulary_size]`."""

    def read(self, tokens: Tensor, num_padding: Tensor) -> Continuation:
        """`tokens: int64[batch, length]`, filled up on the left with `num_padding: int64[batch]` tokens each."""


def opened(model: LanguageModel) -> OpenModel | None:
    """The model, if it can be taken apart."""
    return model if isinstance(model, OpenModel) and model.takes_trees else None
