"""Which sequences stand in which batch of a training run: a pure function, so that nothing has to be saved to go on.

    phases = [Phase(first_step=0, weights={"prose": 0.7, "code": 0.3}, longest_tokens=1024, batch_tokens=32 * 1024)]
    pools = {"prose": {1024: 900}, "code": {1024: 400}}
    order = SampleOrder(seed=0, num_sequences=pools, phases=phases)
    samples = order.batch(12)[rank_rows(32, rank=1, world_size=4)]

A pool is all sequences of one length of one domain; a draw is the number of a batch before draws are excluded. What a
draw holds depends on the seed, the phases, the batch and the sizes of the pools; never on ranks, micro-batches,
threads or restarts, and the exclusion of other draws does not move it.

* All rows of a batch have one length. Lengths take turns at batches, and within a length the domains take turns at
  rows, both by the tables of `data.order.turns`; in a phase each pool of a domain has its natural part of the domain's
  share, so that all its pools are read equally often. Shares are rounded to multiples of 1/PERIOD, none to zero: so a
  pool with less than 1/PERIOD of the tokens is read more often than others of its domain, which `warnings` tells.
  `epochs` says what is read, rounding included.
* Within a pool each epoch is a permutation of all its sequences, another one in each epoch: a Feistel network with
  cycle walking (Black and Rogaway, Ciphers with arbitrary finite domains, CT-RSA 2002), which needs no memory and gives
  any element at once. The turns of a pool before a phase have a closed form, so epochs go on across phases.
* In every window of batches in one phase a domain's tokens are within `window_bounds` of its rounded share: 2 samples
  where all rows have one length. A window over m phases is the sum of m such windows, and one that leaves out
  excluded draws is a window less these: it strays by no more than both together.
"""

import threading
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from data.order.permutation import derive_key, permute
from data.order.phase_order import PhaseOrder, Pool, Samples
from data.order.turns import PERIOD

CHUNK = 2**20
TOO_OFTEN = 2.0  # times that a pool is read for each that its share asks for, above which there is a warning


@dataclass(frozen=True, kw_only=True)
class Phase:
    """How batches are drawn from first_step on, a draw counted from 0. weights: positive share of each domain's tokens,
    in any scale. longest_tokens: longer sequences are not drawn. batch_tokens: a batch of one length has
    batch_tokens // length rows.
    """

    first_step: int
    weights: Mapping[str, float]
    longest_tokens: int
    batch_tokens: int


class SampleOrder:
    """The order of one training run. Safe to use from several threads."""

    def __init__(
        self,
        *,
        seed: int,
        num_sequences: Mapping[str, Mapping[int, int]],
        phases: Sequence[Phase],
        excluded: Sequence[tuple[int, int]] = (),
    ) -> None:
        """num_sequences: domain -> length -> sequences of that length. phases: the first begins at 0; each domain of
        its weights has a sequence that it allows. excluded: ranges [first, last) of draws that are left out, ascending
        and disjoint.
        """
        first_steps = [phase.first_step for phase in phases]
        assert first_steps and first_steps[0] == 0 and first_steps == sorted(set(first_steps)), (
            f"phases begin at {first_steps}"
        )
        self.domains: tuple[str, ...] = tuple(sorted({domain for phase in phases for domain in phase.weights}))
        self._first_steps = first_steps
        self._phases = tuple(phases)
        self._pools = [
            Pool(domain, name, length, count, derive_key("pool", seed, name, length))
            for domain, name in enumerate(self.domains)
            for length, count in sorted(num_sequences[name].items())
            if count > 0
        ]
        self._excluded = tuple(excluded)
        self._kept_from: list[int] = []  # the step from which on as many ranges are skipped
        self._skipped = [0]
        end = 0
        for first, last in self._excluded:
            assert end <= first < last, f"excluded ranges {self._excluded} are not ascending and disjoint"
            self._kept_from.append(first - self._skipped[-1])
            self._skipped.append(self._skipped[-1] + last - first)
            end = last
        self._lock = threading.Lock()
        self._turns_before: list[Mapping[Pool, int]] = [dict.fromkeys(self._pools, 0)]
        self._orders: dict[int, PhaseOrder] = {}
        for index in range(len(phases) - 1):
            made = self._make(index)
            self._turns_before.append(made.turns_before(first_steps[index + 1] - first_steps[index]))

    def draw(self, step: int) -> int:
        """Which draw a step takes, both from 0. O(log n) in the excluded ranges."""
        if not self._excluded:
            return step
        return step + self._skipped[bisect_right(self._kept_from, step)]

    def batch(self, step: int) -> Samples:
        """The samples of a step, from 0."""
        return self.samples_of_draw(self.draw(step))

    def samples_of_draw(self, draw: int) -> Samples:
        """The samples of a draw, excluded or not. O(1); cheapest for draws in turn."""
        assert draw >= 0, f"draw {draw}"
        index = bisect_right(self._first_steps, draw) - 1
        return self._order(index).batch(draw - self._first_steps[index])

    def samples_before(self, draw: int) -> dict[tuple[str, int], int]:
        """(domain, length) -> how many samples of the pool stand in all draws before, excluded ones among them."""
        index = bisect_right(self._first_steps, draw) - 1
        turns = self._order(index).turns_before(draw - self._first_steps[index])
        return {(pool.name, pool.length): count for pool, count in turns.items()}

    def counts(self, num_steps: int) -> dict[tuple[str, int], np.ndarray]:
        """(domain, length) -> int64[sequences of the pool]: how often steps 0 to num_steps read each.

        Time in proportion to the pools and to the excluded draws, not to num_steps.
        """
        draws = self._draws(num_steps)
        turns = self.samples_before(draws)
        found = {}
        for pool in self._pools:
            epochs, rest = divmod(turns[pool.name, pool.length], pool.size)
            counts = np.full(pool.size, epochs, dtype=np.int64)
            for start in range(0, rest, CHUNK):
                counts[permute(np.arange(start, min(start + CHUNK, rest)), pool.size, pool.epoch_key(epochs))] += 1
            found[pool.name, pool.length] = counts
        for first, last in self._excluded:
            for draw in range(first, min(last, draws)):
                samples = self.samples_of_draw(draw)
                for domain in np.unique(samples.domain):
                    counts = found[self.domains[domain], samples.length]
                    np.subtract.at(counts, samples.sequence[samples.domain == domain], 1)
        return found

    def epochs(self, num_steps: int) -> dict[tuple[str, int], float]:
        """(domain, length) -> how often steps 0 to num_steps read the pool, excluded draws between them included."""
        turns = self.samples_before(self._draws(num_steps))
        return {(pool.name, pool.length): turns[pool.name, pool.length] / pool.size for pool in self._pools}

    def warnings(self, num_steps: int) -> tuple[str, ...]:
        """A sentence for each pool that steps 0 to num_steps read more than TOO_OFTEN times as often as its shares ask
        for, because these are rounded up.
        """
        draws, epochs = self._draws(num_steps), self.epochs(num_steps)
        rounded, wanted = dict.fromkeys(self._pools, 0.0), dict.fromkeys(self._pools, 0.0)
        for index, first in enumerate(self._first_steps):
            end = min([*self._first_steps[index + 1 : index + 2], draws])
            for tokens, per_draw in (
                (rounded, self._order(index).tokens_per_draw()),
                (wanted, self._order(index).wanted_tokens_per_draw()),
            ):
                for pool, each in per_draw.items():
                    tokens[pool] += max(0, end - first) * each
        found = []
        for pool in self._pools:
            each = epochs[pool.name, pool.length]
            read = each * pool.size * pool.length
            if min(read, rounded[pool]) > TOO_OFTEN * wanted[pool]:
                found.append(
                    f"domain {pool.name!r}: its {pool.size} sequence(s) of {pool.length} token(s) are read "
                    f"{each:.1f} times, {read / wanted[pool]:.1f} times as often as their share asks for, since a "
                    f"share below 1/{PERIOD} is rounded up to it; raise the domain's weight in the mixture, join it "
                    "with another, or pack sequences of one length"
                )
        return tuple(found)

    def tokens_per_draw(self, phase: int) -> dict[tuple[str, int], float]:
        """(domain, length) -> tokens of the pool in a draw of a phase in the long run, by the rounded shares."""
        return {(pool.name, pool.length): tokens for pool, tokens in self._order(phase).tokens_per_draw().items()}

    def window_bounds(self, phase: int) -> dict[str, float]:
        """Domain -> how many tokens, at most, it may be off its share in any window of draws within a phase."""
        return {self.domains[domain]: bound for domain, bound in self._order(phase).window_bounds().items()}

    def _draws(self, num_steps: int) -> int:
        """The draws from the first on, excluded ones among them, that num_steps steps take."""
        return self.draw(num_steps - 1) + 1 if num_steps else 0

    def _order(self, index: int) -> PhaseOrder:
        """A phase's order; those of the latest two are kept."""
        found = self._orders.get(index)
        if found is None:
            with self._lock:
                found = self._orders.get(index)
                if found is None:
                    found = self._make(index)
                    self._orders = dict([*self._orders.items(), (index, found)][-2:])
        return found

    def _make(self, index: int) -> PhaseOrder:
        phase = self._phases[index]
        weights = {domain: phase.weights[name] for domain, name in enumerate(self.domains) if name in phase.weights}
        allowed = [pool for pool in self._pools if pool.length <= phase.longest_tokens and pool.domain in weights]
        return PhaseOrder(weights, allowed, self._turns_before[index], phase.batch_tokens)


def rank_rows(batch_sequences: int, rank: int, world_size: int) -> slice:
    """A rank's rows of a batch: contiguous, and as even as whole rows allow."""
    assert 0 <= rank < world_size, f"rank {rank} of {world_size}"
    return slice(rank * batch_sequences // world_size, (rank + 1) * batch_sequences // world_size)
