"""The held-out split: whole groups, both sides in every domain, independent of order."""

import random
from collections import Counter, defaultdict

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.errors import InputError
from data.heldout.split import draws, heldout_rows
from data.text.keys import hash_keys

Row = tuple[str, str, int]


def sizes(count: int, domain: str = "a", num_bytes: int = 10) -> list[Row]:
    return [(domain, f"group{i}", num_bytes) for i in range(count)]


def held_groups(rows: list[Row], *, fraction: float, most_bytes: int, seed: int) -> set[str]:
    """The groups that are held out; asserts that none is divided."""
    names = sorted({domain for domain, _, _ in rows})
    held = heldout_rows(
        groups=hash_keys(pa.array([group for _, group, _ in rows])),
        domains=np.array([names.index(domain) for domain, _, _ in rows]),
        num_bytes=np.array([size for _, _, size in rows]),
        domain_names=names,
        fraction=fraction,
        most_bytes=most_bytes,
        seed=seed,
        group_name=lambda row: rows[row][1],
    )
    inside = {group for (_, group, _), is_held in zip(rows, held.tolist(), strict=True) if is_held}
    outside = {group for (_, group, _), is_held in zip(rows, held.tolist(), strict=True) if not is_held}
    assert not inside & outside, "a group is divided"
    return inside


def plain_held_groups(rows: list[Row], *, fraction: float, most_bytes: int, seed: int) -> set[str]:
    """The rule of the module, group by group; for domains that can be divided."""
    group_bytes: dict[str, Counter[str]] = defaultdict(Counter)
    members: dict[str, set[str]] = defaultdict(set)
    for domain, group, num_bytes in rows:
        group_bytes[group][domain] += num_bytes
        members[domain].add(group)
    keys = dict(zip(group_bytes, hash_keys(pa.array(list(group_bytes))), strict=True))
    drawn = {group: float(draws(np.array([key]), seed)[0]) for group, key in keys.items()}
    order = sorted(group_bytes, key=lambda group: (drawn[group], keys[group]))
    held: set[str] = set()

    def held_of(domain: str) -> set[str]:
        return held & members[domain]

    def leaves_training(group: str) -> bool:
        return all(len(held_of(domain)) + 1 < len(members[domain]) for domain in group_bytes[group])

    def fits(group: str) -> bool:
        return all(
            sum(group_bytes[other][domain] for other in held_of(domain)) + size <= most_bytes
            for domain, size in group_bytes[group].items()
        )

    for group in order:
        if drawn[group] < fraction and fits(group) and leaves_training(group):
            held.add(group)
    for domain in sorted(members):
        possible = [group for group in order if group in members[domain] and leaves_training(group)]
        if not held_of(domain):
            within = [group for group in possible if fits(group)]
            held.add(within[0] if within else min(possible, key=lambda group: group_bytes[group][domain]))
    return held


def test_the_fraction_is_met_and_the_draw_depends_on_name_and_seed_alone():
    held = held_groups(sizes(4000), fraction=0.1, most_bytes=10**9, seed=0)
    assert 320 < len(held) < 480
    shuffled = sizes(4000)
    random.Random(0).shuffle(shuffled)
    assert held_groups(shuffled, fraction=0.1, most_bytes=10**9, seed=0) == held
    fewer = held_groups(sizes(2000), fraction=0.1, most_bytes=10**9, seed=0)
    assert fewer == held & {group for _, group, _ in sizes(2000)}
    other = held_groups(sizes(4000), fraction=0.1, most_bytes=10**9, seed=1)
    assert 10 < len(held & other) < 100


def test_draws_are_spread_evenly():
    drawn = draws(np.arange(100_000, dtype=np.uint64), -3)
    assert drawn.min() >= 0 and drawn.max() < 1
    counts = np.histogram(drawn, 20, (0, 1))[0]
    assert abs(counts - 5000).max() < 400


def test_held_out_text_stays_within_its_limit():
    held = held_groups(sizes(1000), fraction=0.5, most_bytes=200, seed=0)
    assert len(held) == 20
    big = [*sizes(50), ("a", "huge", 10_000)]
    for seed in range(20):
        assert "huge" not in held_groups(big, fraction=0.9, most_bytes=200, seed=seed)
    assert len(held_groups(sizes(5, num_bytes=1000), fraction=0.9, most_bytes=200, seed=0)) == 1


def test_a_domain_in_one_group_cannot_be_divided():
    with pytest.raises(InputError, match=r"domain 'b' has all its text in one group \(only\).*at least two groups"):
        held_groups([*sizes(5), ("b", "only", 10)], fraction=0.1, most_bytes=100, seed=0)


def test_a_domain_that_would_leave_another_without_training_text_is_refused():
    chain = [
        ("a", "x", 1),
        ("a", "y", 1),
        ("b", "y", 1),
        ("b", "x", 1),
        ("c", "x", 1),
        ("c", "z", 1),
        ("d", "y", 1),
        ("d", "z", 1),
    ]
    with pytest.raises(InputError, match="shares all its groups with domains that would be left without training text"):
        held_groups(chain, fraction=0.001, most_bytes=100, seed=0)


@given(
    st.dictionaries(st.integers(0, 30), st.sets(st.sampled_from("abc"), min_size=1), min_size=8, max_size=30),
    st.floats(0.01, 0.99),
    st.integers(1, 200),
    st.integers(-5, 5),
)
@settings(max_examples=150, deadline=None)
def test_every_domain_has_both_sides_by_the_plain_rule(groups, fraction, most_bytes, seed):
    rows = [(domain, f"g{number}", 7 + number) for number, domains in groups.items() for domain in sorted(domains)]
    settings = {"fraction": fraction, "most_bytes": most_bytes, "seed": seed}
    try:
        held = held_groups(rows, **settings)
    except InputError:
        members = defaultdict(set)
        for domain, group, _ in rows:
            members[domain].add(group)
        assert min(map(len, members.values())) <= 3
        return
    assert held == plain_held_groups(rows, **settings)
    for domain in {domain for domain, _, _ in rows}:
        mine = {group for d, group, _ in rows if d == domain}
        assert mine & held and mine - held
