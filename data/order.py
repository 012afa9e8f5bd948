"""Which sequence stands at which place of a training run: a pure function, so that nothing has to be saved to go on.

    order = SampleOrder(seed=0, weights={"prose": 0.7, "code": 0.3}, num_sequences={"prose": 900, "code": 400})
    samples = order.batch(step=12, batch_sequences=8)

Sample n of a run depends on the seed, the mixture and the number of sequences of each domain; never on ranks,
micro-batches, workers or restarts.

* Domains take turns by a table of PERIOD slots, made by Tijdeman's rule for the chairman assignment problem (R.
  Tijdeman, The chairman assignment problem, Discrete Mathematics 32, 1980): after any number n of samples each domain
  has had its share of n within 1 - 1/(2k - 2) samples for k domains, so any window is within 2 samples of its shares.
  Weights are rounded to multiples of 1/PERIOD, and none to zero.
* Within a domain each epoch is a permutation of all its sequences, another one in each epoch: a Feistel network over
  the next power of four with cycle walking (Black and Rogaway, Ciphers with arbitrary finite domains, CT-RSA 2002). It
  needs no memory and gives any element at once.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

PERIOD = 10_000
ROUNDS = 8
BLOCK = 1024
GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # SplitMix64's increment


@dataclass(frozen=True, kw_only=True)
class Samples:
    """Arrays of one shape [n]. domain: int32, an index into `SampleOrder.domains`; sequence: int64, an index into the
    domain; epoch: int64, from 0.
    """

    domain: np.ndarray
    sequence: np.ndarray
    epoch: np.ndarray

    def __len__(self) -> int:
        return len(self.domain)

    @staticmethod
    def joined(parts: Sequence["Samples"]) -> "Samples":
        """One behind the other."""
        return Samples(
            domain=np.concatenate([part.domain for part in parts]),
            sequence=np.concatenate([part.sequence for part in parts]),
            epoch=np.concatenate([part.epoch for part in parts]),
        )

    def __getitem__(self, rows: slice) -> "Samples":
        return Samples(domain=self.domain[rows], sequence=self.sequence[rows], epoch=self.epoch[rows])


class SampleOrder:
    """The order of one training run."""

    def __init__(self, *, seed: int, weights: Mapping[str, float], num_sequences: Mapping[str, int]) -> None:
        """weights: positive share of each domain, in any scale. num_sequences: at least one for each domain of
        `weights`.
        """
        assert weights and all(weight > 0 and math.isfinite(weight) for weight in weights.values()), (
            f"weights {dict(weights)} are not positive"
        )
        assert all(num_sequences[domain] > 0 for domain in weights), "a domain without a sequence"
        self.seed = seed
        self.domains: tuple[str, ...] = tuple(sorted(weights))
        self.num_sequences = np.array([num_sequences[domain] for domain in self.domains], dtype=np.int64)
        self.slots: dict[str, int] = dict(
            zip(self.domains, _slots([weights[domain] for domain in self.domains]), strict=True)
        )
        self._keys = [derive_key("domain", seed, domain) for domain in self.domains]
        self._latest: tuple[int, Samples] | None = None
        self._table = take_turns(list(self.slots.values()))
        self._turns = np.array(list(self.slots.values()), dtype=np.int64)
        self._earlier_turns = np.empty(PERIOD, dtype=np.int64)
        for domain in range(len(self.domains)):
            mine = self._table == domain
            self._earlier_turns[mine] = np.arange(mine.sum())

    def samples(self, positions: np.ndarray) -> Samples:
        """The samples at positions: int64[n] of the run, each >= 0, in the order given. O(n)."""
        positions = np.asarray(positions, dtype=np.int64)
        assert positions.size == 0 or positions.min() >= 0, "a negative position"
        slot = positions % PERIOD
        domain = self._table[slot]
        turn = positions // PERIOD * self._turns[domain] + self._earlier_turns[slot]
        epoch = turn // self.num_sequences[domain]
        place = turn % self.num_sequences[domain]
        sequence = np.empty_like(place)
        for index, key in enumerate(self._keys):
            mine = domain == index
            epoch_keys = _mixed(np.uint64(key) ^ _mixed(epoch[mine].astype(np.uint64) + GOLDEN))
            sequence[mine] = permute(place[mine], int(self.num_sequences[index]), epoch_keys)
        return Samples(domain=domain, sequence=sequence, epoch=epoch)

    def batch(self, *, step: int, batch_sequences: int) -> Samples:
        """The samples of a step, counted from 0: [batch_sequences]. Worked out BLOCK at a time, so steps in turn are
        cheap.
        """
        start, end = step * batch_sequences, (step + 1) * batch_sequences
        blocks = [self._block(number) for number in range(start // BLOCK, -(-end // BLOCK))]
        rows = slice(start % BLOCK, start % BLOCK + batch_sequences)
        return Samples.joined(blocks)[rows] if len(blocks) > 1 else blocks[0][rows]

    def _block(self, number: int) -> Samples:
        """Samples number * BLOCK and the following; the latest block is kept."""
        kept = self._latest
        if kept is None or kept[0] != number:
            positions = np.arange(number * BLOCK, (number + 1) * BLOCK, dtype=np.int64)
            kept = self._latest = (number, self.samples(positions))
        return kept[1]


def take_turns(slots: list[int]) -> np.ndarray:
    """int32[PERIOD]: whose turn it is. slots: turns of each domain, which sum to PERIOD.

    Tijdeman's rule: among the domains that may take turn t without getting too far ahead, the one that would first
    fall too far behind. In whole numbers, so that every machine makes the same table.
    """
    assert sum(slots) == PERIOD and min(slots) > 0, f"{slots} are no shares of {PERIOD}"
    count = len(slots)
    if count == 1:
        return np.zeros(PERIOD, dtype=np.int32)
    scale = 2 * count - 2
    taken = [0] * count
    table = np.empty(PERIOD, dtype=np.int32)
    for turn in range(1, PERIOD + 1):
        chosen, best_slack, best_share = -1, 0, 1
        for domain, share in enumerate(slots):
            behind = turn * share - taken[domain] * PERIOD
            if behind * scale < PERIOD:
                continue
            slack = PERIOD * (scale - 1) - behind * scale
            if chosen < 0 or slack * best_share < best_slack * share:
                chosen, best_slack, best_share = domain, slack, share
        table[turn - 1] = chosen
        taken[chosen] += 1
    assert taken == slots, "the table does not give each domain its share"
    return table


def permute(places: np.ndarray, size: int, key: int | np.ndarray) -> np.ndarray:
    """int64[n]: where a keyed permutation of range(size) puts each of places: int64[n]. key: one for all, or
    uint64[n], one for each place.
    """
    half_bits = max(1, (max(size - 1, 1).bit_length() + 1) // 2)
    half_mask = np.uint64((1 << half_bits) - 1)
    shift = np.uint64(half_bits)
    result = np.asarray(places, dtype=np.int64).astype(np.uint64)
    keys = np.broadcast_to(np.asarray(key, dtype=np.uint64), result.shape)
    outside = np.arange(len(result))
    while len(outside):
        value, round_keys = result[outside], keys[outside]
        left, right = value >> shift, value & half_mask
        for _ in range(ROUNDS):
            round_keys = _mixed(round_keys + GOLDEN)
            left, right = right, left ^ (_mixed(right ^ round_keys) & half_mask)
        value = (left << shift) | right
        result[outside] = value
        outside = outside[value >= np.uint64(size)]
    return result.astype(np.int64)


def derive_key(*parts: str | int) -> int:
    """A 64-bit key that is the same everywhere for the same parts."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "little")


def _mixed(value: np.ndarray) -> np.ndarray:
    """SplitMix64's finalizer: uint64[n] -> uint64[n]."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def _slots(weights: list[float]) -> list[int]:
    """Whole numbers in proportion to the weights, each at least 1, which sum to PERIOD (largest remainder)."""
    total = math.fsum(weights)
    exact = [weight / total * PERIOD for weight in weights]
    slots = [max(1, math.floor(share)) for share in exact]
    by_remainder = sorted(range(len(weights)), key=lambda i: (math.floor(exact[i]) - exact[i], i))
    for index in by_remainder[: max(0, PERIOD - sum(slots))]:
        slots[index] += 1
    while sum(slots) > PERIOD:
        slots[slots.index(max(slots))] -= 1
    return slots
