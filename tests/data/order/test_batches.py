"""A user relies on: every epoch of a pool is a full, new permutation, across phases; ratios hold in every window; a
batch depends on its number and nothing that varies.
"""

import hashlib
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from data.order.batches import Phase, SampleOrder, Samples, rank_rows
from data.order.turns import PERIOD

PINNED_DOMAIN = [1, 2, 0, 1, 1, 0, 1, 2, 0, 1, 1, 0]
PINNED_SEQUENCE = [14, 2, 0, 12, 21, 0, 33, 0, 0, 3, 36, 0]
PINNED_LENGTHS = [32, 32, 16, 32, 32, 64, 32, 64, 16, 64, 64, 32, 64, 16, 64, 32, 64, 64, 32, 16]
LENGTHS = {"prose": {16: 5, 32: 11, 64: 37}, "code": {16: 9, 64: 2}, "readme": {16: 3, 32: 40}}
CURRICULUM = (
    Phase(first_step=0, weights={"prose": 0.6, "readme": 0.4}, longest_tokens=32, batch_tokens=192),
    Phase(first_step=150, weights={"prose": 0.5, "code": 0.3, "readme": 0.2}, longest_tokens=64, batch_tokens=192),
    Phase(first_step=333, weights={"code": 1, "prose": 3}, longest_tokens=64, batch_tokens=192),
)


def plain(seed: int = 5, *, batch: int = 12, excluded: tuple[tuple[int, int], ...] = ()) -> SampleOrder:
    """Rows of one length."""
    return SampleOrder(
        seed=seed,
        num_sequences={"prose": {8: 37}, "code": {8: 1}, "readme": {8: 8}},
        phases=[
            Phase(
                first_step=0,
                weights={"prose": 0.5, "code": 0.35, "readme": 0.15},
                longest_tokens=8,
                batch_tokens=8 * batch,
            )
        ],
        excluded=excluded,
    )


def curriculum(*, excluded: tuple[tuple[int, int], ...] = ()) -> SampleOrder:
    return SampleOrder(seed=3, num_sequences=LENGTHS, phases=CURRICULUM, excluded=excluded)


def pools_read(order: SampleOrder, num_draws: int) -> dict[tuple[str, int], list[tuple[int, int]]]:
    """Pool -> (epoch, sequence) in the order of reading."""
    found: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for draw in range(num_draws):
        batch = order.samples_of_draw(draw)
        for domain, sequence, epoch in zip(batch.domain, batch.sequence.tolist(), batch.epoch.tolist(), strict=True):
            found.setdefault((order.domains[domain], batch.length), []).append((epoch, sequence))
    return found


@pytest.mark.parametrize("made", [plain, curriculum])
def test_every_epoch_of_a_pool_is_a_full_new_permutation_across_phases(made: Callable[[], SampleOrder]) -> None:
    order = made()
    sizes = {(name, length): size for name, pools in LENGTHS.items() for length, size in pools.items()}
    sizes |= {("prose", 8): 37, ("code", 8): 1, ("readme", 8): 8}
    found = pools_read(order, 700)
    assert found.keys() <= sizes.keys() and len(found) == len(order.samples_before(0))
    for pool, read in found.items():
        size = sizes[pool]
        assert [epoch for epoch, _ in read] == [turn // size for turn in range(len(read))]
        rounds = [sequence for _, sequence in read[: len(read) // size * size]]
        epochs = np.array(rounds).reshape(-1, size)
        assert len(epochs) >= 3 and (np.sort(epochs, axis=1) == np.arange(size)).all()
        if size > 8:
            assert len({tuple(epoch) for epoch in epochs.tolist()}) == len(epochs)


def test_turns_before_a_draw_have_a_closed_form() -> None:
    order, read = curriculum(), Counter[tuple[str, int]]()
    for draw in range(500):
        assert order.samples_before(draw) == {pool: read[pool] for pool in order.samples_before(0)}
        batch = order.samples_of_draw(draw)
        read.update((order.domains[domain], batch.length) for domain in batch.domain)


def test_all_rows_of_a_batch_have_one_length_that_the_phase_allows() -> None:
    order = curriculum()
    for draw in range(500):
        batch = order.samples_of_draw(draw)
        phase = CURRICULUM[(draw >= 150) + (draw >= 333)]
        assert batch.length <= phase.longest_tokens and len(batch) == 192 // batch.length
        assert {order.domains[domain] for domain in batch.domain} <= phase.weights.keys()


def strayed(order: SampleOrder, phase: int, draws: Sequence[int]) -> dict[str, float]:
    """The most tokens that a window of some of a phase's draws is off each domain's share."""
    rates = {domain: 0.0 for domain in order.domains}
    for (domain, _), tokens in order.tokens_per_draw(phase).items():
        rates[domain] += tokens
    given = np.zeros((len(draws), len(order.domains)))
    for row, draw in enumerate(draws):
        batch = order.samples_of_draw(draw)
        given[row] = np.bincount(batch.domain, minlength=len(order.domains)) * batch.length
    ahead = np.cumsum(given - np.array([rates[domain] for domain in order.domains]), axis=0)
    ranges = np.maximum(ahead.max(axis=0), 0) - np.minimum(ahead.min(axis=0), 0)
    return dict(zip(order.domains, ranges.tolist(), strict=True))


def test_with_one_length_every_window_is_within_two_samples() -> None:
    order = plain(batch=1)
    assert set(order.window_bounds(0).values()) == {2 * (1 - 1 / 4) * 8}
    for domain, tokens in strayed(order, 0, range(3000)).items():
        assert tokens <= order.window_bounds(0)[domain] + 1e-6
    for domain, tokens in strayed(plain(batch=12), 0, range(1000)).items():
        assert tokens <= order.window_bounds(0)[domain] + 1e-6


@pytest.mark.parametrize(("phase", "draws"), [(0, range(150)), (1, range(150, 333)), (2, range(333, 3000))])
def test_with_several_lengths_every_window_is_within_the_stated_bound(phase: int, draws: range) -> None:
    order = curriculum()
    for domain, tokens in strayed(order, phase, draws).items():
        assert tokens <= order.window_bounds(phase).get(domain, 0) + 1e-6
    assert max(order.window_bounds(phase).values()) < 5 * 192


def test_a_window_without_excluded_draws_strays_by_the_window_and_by_them_at_most() -> None:
    excluded = ((400, 407), (1000, 1350), (1360, 1361))
    order = curriculum(excluded=excluded)
    kept = [order.draw(step) for step in range(333, 2000)]
    for domain, tokens in strayed(order, 2, kept).items():
        assert tokens <= (1 + len(excluded)) * order.window_bounds(2).get(domain, 0) + 1e-6


def test_shares_are_those_of_the_weights_and_pools_are_read_equally_often() -> None:
    order = curriculum()
    for number, phase in enumerate(CURRICULUM):
        tokens = order.tokens_per_draw(number)
        epochs: dict[str, list[float]] = {}
        for (domain, length), each in tokens.items():
            epochs.setdefault(domain, []).append(each / (length * LENGTHS[domain][length]))
        for domain, weight in phase.weights.items():
            given = sum(each for (name, _), each in tokens.items() if name == domain)
            assert given / sum(tokens.values()) == pytest.approx(weight / sum(phase.weights.values()), rel=1e-3)
            assert epochs[domain] == pytest.approx([epochs[domain][0]] * len(epochs[domain]), rel=1e-3)


def books(**pools: dict[int, int]) -> SampleOrder:
    """Two phases, in both of which nearly all is read from the long sequences of one domain."""
    weights = {name: 1e-7 if name == "rare" else 1.0 for name in pools}
    phases = [Phase(first_step=first, weights=weights, longest_tokens=64, batch_tokens=640) for first in (0, 1000)]
    return SampleOrder(seed=3, num_sequences=pools, phases=phases)


def test_a_tiny_pool_is_read_too_often_which_is_counted_and_told() -> None:
    """Its share asks for 2^18 * 640 * 1e-7 tokens or so in a period, and gets one batch."""
    order = books(books={64: 1_000_000, 16: 500_000, 2: 3})
    epochs = order.epochs(PERIOD + 1000)
    assert epochs["books", 2] == pytest.approx(320 / 3)
    assert epochs["books", 64] == pytest.approx(PERIOD * 640 / 72e6, rel=0.01)
    (warning,) = order.warnings(PERIOD + 1000)
    times = 640 / ((PERIOD + 1000) * 640 * 6 / 72_000_006)
    assert warning.startswith("domain 'books': its 3 sequence(s) of 2 token(s) are read 106.7 times, ")
    assert f"{times:.1f} times as often as their share asks for" in warning
    assert order.epochs(1000)["books", 2] == 0 and order.warnings(1000) == () == order.warnings(0)


def test_a_tiny_weight_is_told_too() -> None:
    (warning,) = books(books={64: 1_000_000}, rare={64: 5}).warnings(PERIOD + 1000)
    assert warning.startswith("domain 'rare': its 5 sequence(s) of 64 token(s) are read")


def test_epochs_are_those_of_reading_all_and_pools_of_some_size_need_no_warning() -> None:
    order = curriculum(excluded=((100, 160),))
    for num_steps in (0, 1, 120, 700):
        read = pools_read(order, order.draw(num_steps - 1) + 1 if num_steps else 0)
        assert order.epochs(num_steps) == {
            (name, length): len(read.get((name, length), [])) / size
            for name, pools in LENGTHS.items()
            for length, size in pools.items()
        }
        assert order.warnings(num_steps) == ()


def same(found: Samples, expected: Samples) -> bool:
    return found.length == expected.length and all(
        np.array_equal(getattr(found, name), getattr(expected, name)) for name in ("domain", "sequence", "epoch")
    )


def test_excluded_draws_are_skipped_and_the_others_stay_what_they_are() -> None:
    excluded = ((3, 7), (7, 9), (100, 160))
    order, whole = curriculum(excluded=excluded), curriculum()
    kept = [draw for draw in range(600) if not any(first <= draw < last for first, last in excluded)]
    assert [order.draw(step) for step in range(len(kept))] == kept
    for step, draw in enumerate(kept):
        assert same(order.batch(step), whole.batch(draw))
    for draw in (4, 8, 120):
        assert same(order.samples_of_draw(draw), whole.batch(draw))


@pytest.mark.parametrize("excluded", [((5, 5),), ((5, 8), (7, 9)), ((8, 9), (2, 3)), ((-1, 2),)])
def test_ranges_that_are_none_are_refused(excluded: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(AssertionError, match="ascending and disjoint"):
        plain(excluded=excluded)


@pytest.mark.parametrize("excluded", [(), ((0, 2), (40, 43), (149, 152))])
@pytest.mark.parametrize("num_steps", [0, 1, 41, 150, 400])
def test_counts_are_those_of_reading_all(excluded: tuple[tuple[int, int], ...], num_steps: int) -> None:
    order = curriculum(excluded=excluded)
    read = {(name, length): np.zeros(size, int) for name, pools in LENGTHS.items() for length, size in pools.items()}
    for step in range(num_steps):
        batch = order.batch(step)
        for domain, sequence in zip(batch.domain, batch.sequence, strict=True):
            read[order.domains[domain], batch.length][sequence] += 1
    counts = order.counts(num_steps)
    assert counts.keys() == read.keys()
    assert all(np.array_equal(counts[pool], read[pool]) and counts[pool].dtype == np.int64 for pool in read)


@pytest.mark.parametrize("batch", [1, 7, 1000, 4096, 8192, 20_000])
def test_steps_taken_out_of_turn(batch: int) -> None:
    fresh, shared = plain(batch=batch), plain(batch=batch)
    in_turn = [fresh.batch(step) for step in range(12)]
    for step in (0, 11, 1, 2, 10, 3, 3):
        assert same(shared.batch(step), in_turn[step])
    assert same(plain(batch=batch).batch(10**9), shared.batch(10**9))


def test_the_size_of_a_batch_only_cuts_the_samples() -> None:
    whole = plain(batch=96).batch(0)
    for size in (1, 4, 12):
        steps = [plain(batch=size).batch(step) for step in range(96 // size)]
        assert np.array_equal(np.concatenate([step.sequence for step in steps]), whole.sequence)
        assert np.array_equal(np.concatenate([step.domain for step in steps]), whole.domain)


def test_batches_that_grow_read_on_where_smaller_ones_have_stopped() -> None:
    """Of one pool, so that the order of reading shows: 4 rows, from step 5 on 10, from step 9 on 3."""
    sizes = ((0, 4), (5, 10), (9, 3))
    phases = [
        Phase(first_step=first, weights={"a": 1}, longest_tokens=8, batch_tokens=8 * rows) for first, rows in sizes
    ]
    grown = SampleOrder(seed=5, num_sequences={"a": {8: 23}}, phases=phases)
    same_size = SampleOrder(seed=5, num_sequences={"a": {8: 23}}, phases=phases[:1])
    batches = [grown.batch(step) for step in range(20)]
    assert [len(batch) for batch in batches] == [4] * 5 + [10] * 4 + [3] * 11
    read, total = [batch.sequence for batch in batches], sum(map(len, batches))
    expected = np.concatenate([same_size.batch(step).sequence for step in range(-(-total // 4))])
    assert np.array_equal(np.concatenate(read), expected[:total])
    assert grown.epochs(20) == {("a", 8): total / 23}
    skipping = SampleOrder(seed=5, num_sequences={"a": {8: 23}}, phases=phases, excluded=((3, 5),))
    assert [len(skipping.batch(step)) for step in range(8)] == [4] * 3 + [10] * 4 + [3]


@pytest.mark.parametrize("readers", [1, 4])
def test_readers_in_threads_share_no_state_that_shows(readers: int) -> None:
    """Each finds what one alone would find, no two of them the same rows, and together the asked-for mix."""
    alone, shared = plain(batch=50), plain(batch=50)
    expected = [alone.batch(step) for step in range(400)]
    found: dict[int, Samples] = {}
    barrier = threading.Barrier(readers)

    def read(reader: int) -> None:
        barrier.wait()
        for step in range(reader, 400, readers):
            found[step] = shared.batch(step)

    threads = [threading.Thread(target=read, args=(reader,)) for reader in range(readers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 400 and all(same(found[step], expected[step]) for step in range(400))
    ids = [
        (domain, sequence, epoch)
        for batch in found.values()
        for domain, sequence, epoch in zip(
            batch.domain.tolist(), batch.sequence.tolist(), batch.epoch.tolist(), strict=True
        )
    ]
    assert len(set(ids)) == len(ids)
    assert abs(np.mean([domain == shared.domains.index("prose") for domain, _, _ in ids]) - 0.5) < 0.001


def test_what_a_reader_holds_cannot_be_written_to() -> None:
    with pytest.raises(ValueError, match="read-only"):
        plain().batch(0).sequence[0] = 1


def test_seeds_differ_and_the_seed_is_mandatory() -> None:
    assert not np.array_equal(plain(5).batch(0).sequence, plain(6).batch(0).sequence)
    with pytest.raises(TypeError, match="seed"):
        SampleOrder(num_sequences={}, phases=[])  # type: ignore[call-arg]


def test_the_order_is_the_same_in_every_process_and_however_domains_are_listed() -> None:
    """Nothing of it hangs on a process: not on its hash seed, nor on the order in which it found the domains."""
    script = (
        "import hashlib; from data.order.batches import Phase, SampleOrder\n"
        "o = SampleOrder(seed=5, num_sequences={'readme': {8: 8}, 'code': {8: 1}, 'prose': {8: 37}},\n"
        "    phases=[Phase(first_step=0, weights={'readme': 0.15, 'code': 0.35, 'prose': 0.5}, longest_tokens=8,\n"
        "        batch_tokens=96)])\n"
        "print(hashlib.sha256(b''.join(o.batch(step).sequence.tobytes() for step in range(2000))).hexdigest())"
    )
    for hash_seed in ("1", "77"):
        found = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": ":".join(sys.path)},
        )
        order = plain()
        here = hashlib.sha256(b"".join(order.batch(step).sequence.tobytes() for step in range(2000))).hexdigest()
        assert found.stdout.strip() == here


def test_the_order_is_pinned() -> None:
    """A change here changes the data of every run: raise the revision of pretrain with it."""
    samples = plain().batch(3)
    assert samples.domain.tolist() == PINNED_DOMAIN
    assert samples.sequence.tolist() == PINNED_SEQUENCE
    lengths = [curriculum().samples_of_draw(draw).length for draw in range(145, 165)]
    assert lengths == PINNED_LENGTHS


def test_places_beyond_32_bits_stay_positive_and_distinct() -> None:
    size, rows = 3 * 2**31, 2**16
    order = SampleOrder(
        seed=1,
        num_sequences={"a": {16: size}},
        phases=[Phase(first_step=0, weights={"a": 1}, longest_tokens=16, batch_tokens=16 * rows)],
    )
    per_epoch = size // rows
    batches = [order.batch(step) for step in (0, per_epoch - 1, per_epoch, 3 * per_epoch, 10**6 * per_epoch)]
    assert [int(batch.epoch[0]) for batch in batches] == [0, 0, 1, 3, 10**6]
    for batch in batches:
        assert batch.sequence.dtype == np.int64 and batch.sequence.min() >= 0 and batch.sequence.max() > 2**32
        assert batch.sequence.max() < size and len(set(batch.sequence.tolist())) == rows


def test_ranks_share_no_row_and_all_rows_are_someones() -> None:
    for batch in (1, 3, 9, 64):
        for world_size in range(1, 9):
            rows = [rank_rows(batch, rank, world_size) for rank in range(world_size)]
            assert [row for part in rows for row in range(batch)[part]] == list(range(batch))
            assert max(len(range(batch)[part]) for part in rows) <= -(-batch // world_size)
    with pytest.raises(AssertionError, match="rank 3 of 3"):
        rank_rows(8, 3, 3)


def test_a_split_by_ranks_commutes_with_skipping_and_cutting() -> None:
    order, ranks = plain(batch=16), [rank_rows(16, rank, 2) for rank in range(2)]
    for step in (0, 5):
        whole = order.batch(step)
        parts = [whole[rows] for rows in ranks]
        assert np.array_equal(np.concatenate([part.sequence for part in parts]), whole.sequence)
        for part, rows in zip(parts, ranks, strict=True):
            micro = [part[first : first + 3] for first in range(0, len(part), 3)]
            assert np.array_equal(np.concatenate([each.sequence for each in micro]), whole.sequence[rows])
            assert np.array_equal(part.epoch, order.batch(step).epoch[rows])
