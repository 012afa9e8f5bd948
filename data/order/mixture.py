"""In which proportions a training run draws from its domains, and how that changes during training.

A temperature T makes the shares those of weight^(1/T): above 1 they come closer to one another, as is usual where some
languages have little text (Arivazhagan et al., Massively multilingual neural machine translation in the wild, 2019).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from data.errors import InputError
from data.order.batches import Phase

LEAST_SHARE = 1e-200  # of the largest weight; far from where numbers lose digits


@dataclass(frozen=True, kw_only=True)
class ResolvedMixture:
    """phases: their weights sum to 1 each. warnings: what the user asked for and does not get, one sentence each."""

    phases: tuple[Phase, ...]
    warnings: tuple[str, ...]


def resolve_phases(
    weights: Mapping[str, float],
    schedule: Sequence[tuple[int, Mapping[str, float]]] = (),
    lengths: Sequence[tuple[int, int]] = (),
    *,
    batch_tokens: Sequence[tuple[int, int]],
    num_tokens: Mapping[str, int],
    num_sequences: Mapping[str, Mapping[int, int]],
    temperature: float = 1.0,
) -> ResolvedMixture:
    """The phases that a run really has.

    weights: what the user wrote, in any scale; empty means in proportion to the tokens. schedule: (from_step, weights)
    that replace them from a step on, counted from 0. lengths: (from_step, longest_tokens), the longest sequences that
    are drawn from a step on; before the first, all are. batch_tokens: (from_step, places of a batch), the first from 0.
    num_tokens: of each domain that is there; num_sequences: domain -> length -> sequences. temperature: of all weights,
    above 0; 1 leaves them as they are. A domain without a sequence that a phase allows gives its share to the others.

    Raises InputError for a domain that is not there, a weight that is not positive or too small at this temperature,
    steps that do not ascend, and a phase in which no domain is left.
    """
    _check_steps("mixture_schedule", [step for step, _ in schedule], least=1)
    _check_steps("length_schedule", [step for step, _ in lengths], least=0)
    _check_steps("batch_ramp", [step for step, _ in batch_tokens], least=0)
    assert batch_tokens[0][0] == 0, f"the first batches have no size: {batch_tokens}"
    longest = max((length for pools in num_sequences.values() for length in pools), default=0)
    mixtures = [(0, weights), *schedule]
    limits = [(0, longest), *lengths]
    phases = []
    without: dict[tuple[str, int], int] = {}  # domain, limit -> the first step of such a phase
    for step in sorted({step for phases_of in (mixtures, limits, batch_tokens) for step, _ in phases_of}):
        since, wanted = [mixture for mixture in mixtures if mixture[0] <= step][-1]
        wanted = _tempered(_setting(since), _checked(_setting(since), wanted, num_tokens), temperature)
        limit = [found for start, found in limits if start <= step][-1]
        usable = {
            domain: weight
            for domain, weight in sorted(wanted.items())
            if any(count and length <= limit for length, count in num_sequences.get(domain, {}).items())
        }
        if not usable:
            raise InputError(_nothing_left(step, limit, wanted, num_tokens, num_sequences))
        total = math.fsum(usable.values())
        phases.append(
            Phase(
                first_step=step,
                weights={domain: weight / total for domain, weight in usable.items()},
                longest_tokens=limit,
                batch_tokens=[found for start, found in batch_tokens if start <= step][-1],
            )
        )
        for domain in sorted(set(wanted) - set(usable)):
            without.setdefault((domain, limit), step)
    warnings = tuple(
        f"domain {domain!r} has {num_tokens[domain]} tokens, but no training sequence"
        f"{f' of at most {limit} tokens' if limit < longest else ''}; {_when(step)} its share goes to the other domains"
        for (domain, limit), step in without.items()
    )
    return ResolvedMixture(phases=tuple(phases), warnings=warnings)


def _check_steps(setting: str, steps: list[int], *, least: int) -> None:
    if steps != sorted(set(steps)) or (steps and steps[0] < least):
        raise InputError(f"the phases of {setting} begin after {steps} steps; these must ascend, from {least}")


def _when(step: int) -> str:
    """The same whether steps are counted from 0 or from 1."""
    return f"after {step} steps" if step else "from the start"


def _setting(step: int) -> str:
    """Where the weights from a step on stand in a recipe, which counts its steps from 1."""
    return f"pretrain.mixture_schedule (from_step = {step + 1})" if step else "pretrain.mixture"


def _checked(setting: str, weights: Mapping[str, float], num_tokens: Mapping[str, int]) -> dict[str, float]:
    """The weights that are meant, in any scale."""
    for domain, weight in weights.items():
        if domain not in num_tokens:
            present = ", ".join(sorted(num_tokens)) or "none"
            raise InputError(f"{setting} names domain {domain!r}, which the corpus lacks; it has {present}")
        if not (math.isfinite(weight) and weight > 0):
            raise InputError(
                f"{setting}: the weight of {domain!r} is {weight}; it must be above 0 (leave a domain out to draw "
                "nothing from it)"
            )
    return dict(weights) or {domain: float(count) for domain, count in num_tokens.items() if count}


def _tempered(setting: str, weights: Mapping[str, float], temperature: float) -> dict[str, float]:
    """Powers of the weights, in any scale, to twelve digits: so that they are the same wherever they are computed."""
    if temperature == 1 or not weights:
        return dict(weights)
    most = max(weights.values())
    found = {domain: float(f"{(weight / most) ** (1 / temperature):.12g}") for domain, weight in weights.items()}
    for domain, weight in found.items():
        if weight < LEAST_SHARE:
            raise InputError(
                f"{setting}: at pretrain.mixture_temperature = {temperature:g} nothing is left of the share of "
                f"{domain!r}; raise the temperature, or leave the domain out"
            )
    return found


def _nothing_left(
    step: int,
    limit: int,
    wanted: Mapping[str, float],
    num_tokens: Mapping[str, int],
    num_sequences: Mapping[str, Mapping[int, int]],
) -> str:
    there = sorted({length for domain in wanted for length, count in num_sequences.get(domain, {}).items() if count})
    if there:
        return (
            f"length_schedule allows at most {limit} tokens a sequence {_when(step)}, but the shortest one has "
            f"{there[0]}; raise longest_tokens there"
        )
    have = ", ".join(f"{domain} {num_tokens[domain]} tokens" for domain in sorted(wanted)) or "no tokens at all"
    return f"no domain of the mixture has a training sequence ({have}); add text"
