"""From the mixture and the schedules of a recipe to the phases of the order; the plan reads this too."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from data.errors import InputError
from data.order.batches import Phase
from data.order.epoch_caps import cap_epochs, epochs, phase_tokens
from data.order.mixture import resolve_phases
from stages.pretrain.config import PretrainConfig

Sizes = Mapping[str, int]
Pools = Mapping[str, Mapping[int, int]]


@dataclass(frozen=True, kw_only=True)
class DomainShare:
    """A domain over a whole training. weight: its share of the tokens. epochs: how often those of its sequences are
    read that are read most often; wanted_epochs: how often without `mixture_most_epochs`.
    """

    weight: float
    epochs: float
    wanted_epochs: float


@dataclass(frozen=True, kw_only=True)
class TrainMixture:
    """phases: of the order. domains: those that the training draws from, in the order of their names, as the phases ask
    for; the order rounds shares. warnings: what the recipe asks for that does not come about, one sentence each.
    """

    phases: tuple[Phase, ...]
    domains: Mapping[str, DomainShare]
    warnings: tuple[str, ...]


def train_phases(config: PretrainConfig, num_tokens: Sizes, num_sequences: Pools) -> TrainMixture:
    """What the training draws. num_tokens: by domain; num_sequences: by domain and length. Raises InputError for a
    mixture that the tokens cannot serve.
    """
    lengths = [(phase.from_step - 1, phase.longest_tokens) for phase in config.length_schedule]
    if not lengths or lengths[0][0] > 0:
        lengths.insert(0, (0, config.sequence_tokens))
    schedule = [(phase.from_step - 1, phase.weights) for phase in config.mixture_schedule]
    found = resolve_phases(
        config.mixture,
        schedule,
        lengths,
        batch_tokens=[(first - 1, rows * config.sequence_tokens) for first, rows in config.batch_sizes()],
        num_tokens=num_tokens,
        num_sequences=num_sequences,
        temperature=config.mixture_temperature,
    )
    phases = found.phases
    if config.mixture_most_epochs is not None:
        phases = cap_epochs(
            phases,
            most_epochs=config.mixture_most_epochs,
            num_steps=config.num_steps,
            num_sequences=num_sequences,
        )
    late = tuple(
        f"pretrain.{name}: the phase from step {phase.from_step} on has no effect, since the training ends with step "
        f"{config.num_steps}"
        for name in ("mixture_schedule", "length_schedule", "batch_ramp")
        for phase in getattr(config, name)
        if phase.from_step > config.num_steps
    )
    unread = tuple(
        f"domain {domain!r}: {count} of {num_tokens[domain]} tokens are never read, since they stand in sequences that "
        "are longer than every phase of pretrain.length_schedule within pretrain.num_steps allows: raise longest_tokens"
        for domain, count in unread_tokens(phases, config.num_steps, num_sequences).items()
        if count
    )
    return TrainMixture(
        phases=phases,
        domains=_domain_shares(config, found.phases, phases, num_sequences),
        warnings=(*found.warnings, *late, *unread),
    )


def _domain_shares(
    config: PretrainConfig, wanted: Sequence[Phase], phases: Sequence[Phase], num_sequences: Pools
) -> dict[str, DomainShare]:
    """wanted: the phases without a cap on epochs."""
    drawn: dict[str, float] = {}
    for phase, tokens in zip(phases, phase_tokens(phases, num_steps=config.num_steps), strict=True):
        total = math.fsum(phase.weights.values())
        for domain, weight in phase.weights.items() if tokens else ():
            drawn[domain] = drawn.get(domain, 0.0) + tokens * weight / total
    times, wanted_times = (
        epochs(some, num_steps=config.num_steps, num_sequences=num_sequences) for some in (phases, wanted)
    )
    return {
        domain: DomainShare(
            weight=round(drawn[domain] / config.total_places, 6),
            epochs=round(times[domain], 6),
            wanted_epochs=round(wanted_times[domain], 6),
        )
        for domain in sorted(drawn)
    }


def unread_tokens(phases: Sequence[Phase], num_steps: int, num_sequences: Pools) -> dict[str, int]:
    """Domain -> places in those of its sequences that are too long for every phase that draws from it within num_steps
    steps. Domains that no such phase draws from are not in it.
    """
    longest: dict[str, int] = {}
    for phase in phases:
        if phase.first_step < num_steps:
            for domain in phase.weights:
                longest[domain] = max(longest.get(domain, 0), phase.longest_tokens)
    return {
        domain: sum(length * count for length, count in num_sequences[domain].items() if length > limit)
        for domain, limit in sorted(longest.items())
    }


def heldout_phase(config: PretrainConfig, num_tokens: Sizes, num_sequences: Pools) -> Phase:
    """The one phase of the held-out sequences: the training's first mixture, less the domains that have nothing held
    out, and without a cap on epochs. Its batches have as many sequences as the config asks for, if there are so many.
    Raises InputError if no domain is left.
    """
    weights = {domain: weight for domain, weight in config.mixture.items() if domain in num_tokens}
    if config.mixture and not weights:
        raise InputError("no domain of pretrain.mixture has held-out text: raise curate.heldout_fraction")
    length = config.sequence_tokens
    (phase,) = resolve_phases(
        weights,
        [],
        [(0, length)],
        batch_tokens=[(0, config.heldout_sequences * length)],
        num_tokens=num_tokens,
        num_sequences=num_sequences,
        temperature=config.mixture_temperature,
    ).phases
    available = sum(num_sequences[domain][length] for domain in phase.weights)
    return replace(phase, batch_tokens=min(config.heldout_sequences, available) * length)
