"""How often a run reads its domains, and phases in which none is read more often than it may be.

A domain that would be read more often than the cap is drawn less often by one factor in all phases alike; what it
leaves goes to the other domains of each phase, in proportion to their weights there, until these reach the cap too. In
one phase these are the shares min(x * weight, cap), with the x that fills the batch. In several they solve

    share[p, d] = price[p] * weight[p, d] * min(1, cap / load[d])      and      sum over d of share[p, d] = 1

where load[d] is how often d would be read at these prices. A phase's sum rises with its own price and falls with the
others', so the prices are found by solving phase after phase, and the order of the domains does not matter
(W. Rheinboldt, On M-functions and their application to nonlinear Gauss-Seidel iterations, 1970).

An epoch of a domain is one of the sequences that are read most often: with a schedule of lengths these are the
shortest, which every phase allows. There, a run that just about suffices may be refused although shares exist that
would do, which shift a domain to the phases that read its long sequences; without such a schedule, a run is refused
only if no shares would do. Shares are rounded afterwards, as `data.order.batches` says; where that changes much,
`SampleOrder.warnings` tells.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from data.errors import InputError
from data.order.batches import Phase

MOST_SWEEPS = 1000
MOST_PRICE = 1e12  # a phase that pays so much finds nothing to buy
CLOSE = 1e-12  # how near to 1 the shares of a phase must come
ADVICE = "add text, train for fewer steps, or raise pretrain.mixture_most_epochs"
TOLERANCE = 1e-6  # of the cap, that a mixture without a better solution may exceed it


def phase_tokens(phases: Sequence[Phase], *, num_steps: int) -> list[int]:
    """Of each phase, the places for tokens in its steps within num_steps."""
    ends = [*(phase.first_step for phase in phases[1:]), num_steps]
    return [
        max(0, min(end, num_steps) - phase.first_step) * phase.batch_tokens
        for phase, end in zip(phases, ends, strict=True)
    ]


def epochs(
    phases: Sequence[Phase], *, num_steps: int, num_sequences: Mapping[str, Mapping[int, int]]
) -> dict[str, float]:
    """Domain -> how often num_steps steps read those of its sequences that are read most often, as the shares ask for.

    num_sequences: domain -> length -> sequences. Domains that no step draws from are not in it.
    """
    found: dict[str, float] = {}
    for phase, tokens in zip(phases, phase_tokens(phases, num_steps=num_steps), strict=True):
        if tokens:
            total = math.fsum(phase.weights.values())
            for domain, weight in phase.weights.items():
                times = tokens * weight / total / _places(num_sequences[domain], phase.longest_tokens)
                found[domain] = found.get(domain, 0.0) + times
    return found


def cap_epochs(
    phases: Sequence[Phase],
    *,
    most_epochs: float,
    num_steps: int,
    num_sequences: Mapping[str, Mapping[int, int]],
) -> tuple[Phase, ...]:
    """The phases with shares that read no domain more than most_epochs times in num_steps steps; the same phases if
    none is. Phases behind the last step stay as they are. Raises InputError if the text does not suffice.
    """
    uncapped = epochs(phases, num_steps=num_steps, num_sequences=num_sequences)
    if all(times <= most_epochs for times in uncapped.values()):
        return tuple(phases)
    tokens = phase_tokens(phases, num_steps=num_steps)
    reached = [number for number, count in enumerate(tokens) if count]
    market = _Market(
        most_epochs=most_epochs,
        tokens=[tokens[number] for number in reached],
        weights=[_scaled(phases[number].weights) for number in reached],
        places=[
            {domain: _places(num_sequences[domain], phases[number].longest_tokens) for domain in phases[number].weights}
            for number in reached
        ],
    )
    _check_each([phases[number].first_step for number in reached], market)
    shares = market.shares(market.solve())
    capped = list(phases)
    for number, found in zip(reached, shares, strict=True):
        capped[number] = replace(phases[number], weights=_scaled(found))
    found_epochs = epochs(capped, num_steps=num_steps, num_sequences=num_sequences)
    most = max(found_epochs.values())
    if most > most_epochs * (1 + TOLERANCE):
        named = [domain for domain, times in found_epochs.items() if times == most]
        raise InputError(
            f"the phases of the mixture draw so much of the same domains that {named[0]!r} is read {most:.3g} times, "
            f"more than pretrain.mixture_most_epochs = {most_epochs:g}: {ADVICE}"
        )
    return tuple(capped)


@dataclass(frozen=True, kw_only=True)
class _Market:
    """Phases that have steps. tokens: of each. weights: of each, by domain, summing to 1. places: of each, by domain,
    tokens in all sequences that it allows.
    """

    most_epochs: float
    tokens: Sequence[int]
    weights: Sequence[Mapping[str, float]]
    places: Sequence[Mapping[str, int]]

    def solve(self) -> list[float]:
        """The price of each phase; as near as it gets where the text does not suffice."""
        prices = [1.0] * len(self.tokens)
        for _ in range(MOST_SWEEPS):
            # Prices that must all rise together would do so in small steps: each alone has the others in its way.
            prices = [price * self._common_factor(prices) for price in prices]
            for phase in range(len(prices)):
                prices[phase] = self._price(phase, prices)
            if max(prices) > MOST_PRICE:
                break
            if all(abs(math.fsum(found.values()) - 1) <= CLOSE for found in self.shares(prices)):
                break
        return prices

    def shares(self, prices: Sequence[float]) -> list[dict[str, float]]:
        """Of each phase, by domain."""
        loads = self._loads(prices)
        return [
            {domain: price * weight * min(1.0, self.most_epochs / loads[domain]) for domain, weight in weights.items()}
            for price, weights in zip(prices, self.weights, strict=True)
        ]

    def capacity(self, phases: Sequence[int]) -> dict[str, float]:
        """Domain -> tokens that these phases can draw from it, if they alone do."""
        domains = sorted({domain for phase in phases for domain in self.weights[phase]})
        return {
            domain: self.most_epochs * max(self.places[phase].get(domain, 0) for phase in phases) for domain in domains
        }

    def _rate(self, phase: int, domain: str) -> float:
        """How often the domain is read by a phase that draws from nothing else, times its weight there."""
        return self.tokens[phase] / self.places[phase][domain] * self.weights[phase][domain]

    def _loads(self, prices: Sequence[float]) -> dict[str, float]:
        loads: dict[str, float] = {}
        for phase, price in enumerate(prices):
            for domain in self.weights[phase]:
                loads[domain] = loads.get(domain, 0.0) + self._rate(phase, domain) * price
        return loads

    def _common_factor(self, prices: Sequence[float]) -> float:
        """What all prices must be multiplied by so that the phases together draw what they must. The sum is concave in
        the factor, so Newton's steps from below do not pass the solution; it is made of straight lines, so they end.
        """
        loads = self._loads(prices)
        demand = dict.fromkeys(loads, 0.0)
        for tokens, weights, price in zip(self.tokens, self.weights, prices, strict=True):
            for domain, weight in weights.items():
                demand[domain] += tokens * weight * price
        total = sum(self.tokens)
        factor = 1 / max(prices)
        while True:
            free = math.fsum(d for domain, d in demand.items() if factor * loads[domain] < self.most_epochs)
            bound = math.fsum(
                d / loads[domain] * self.most_epochs
                for domain, d in demand.items()
                if factor * loads[domain] >= self.most_epochs
            )
            if free == 0 or (total - bound) / free <= factor:
                return factor
            factor = (total - bound) / free

    def _price(self, phase: int, prices: Sequence[float]) -> float:
        """The price at which the shares of a phase sum to 1, the others' given; Newton's steps from below."""
        weights = self.weights[phase]
        rates = {domain: self._rate(phase, domain) for domain in weights}
        others = self._loads(prices)
        others = {domain: max(0.0, others[domain] - rate * prices[phase]) for domain, rate in rates.items()}
        price = 1.0
        while price <= MOST_PRICE:
            drawn, slope = [], []
            for domain, weight in weights.items():
                load = rates[domain] * price + others[domain]
                if load < self.most_epochs:
                    drawn.append(weight * price)
                    slope.append(weight)
                else:
                    drawn.append(weight * price * self.most_epochs / load)
                    slope.append(weight * self.most_epochs * others[domain] / load**2)
            missing, gain = 1 - math.fsum(drawn), math.fsum(slope)
            step = missing / gain if gain > 0 else math.inf
            if missing <= CLOSE / 8 or price + step <= price:
                return price
            price += step
        return 2 * MOST_PRICE


def _places(pools: Mapping[int, int], longest_tokens: int) -> int:
    return sum(length * count for length, count in pools.items() if length <= longest_tokens)


def _scaled(weights: Mapping[str, float]) -> dict[str, float]:
    total = math.fsum(weights.values())
    return {domain: weight / total for domain, weight in weights.items()}


def _check_each(first_steps: Sequence[int], market: _Market) -> None:
    """Raise InputError if the run, or one phase by itself, needs more than its domains may give."""
    everything = range(len(first_steps))
    chosen = [(f"the phase after {first} steps draws", [phase]) for phase, first in enumerate(first_steps)]
    for what, phases in [("the run draws", list(everything)), *(chosen if len(chosen) > 1 else [])]:
        needed = sum(market.tokens[phase] for phase in phases)
        if math.fsum(market.capacity(phases).values()) < needed * (1 - TOLERANCE):
            raise InputError(_too_little(what, market, phases))


def _too_little(what: str, market: _Market, phases: Sequence[int]) -> str:
    needed = sum(market.tokens[phase] for phase in phases)
    capacity = market.capacity(phases)
    have = ", ".join(f"{domain} {count / market.most_epochs:.0f}" for domain, count in capacity.items())
    least = needed * market.most_epochs / math.fsum(capacity.values())
    return (
        f"{what} {needed} tokens, but pretrain.mixture_most_epochs = {market.most_epochs:g} allows "
        f"{math.fsum(capacity.values()):.0f} of its domains ({have} tokens): {ADVICE} "
        f"(to {least:.3g} at least)"
    )
