"""A user relies on: no domain is read more often than the recipe allows, and what is not drawn from it is drawn from
the others in proportion; a run for which there is too little text does not begin.
"""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from data.errors import InputError
from data.order.batches import Phase, SampleOrder
from data.order.epoch_caps import cap_epochs, epochs, phase_tokens

POOLS = {"a": {10: 100}, "b": {10: 20}, "c": {10: 300}}  # 1000, 200 and 3000 tokens


def phase(weights: dict[str, float], first_step: int = 0, longest: int = 10, batch_tokens: int = 100) -> Phase:
    return Phase(first_step=first_step, weights=weights, longest_tokens=longest, batch_tokens=batch_tokens)


def capped(phases: list[Phase], most: float, num_steps: int, pools=POOLS) -> tuple[Phase, ...]:
    return cap_epochs(phases, most_epochs=most, num_steps=num_steps, num_sequences=pools)


def read(phases: tuple[Phase, ...], num_steps: int, pools=POOLS) -> dict[str, float]:
    return epochs(phases, num_steps=num_steps, num_sequences=pools)


def test_a_mixture_below_the_cap_stays_as_it_is() -> None:
    phases = [phase({"a": 0.3, "b": 0.1, "c": 0.6})]
    assert capped(phases, 1.0, 20) == tuple(phases)


def test_what_is_above_the_cap_goes_to_the_others_in_proportion() -> None:
    """2000 tokens; b may give 400 of them instead of 1000, and a has three times the weight of c."""
    (found,) = capped([phase({"a": 0.375, "b": 0.5, "c": 0.125})], 2.0, 20)
    assert found.weights == pytest.approx({"a": 0.6, "b": 0.2, "c": 0.2}, abs=1e-12)
    assert list(found.weights) == ["a", "b", "c"] and found.longest_tokens == 10


def test_a_domain_that_is_pushed_above_the_cap_is_capped_too() -> None:
    """b gives 200 of 2000 tokens, which pushes a from 900 to 1350, above its 1000."""
    (found,) = capped([phase({"a": 0.45, "b": 0.4, "c": 0.15})], 1.0, 20)
    assert found.weights == pytest.approx({"a": 0.5, "b": 0.1, "c": 0.4}, abs=1e-12)


def test_all_text_once_is_all_text_once() -> None:
    (found,) = capped([phase({"a": 1.0, "b": 1.0, "c": 1.0})], 1.0, 42)
    assert found.weights == pytest.approx({"a": 1000 / 4200, "b": 200 / 4200, "c": 3000 / 4200})


def test_a_domain_is_drawn_less_in_all_phases_alike() -> None:
    """b would be read 7 times, and may be 2.8 times: the factor of its weight against a's is the same in both."""
    phases = [phase({"a": 0.5, "b": 0.5}), phase({"a": 0.6, "b": 0.4, "c": 1.0}, 12)]
    found = capped(phases, 2.8, 52, pools=POOLS | {"a": {10: 1000}})
    assert read(found, 52, POOLS | {"a": {10: 1000}})["b"] == pytest.approx(2.8)
    factors = [
        after.weights["b"] / after.weights["a"] / (before.weights["b"] / before.weights["a"])
        for before, after in zip(phases, found, strict=True)
    ]
    assert factors[0] == pytest.approx(factors[1]) and 0 < factors[0] < 0.5
    assert found[1].weights["c"] / found[1].weights["a"] == pytest.approx(1.0 / 0.6)


def test_a_phase_that_has_but_one_domain_keeps_it_and_the_other_phase_gives_way() -> None:
    """b alone serves the first 2 steps, so that 200 of its 400 tokens are left for the 10 others."""
    found = capped([phase({"b": 1.0}), phase({"a": 0.5, "b": 0.5}, 2)], 2.0, 12)
    assert found[0].weights == {"b": 1.0}
    assert found[1].weights == pytest.approx({"a": 0.8, "b": 0.2})


def test_a_phase_behind_the_last_step_is_not_read_and_stays() -> None:
    late = phase({"b": 1.0}, 20)
    found = capped([phase({"a": 0.5, "b": 0.5}), late], 1.0, 10)
    assert found[1] == late and found[0].weights == pytest.approx({"a": 0.8, "b": 0.2})


def test_with_a_schedule_of_lengths_the_sequences_read_most_often_count() -> None:
    """Of a's 500 tokens 100 stand in short sequences, which both phases read, the first one nothing else."""
    pools = {"a": {1: 100, 4: 100}, "b": {1: 10_000, 4: 10_000}}
    phases = [
        phase({"a": 0.5, "b": 0.5}, first_step, longest=longest, batch_tokens=10)
        for first_step, longest in ((0, 1), (100, 4))
    ]
    found = capped(phases, 3.0, 200, pools=pools)
    assert read(found, 200, pools)["a"] == pytest.approx(3.0)
    order = SampleOrder(seed=1, num_sequences=pools, phases=found)
    seen = order.epochs(200)
    assert seen["a", 1] == pytest.approx(3.0, rel=0.1) and seen["a", 4] < 1.5


@pytest.mark.parametrize(
    ("phases", "most", "num_steps", "message"),
    [
        ([phase({"a": 1.0, "b": 1.0})], 2.0, 25, r"the run draws 2500 tokens.*mixture_most_epochs = 2 allows 2400 of "
         r"its domains \(a 1000, b 200 tokens\).*to 2\.08"),
        ([phase({"a": 1.0}), phase({"b": 1.0}, 5)], 2.0, 10, "the phase after 5 steps draws 500 .* allows 400"),
        ([phase({"b": 1.0}), phase({"b": 1.0, "a": 1.0}, 3), phase({"b": 1.0}, 7)], 2.0, 10,
         r"draw so much of the same domains that 'b' is read 3 times, more than pretrain.mixture_most_epochs = 2:"),
    ],
)  # fmt: skip
def test_a_run_without_enough_text_is_refused_with_the_figures(
    phases: list[Phase], most: float, num_steps: int, message: str
) -> None:
    with pytest.raises(InputError, match=message) as error:
        capped(phases, most, num_steps)
    assert "train for fewer steps" in str(error.value)


def test_a_run_that_is_nearly_all_capped_is_solved_as_exactly() -> None:
    """What is left to the domain without a cap is a millionth of the run."""
    pools = {"a": {10: 100}, "b": {10: 99}, "free": {10: 10**6}}
    phases = [phase({"a": 0.5, "b": 0.4, "free": 1e-7}), phase({"a": 0.2, "b": 0.8, "free": 1e-7}, 10)]
    found = capped(phases, 1.0, 20, pools=pools)
    shares = [dict(of.weights) for of in found]
    assert all(math.fsum(of.values()) == pytest.approx(1, abs=1e-12) for of in shares)
    assert read(found, 20, pools)["a"] == pytest.approx(1, abs=1e-6)
    assert read(found, 20, pools)["b"] == pytest.approx(1, abs=1e-6)


def test_the_order_of_a_capped_mixture_reads_no_sequence_more_often() -> None:
    found = capped([phase({"a": 0.2, "b": 0.4, "c": 0.4}), phase({"a": 0.9, "b": 0.1}, 15)], 2.0, 30)
    order = SampleOrder(seed=4, num_sequences=POOLS, phases=found)
    most = {domain: int(counts.max()) for (domain, _), counts in order.counts(30).items()}
    assert most["b"] == 2 and max(most.values()) == 2
    uncapped = SampleOrder(seed=4, num_sequences=POOLS, phases=[phase({"a": 0.2, "b": 0.4, "c": 0.4})])
    assert int(uncapped.counts(30)["b", 10].max()) > 2, "the cap made the difference"


@st.composite
def runs(draw: st.DrawFn) -> tuple[list[Phase], float, int, dict[str, dict[int, int]]]:
    names = "abcde"[: draw(st.integers(1, 5))]
    pools = {name: {2: draw(st.integers(1, 60)), 8: draw(st.integers(0, 60))} for name in names}
    first_steps = [0, *sorted(draw(st.sets(st.integers(1, 60), max_size=3)))]
    weight = st.integers(1, 1000)
    phases = [
        phase(
            {name: draw(weight) / 1000 for name in sorted(draw(st.sets(st.sampled_from(names), min_size=1)))},
            first,
            draw(st.sampled_from([2, 8])),
            draw(st.sampled_from([8, 16, 40])),
        )
        for first in first_steps
    ]
    return phases, draw(st.sampled_from([0.5, 1.0, 1.7, 4.0])), draw(st.integers(1, 80)), pools


@settings(max_examples=200, deadline=None)
@given(runs())
def test_shares_are_the_solution_or_there_is_none(
    run: tuple[list[Phase], float, int, dict[str, dict[int, int]]],
) -> None:
    """Against a linear program that only asks whether any shares would do, and the conditions of the solution."""
    phases, most, num_steps, pools = run
    rates = []  # (phase, domain, epochs of a share of 1)
    for number, (of, tokens) in enumerate(zip(phases, phase_tokens(phases, num_steps=num_steps), strict=True)):
        for domain in of.weights:
            places = sum(n * count for n, count in pools[domain].items() if n <= of.longest_tokens)
            rates.append((number, domain, tokens / places))
    domains = sorted(pools)
    above = np.array([[rate if domain == d else 0.0 for _, domain, rate in rates] for d in domains])
    equal = np.array([[1.0 * (number == p) for number, _, _ in rates] for p in range(len(phases))])
    # The least x such that x times the cap would do.
    program = linprog(
        [0.0] * len(rates) + [1.0],
        A_ub=np.hstack([above, -most * np.ones((len(domains), 1))]),
        b_ub=np.zeros(len(domains)),
        A_eq=np.hstack([equal, np.zeros((len(phases), 1))]),
        b_eq=np.ones(len(phases)),
    )
    assume(abs(program.fun - 1) > 1e-5)
    if program.fun > 1:
        with pytest.raises(InputError, match="mixture_most_epochs"):
            cap_epochs(phases, most_epochs=most, num_steps=num_steps, num_sequences=pools)
        return
    try:
        found = cap_epochs(phases, most_epochs=most, num_steps=num_steps, num_sequences=pools)
    except InputError:
        assert len({of.longest_tokens for of in phases}) > 1, "shares that would do were not found"
        return
    times = epochs(found, num_steps=num_steps, num_sequences=pools)
    assert all(of <= most * (1 + 1e-8) for of in times.values())
    if found == tuple(phases):
        return
    factors: dict[str, list[float]] = {}
    for before, after, tokens in zip(phases, found, phase_tokens(phases, num_steps=num_steps), strict=True):
        assert set(after.weights) == set(before.weights) and min(after.weights.values()) > 0
        if not tokens:
            continue
        assert math.fsum(after.weights.values()) == pytest.approx(1)
        ratios = {domain: after.weights[domain] / before.weights[domain] for domain in after.weights}
        free = {domain for domain in ratios if times[domain] < most * (1 - 1e-8)}
        for domain in free:
            assert ratios[domain] == pytest.approx(max(ratios.values())), "what is below the cap is in proportion"
        if free:
            for domain in ratios:
                factors.setdefault(domain, []).append(ratios[domain] / max(ratios.values()))
    for found_factors in factors.values():
        assert all(a == pytest.approx(b, rel=1e-6) for a, b in pairwise(found_factors)), "one factor in all phases"
