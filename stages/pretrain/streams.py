"""The sequences of a training run: which tokens, in which order.

Training step s, counted from 1, has the rows of `SampleOrder.batch(s - 1)`; that is all that a resumed run needs to
know.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data.errors import InputError
from data.loader import BatchLoader
from data.mixture import resolve_mixture
from data.order import SampleOrder
from data.shards import TokenStream, open_streams
from stages.fingerprint import digest
from stages.pretrain.config import PretrainConfig

TRAIN, HELDOUT = "train", "heldout"


@dataclass(frozen=True)
class Sequences:
    """One side of the split. `warnings`: what the user asked of the mixture and does not get."""

    order: SampleOrder
    streams: Mapping[str, TokenStream]
    warnings: tuple[str, ...]

    def loader(self, *, batch_sequences: int, sequence_tokens: int, rows: slice) -> BatchLoader:
        return BatchLoader(
            order=self.order,
            streams=self.streams,
            batch_sequences=batch_sequences,
            sequence_tokens=sequence_tokens,
            rows=rows,
        )


def open_sequences(config: PretrainConfig, tokens: Path, side: str) -> Sequences:
    """The training or the held-out sequences below `tokens`. Raises InputError if no domain of the mixture has one."""
    streams = open_streams(tokens / side)
    weights = config.mixture
    if side == HELDOUT and weights:
        weights = {domain: weight for domain, weight in weights.items() if domain in streams}
        if not weights:
            raise InputError(f"no domain of pretrain.mixture has held-out text in {tokens}")
    counts = {domain: stream.num_sequences(config.sequence_tokens) for domain, stream in streams.items()}
    try:
        mixture = resolve_mixture(
            weights,
            num_tokens={domain: len(stream) for domain, stream in streams.items()},
            num_sequences=counts,
        )
    except InputError as error:
        raise InputError(f"{side} tokens in {tokens}: {error}") from error
    order = SampleOrder(seed=config.seed, weights=mixture.weights, num_sequences=counts)
    return Sequences(order, streams, mixture.warnings)


def data_fingerprint(config: PretrainConfig, tokens_digest: str) -> str:
    """sha256 of all that decides which tokens stand in which step. `tokens_digest`: that of the tokens artifact."""
    decisive: dict[str, Any] = {
        "tokens": tokens_digest,
        "mixture": config.mixture,
        "sequence_tokens": config.sequence_tokens,
        "batch_sequences": config.batch_sequences,
        "seed": config.seed,
    }
    return digest(decisive)
