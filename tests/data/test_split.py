"""The held-out split: whole groups, both sides in every domain, independent of order."""

import random
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.errors import InputError
from data.split import draw, heldout_groups


def sizes(count: int, domain: str = "a", num_bytes: int = 10) -> list[tuple[str, str, int]]:
    return [(domain, f"group{i}", num_bytes) for i in range(count)]


def test_the_fraction_is_met_and_the_draw_depends_on_name_and_seed_alone():
    held = heldout_groups(sizes(4000), fraction=0.1, most_bytes=10**9, seed=0)
    assert 320 < len(held) < 480
    shuffled = sizes(4000)
    random.Random(0).shuffle(shuffled)
    assert heldout_groups(shuffled, fraction=0.1, most_bytes=10**9, seed=0) == held
    assert heldout_groups(sizes(2000), fraction=0.1, most_bytes=10**9, seed=0) == held & {g for _, g, _ in sizes(2000)}
    other = heldout_groups(sizes(4000), fraction=0.1, most_bytes=10**9, seed=1)
    assert 10 < len(held & other) < 100
    assert all(0 <= draw(group, 0) < 0.1 for group in held)


def test_held_out_text_stays_within_its_limit():
    held = heldout_groups(sizes(1000), fraction=0.5, most_bytes=200, seed=0)
    assert len(held) == 20
    big = [*sizes(50), ("a", "huge", 10_000)]
    for seed in range(20):
        assert "huge" not in heldout_groups(big, fraction=0.9, most_bytes=200, seed=seed)
    assert len(heldout_groups(sizes(5, num_bytes=1000), fraction=0.9, most_bytes=200, seed=0)) == 1


def test_a_domain_in_one_group_cannot_be_divided():
    with pytest.raises(InputError, match=r"domain 'b' has all its text in one group \(only\).*at least two groups"):
        heldout_groups([*sizes(5), ("b", "only", 10)], fraction=0.1, most_bytes=100, seed=0)


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
        heldout_groups(chain, fraction=0.001, most_bytes=100, seed=0)


@given(
    st.dictionaries(st.integers(0, 30), st.sets(st.sampled_from("abc"), min_size=1), min_size=8, max_size=30),
    st.floats(0.01, 0.99),
    st.integers(1, 200),
    st.integers(-5, 5),
)
@settings(max_examples=200, deadline=None)
def test_every_domain_has_both_sides_and_no_group_is_divided(groups, fraction, most_bytes, seed):
    rows = [(domain, f"g{number}", 7 + number) for number, domains in groups.items() for domain in sorted(domains)]
    try:
        held = heldout_groups(rows, fraction=fraction, most_bytes=most_bytes, seed=seed)
    except InputError:
        members = defaultdict(set)
        for domain, group, _ in rows:
            members[domain].add(group)
        assert min(map(len, members.values())) <= 3
        return
    for domain in {domain for domain, _, _ in rows}:
        mine = {group for d, group, _ in rows if d == domain}
        assert mine & held and mine - held
        size = sum(num_bytes for d, group, num_bytes in rows if d == domain and group in held)
        if {d for d, _, _ in rows} == {domain}:
            assert size <= most_bytes or len(mine & held) == 1
