"""What a run reads and what it leaves on the disk."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from data.order.batches import SampleOrder
from data.order.packing import bucket_sequences
from stages.pretrain.batches.phases import train_phases
from stages.pretrain.checkpoints.retention import num_kept
from stages.pretrain.config import LENGTH_BUCKETS, PretrainConfig


@dataclass(frozen=True, kw_only=True)
class DomainReading:
    """How often a run reads a domain. weight: its share of the tokens over the whole run. tokens: that it has.
    sequences: of all lengths. epochs: of the sequences that are read most often, as the shares ask for; where rounding
    them changes much, `Reading.warnings` tells. wanted_epochs: without a cap on them.
    """

    weight: float
    tokens: int
    sequences: int
    epochs: float
    wanted_epochs: float


@dataclass(frozen=True, kw_only=True)
class Reading:
    """domains: those that are drawn from. exact: whether the sequences are known before they are packed; if not, there
    are no fewer than it says, and no more epochs. warnings: one sentence each.
    """

    domains: dict[str, DomainReading]
    exact: bool
    warnings: tuple[str, ...]


def pools(pretrain: PretrainConfig, num_tokens: int, length_bits: Sequence[int]) -> dict[int, int]:
    """Length -> sequences of a domain. length_bits: entry i is the number of documents whose number of tokens has the
    binary digit i. Best-fit packing is counted as if nothing were padded.
    """
    longest = pretrain.sequence_tokens
    if pretrain.packing != LENGTH_BUCKETS:
        return {longest: -(-num_tokens // longest)}
    found = bucket_sequences(length_bits, longest)
    assert sum(length * count for length, count in found.items()) == num_tokens, "length buckets lose tokens"
    return found


def reading(pretrain: PretrainConfig, domains: Mapping[str, Mapping[str, Any]], most_epochs: float) -> Reading:
    """Epochs by domain, over all phases of the schedules. domains: as the facts of pretokenize say. Raises InputError
    for a mixture that the tokens cannot serve.
    """
    num_tokens = {domain: found["train_tokens"] for domain, found in domains.items() if found["train_tokens"]}
    num_sequences = {
        domain: pools(pretrain, tokens, domains[domain]["train_length_bits"]) for domain, tokens in num_tokens.items()
    }
    resolved = train_phases(pretrain, num_tokens, num_sequences)
    order = SampleOrder(seed=pretrain.seed, num_sequences=num_sequences, phases=resolved.phases)
    found = {
        domain: DomainReading(tokens=num_tokens[domain], sequences=sum(num_sequences[domain].values()), **asdict(share))
        for domain, share in resolved.domains.items()
    }
    repeated = tuple(
        f"domain {domain!r} is read {of.epochs:.1f} times, more than {most_epochs:g}: add text, lower its weight in "
        "pretrain.mixture, set pretrain.mixture_most_epochs, or train for fewer steps"
        for domain, of in found.items()
        if of.epochs > most_epochs
    )
    return Reading(
        domains=found,
        exact=pretrain.packing != "best-fit",
        warnings=(*resolved.warnings, *order.warnings(pretrain.num_steps), *repeated),
    )


@dataclass(frozen=True, kw_only=True)
class Disk:
    """bytes_each: of one checkpoint. durable: checkpoints that become artifacts. total_bytes: the most that the run
    holds on this machine at any time. remote, remote_bytes: checkpoints that durable_url holds at the end, if it is
    set, and what they take.
    """

    bytes_each: int
    durable: int
    total_bytes: int
    remote: int
    remote_bytes: int


def disk(pretrain: PretrainConfig, state_bytes: int) -> Disk:
    """All durable checkpoints, the local ones that are kept, one to roll back to, and one that is being written.
    state_bytes: of weights and all that the optimizer keeps, over all processes."""
    steps = pretrain.durable_steps()
    remote = num_kept(steps, newest=pretrain.keep_local, keep_every=pretrain.keep_every)
    return Disk(
        bytes_each=state_bytes,
        durable=len(steps),
        total_bytes=state_bytes * (len(steps) + pretrain.keep_local + 2),
        remote=remote,
        remote_bytes=state_bytes * remote,
    )
