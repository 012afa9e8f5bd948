"""A user relies on: every epoch of a domain is a full, new permutation; ratios hold in every window; sample n depends
on n and nothing that varies.
"""

import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.order import PERIOD, SampleOrder, permute, take_turns

PINNED_DOMAIN = [1, 2, 0, 1, 1, 0, 1, 0, 2, 1, 1, 0]
PINNED_SEQUENCE = [34, 4, 0, 14, 16, 0, 18, 0, 6, 13, 1, 0]


def order(seed: int = 5) -> SampleOrder:
    return SampleOrder(
        seed=seed,
        weights={"prose": 0.5, "code": 0.35, "readme": 0.15},
        num_sequences={"prose": 37, "code": 1, "readme": 8},
    )


@given(size=st.integers(1, 3000), key=st.integers(0, 2**64 - 1))
def test_permute_is_a_permutation(size: int, key: int) -> None:
    assert np.array_equal(np.sort(permute(np.arange(size), size, key)), np.arange(size))


def test_permute_of_a_trillion_needs_no_memory() -> None:
    size = 10**12 + 39
    places = np.array([0, 1, 2**31, 2**32 + 1, size - 1])
    found = permute(places, size, 1)
    assert found.dtype == np.int64 and len(set(found.tolist())) == 5 and found.min() >= 0 and found.max() < size


def test_permute_spreads_evenly() -> None:
    """Each of 6 places holds each of 6 values about equally often over keys: chi-square below its 99.9 % point for 25
    degrees of freedom.
    """
    num_keys = 3000
    places = np.tile(np.arange(6), num_keys)
    found = permute(places, 6, np.repeat(np.arange(num_keys), 6))
    counts = np.zeros((6, 6))
    np.add.at(counts, (places, found), 1)
    assert ((counts - num_keys / 6) ** 2 / (num_keys / 6)).sum() < 52.6
    neighbours = permute(np.arange(10_000), 10_000, 3)
    assert abs(np.corrcoef(neighbours[:-1], neighbours[1:])[0, 1]) < 0.05


def test_every_epoch_is_a_full_new_permutation() -> None:
    samples = order().samples(np.arange(900))
    for domain, size in enumerate(order().num_sequences):
        of_domain = samples.sequence[samples.domain == domain]
        epochs = samples.epoch[samples.domain == domain]
        whole = len(of_domain) // size
        assert whole >= 3 and np.array_equal(epochs, np.arange(len(epochs)) // size)
        rounds = of_domain[: whole * size].reshape(whole, size)
        assert (np.sort(rounds, axis=1) == np.arange(size)).all()
        if size > 8:
            assert len({tuple(row) for row in rounds}) == whole


@settings(deadline=None, max_examples=25)
@given(st.lists(st.floats(0.0005, 1), min_size=1, max_size=7))
def test_ratios_hold_within_one_sample_after_any_number(weights: list[float]) -> None:
    names = [f"d{i}" for i in range(len(weights))]
    made = SampleOrder(seed=0, weights=dict(zip(names, weights, strict=True)), num_sequences=dict.fromkeys(names, 10))
    assert sum(made.slots.values()) == PERIOD
    domains = made.samples(np.arange(2 * PERIOD)).domain
    bound = 1 - 1 / (2 * len(weights) - 2) if len(weights) > 1 else 0
    for index, (name, weight) in enumerate(zip(names, weights, strict=True)):
        assert abs(made.slots[name] / PERIOD - weight / sum(weights)) < len(weights) / PERIOD
        ahead = np.cumsum(domains == index) - np.arange(1, 2 * PERIOD + 1) * made.slots[name] / PERIOD
        assert np.abs(ahead).max() <= bound + 1e-9


def test_a_tiny_weight_still_gets_its_turn() -> None:
    made = SampleOrder(seed=0, weights={"a": 1, "b": 1e-9}, num_sequences={"a": 3, "b": 3})
    assert made.slots == {"a": PERIOD - 1, "b": 1}
    assert Counter(take_turns([PERIOD - 1, 1]).tolist()) == {0: PERIOD - 1, 1: 1}


def test_any_cut_into_steps_ranks_and_micro_batches_gives_the_same_samples() -> None:
    whole = order().samples(np.arange(96))
    for batch in (1, 4, 12, 96):
        steps = [order().batch(step=step, batch_sequences=batch) for step in range(96 // batch)]
        assert np.array_equal(np.concatenate([step.sequence for step in steps]), whole.sequence)
        assert np.array_equal(np.concatenate([step.domain for step in steps]), whole.domain)
    ranks = [order().batch(step=1, batch_sequences=24)[slice(rank * 6, rank * 6 + 6)] for rank in range(4)]
    assert np.array_equal(np.concatenate([rank.sequence for rank in ranks]), whole.sequence[24:48])


@pytest.mark.parametrize("batch", [7, 1000, 1024, 2500])
def test_steps_taken_out_of_turn_and_across_blocks(batch: int) -> None:
    whole, shared = order().samples(np.arange(12 * batch)), order()
    for step in (0, 11, 1, 2, 10, 3, 3):
        found = shared.batch(step=step, batch_sequences=batch)
        for name in ("domain", "sequence", "epoch"):
            assert np.array_equal(getattr(found, name), getattr(whole, name)[step * batch : (step + 1) * batch])


def test_samples_of_scattered_positions() -> None:
    whole = order().samples(np.arange(40_000))
    positions = np.random.default_rng(0).integers(0, 40_000, 500)
    some = order().samples(positions)
    assert np.array_equal(some.sequence, whole.sequence[positions]) and np.array_equal(
        some.epoch, whole.epoch[positions]
    )


def test_seeds_differ_and_the_seed_is_mandatory() -> None:
    assert not np.array_equal(order(5).samples(np.arange(100)).sequence, order(6).samples(np.arange(100)).sequence)
    with pytest.raises(TypeError, match="seed"):
        SampleOrder(weights={"a": 1.0}, num_sequences={"a": 1})  # type: ignore[call-arg]


def test_order_is_the_same_in_another_process_and_when_domains_are_named_in_another_order() -> None:
    script = (
        "import numpy as np; from data.order import SampleOrder\n"
        "o = SampleOrder(seed=5, weights={'readme': 0.15, 'code': 0.35, 'prose': 0.5}, "
        "num_sequences={'readme': 8, 'prose': 37, 'code': 1})\n"
        "print(o.samples(np.arange(20_000, 20_050)).sequence.tolist())"
    )
    found = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONHASHSEED": "77", "PYTHONPATH": ":".join(sys.path)},
    )
    assert found.stdout.strip() == str(order().samples(np.arange(20_000, 20_050)).sequence.tolist())


def test_order_is_pinned() -> None:
    """A change here changes the data of every run: raise the revision of pretrain with it."""
    samples = order().batch(step=3, batch_sequences=12)
    assert samples.domain.tolist() == PINNED_DOMAIN
    assert samples.sequence.tolist() == PINNED_SEQUENCE


def test_places_beyond_32_bits_stay_positive_and_distinct() -> None:
    made = SampleOrder(seed=1, weights={"a": 1.0}, num_sequences={"a": 3 * 2**31})
    positions = np.array([0, 2**31, 2**32 + 5, 3 * 2**31 - 1, 3 * 2**31, 9 * 2**31 + 1])
    samples = made.samples(positions)
    assert samples.sequence.dtype == np.int64 and samples.sequence.min() >= 0 and samples.sequence.max() < 3 * 2**31
    assert samples.epoch.tolist() == [0, 0, 0, 0, 1, 3]
