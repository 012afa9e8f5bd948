"""What a run reads and what it leaves on the disk."""

from collections.abc import Mapping
from dataclasses import dataclass

from data.mixture import resolve_mixture
from stages.pretrain.config import PretrainConfig

CHECKPOINT_BYTES_PER_PARAMETER = 12  # float32 weight and both moments


@dataclass(frozen=True, kw_only=True)
class DomainReading:
    """How often a run reads a domain. weight: its share of the sequences. tokens: that it has."""

    weight: float
    tokens: int
    sequences: int
    epochs: float


@dataclass(frozen=True, kw_only=True)
class Reading:
    """domains: those that are drawn from. warnings: one sentence each."""

    domains: dict[str, DomainReading]
    warnings: tuple[str, ...]


def reading(pretrain: PretrainConfig, train_tokens: Mapping[str, int], most_epochs: float) -> Reading:
    """Epochs by domain. Raises InputError for a mixture that the tokens cannot serve."""
    sequences = {domain: max(0, (count - 1) // pretrain.sequence_tokens) for domain, count in train_tokens.items()}
    mixture = resolve_mixture(pretrain.mixture, num_tokens=train_tokens, num_sequences=sequences)
    drawn = pretrain.num_steps * pretrain.batch_sequences
    domains = {
        domain: DomainReading(
            weight=round(weight, 6),
            tokens=train_tokens[domain],
            sequences=sequences[domain],
            epochs=round(drawn * weight / sequences[domain], 6),
        )
        for domain, weight in mixture.weights.items()
    }
    repeated = tuple(
        f"domain {domain!r} is read {found.epochs:.1f} times, more than {most_epochs:g}: add text, lower its weight in "
        "pretrain.mixture, or train for fewer steps"
        for domain, found in domains.items()
        if found.epochs > most_epochs
    )
    return Reading(domains=domains, warnings=mixture.warnings + repeated)


@dataclass(frozen=True, kw_only=True)
class Disk:
    """bytes_each: of one checkpoint. durable: checkpoints that become artifacts. total_bytes: the most that the run
    holds at any time.
    """

    bytes_each: int
    durable: int
    total_bytes: int


def disk(pretrain: PretrainConfig, num_parameters: int) -> Disk:
    """All durable checkpoints, the local ones that are kept, one to roll back to, and one that is being written."""
    each = CHECKPOINT_BYTES_PER_PARAMETER * num_parameters
    durable = len(pretrain.durable_steps())
    return Disk(bytes_each=each, durable=durable, total_bytes=each * (durable + pretrain.keep_local + 2))
