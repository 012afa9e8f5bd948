"""The order of batches within one phase of a training run, in which shares and lengths stay the same.

Draws take turns at lengths; the draws of one length, one behind the other, are a series of samples, which take turns
at domains; and the samples of one pool read it in consecutive epochs. Both kinds of shares are rounded as
`data.order.turns` says: a pool that asks for less than one turn in a period is read more often than it asks for.
"""

import math
import statistics
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from data.order.turns import turn_table, whole_shares, window_bound

BLOCK_SAMPLES = 8192
KEPT_BLOCKS = 3  # readers that take steps in turn stand on both sides of a border


@dataclass(frozen=True, slots=True)
class Samples:
    """The rows of a batch; arrays of one shape [n], not to be written to. domain: int32, an index into
    `SampleOrder.domains`; sequence: int64, an index into its sequences of `length` tokens; epoch: int64, from 0.
    """

    domain: np.ndarray
    sequence: np.ndarray
    epoch: np.ndarray
    length: int

    def __len__(self) -> int:
        return len(self.domain)

    def __getitem__(self, rows: slice) -> "Samples":
        return Samples(self.domain[rows], self.sequence[rows], self.epoch[rows], self.length)


@dataclass(frozen=True)
class Pool:
    """All `size` sequences of one length of a domain. domain: its index, name: its name. key: of its permutations."""

    domain: int
    name: str
    length: int
    size: int
    key: int

    def epoch_key(self, epoch: int) -> int:
        """The key of the permutation of an epoch."""
        from data.order.order_kernels import epoch_key

        return int(epoch_key(np.uint64(self.key), epoch))


class PhaseOrder:
    """Batches of a phase, counted from its first. Safe to use from several threads."""

    def __init__(
        self, weights: Mapping[int, float], pools: Sequence[Pool], turns: Mapping[Pool, int], batch_tokens: int
    ) -> None:
        """weights: share of each domain, in any scale. pools: those to draw from, at least one of each domain of
        weights. turns: how often each pool was drawn from before the phase, others too.
        """
        tokens = {domain: 0 for domain in weights}
        for pool in pools:
            tokens[pool.domain] += pool.size * pool.length
        assert all(tokens.values()), f"a domain of {weights} has no sequence to draw"
        total = sum(weights.values())
        shares = {
            pool: weights[pool.domain] / total * (pool.size * pool.length / tokens[pool.domain]) for pool in pools
        }
        self._shares = shares
        self._turns = turns
        lengths = sorted({pool.length for pool in pools})
        assert lengths[-1] <= batch_tokens, f"a batch of {batch_tokens} tokens holds no sequence of {lengths[-1]}"
        of_length = [[pool for pool in pools if pool.length == length] for length in lengths]
        self._series = [
            _Series(mine, [shares[pool] for pool in mine], turns, batch_tokens // length)
            for length, mine in zip(lengths, of_length, strict=True)
        ]
        self._batches_per_token = [
            sum(shares[pool] for pool in mine) / (series.num_rows * series.length)
            for series, mine in zip(self._series, of_length, strict=True)
        ]
        self._lengths = turn_table(whole_shares(self._batches_per_token))

    def batch(self, draw: int) -> Samples:
        owner, turn = self._lengths.owner_and_turn(draw)
        return self._series[owner].batch(turn)

    def turns_before(self, draw: int) -> dict[Pool, int]:
        """How often each pool is drawn from before a draw of the phase, earlier phases included."""
        found = dict(self._turns)
        for series, batches in zip(self._series, self._lengths.turns_before(draw).tolist(), strict=True):
            turns = series.table.turns_before(batches * series.num_rows)
            for pool, count in zip(series.pools, turns.tolist(), strict=True):
                found[pool] += count
        return found

    def tokens_per_draw(self) -> dict[Pool, float]:
        """Of each pool, in the long run, by the rounded shares."""
        return {
            pool: float(batches / self._lengths.period * series.num_rows * series.length * turns / series.table.period)
            for series, batches in zip(self._series, self._lengths.shares, strict=True)
            for pool, turns in zip(series.pools, series.table.shares, strict=True)
        }

    def wanted_tokens_per_draw(self) -> dict[Pool, float]:
        """The same by the shares as they were asked for."""
        per_draw = 1 / math.fsum(self._batches_per_token)
        return {pool: share * per_draw for pool, share in self._shares.items()}

    def window_bounds(self) -> dict[int, float]:
        """Domain -> how many tokens, at most, a window of draws strays from what `tokens_per_draw` says.

        A window of N draws has N b + e batches of a length with the share b of draws, |e| <= w(number of lengths),
        where w is `window_bound`, and the e sum to 0. Each such batch is expected to hold a tokens of the domain, and
        the window's samples of the length stray from that by at most w(domains of the length) samples. So the window
        strays by at most |sum of e a| + sum of length * w(domains); and the first term is largest where the e of the
        larger half of the a are w and those of the smaller half -w, which makes it w times the sum of |a - median|.
        """
        found = {}
        of_lengths = window_bound(len(self._series))
        for domain in sorted({pool.domain for series in self._series for pool in series.pools}):
            expected, of_domains = [], 0.0
            for series in self._series:
                turns = sum(
                    int(turns)
                    for pool, turns in zip(series.pools, series.table.shares, strict=True)
                    if pool.domain == domain
                )
                expected.append(series.num_rows * series.length * turns / series.table.period)
                of_domains += series.length * window_bound(len(series.pools)) if turns else 0.0
            middle = statistics.median(expected)
            found[domain] = of_lengths * sum(abs(tokens - middle) for tokens in expected) + of_domains
        return found


class _Series:
    """The batches of one length in a phase."""

    def __init__(self, pools: list[Pool], shares: list[float], turns: Mapping[Pool, int], num_rows: int) -> None:
        self.pools = pools
        self.length = pools[0].length
        self.num_rows = num_rows
        self.table = turn_table(whole_shares(shares))
        self._turns = np.array([turns[pool] for pool in pools], dtype=np.int64)
        self._sizes = np.array([pool.size for pool in pools], dtype=np.int64)
        self._keys = np.array([pool.key for pool in pools], dtype=np.uint64)
        self._domains = np.array([pool.domain for pool in pools], dtype=np.int32)
        self._batches = max(1, BLOCK_SAMPLES // num_rows)  # of a block
        self._blocks: dict[int, Samples] = {}
        self._lock = threading.Lock()

    def batch(self, number: int) -> Samples:
        """Batch `number` of the series, from 0. Worked out a block at a time."""
        index, batch = divmod(number, self._batches)
        block = self._blocks.get(index)
        if block is None:
            with self._lock:
                block = self._blocks.get(index) or self._made(index)
                self._blocks = dict([*self._blocks.items(), (index, block)][-KEPT_BLOCKS:])
        return block[batch * self.num_rows : (batch + 1) * self.num_rows]

    def _made(self, index: int) -> Samples:
        from data.order.order_kernels import fill_samples

        count = self._batches * self.num_rows
        made = Samples(np.empty(count, np.int32), np.empty(count, np.int64), np.empty(count, np.int64), self.length)
        fill_samples(
            index * count,
            self.table.owner,
            self.table.earlier,
            self.table.shares,
            self._turns,
            self._sizes,
            self._keys,
            self._domains,
            made.domain,
            made.sequence,
            made.epoch,
        )
        for array in (made.domain, made.sequence, made.epoch):
            array.setflags(write=False)
        return made
