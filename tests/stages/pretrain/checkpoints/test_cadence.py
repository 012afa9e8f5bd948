"""A user relies on: advice about how often to save is what a run that fails at random would find by trying."""

import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.pretrain.checkpoints import cadence
from stages.pretrain.checkpoints.cadence import Cost, advice, best_interval, efficiency, failure_rate, local_interval
from tests.stages.pretrain import micro


def simulated(interval: float, *, save: float, restart: float, rate: float, latency: float, saves: int) -> float:
    """The share of kept work in a run of so many saves, event by event, with failures of any time at all."""
    chance = random.Random(7)
    wall, remaining = 0.0, interval + latency
    for _ in range(saves):
        while (failure := chance.expovariate(rate)) < remaining:
            wall += failure
            while (failure := chance.expovariate(rate)) < restart:
                wall += failure
            wall += restart
            remaining = interval + latency
        wall += remaining
        remaining = interval + save
    return saves * interval / wall


@pytest.mark.parametrize(
    ("interval", "save", "restart", "latency"), [(60, 2, 10, 2), (60, 2, 10, 20), (20, 5, 60, 24), (300, 1, 0, 1)]
)
def test_the_model_is_that_of_a_simulated_run(interval: float, save: float, restart: float, latency: float) -> None:
    """Failures every 200 s, so that they hit saves, restarts, and several times in a row. The simulation is within 1 %,
    which is three times its own error."""
    exact = efficiency(interval, save=save, restart=restart, failures_per_second=1 / 200, latency=latency)
    found = simulated(interval, save=save, restart=restart, rate=1 / 200, latency=latency, saves=40_000)
    assert found == pytest.approx(exact, rel=0.01)


def test_without_lag_it_is_dalys_equation() -> None:
    """Daly 2006, equation 13: T = M exp(R / M) (exp((tau + delta) / M) - 1) Ts / tau."""
    mean, restart, tau, delta = 5000.0, 300.0, 700.0, 40.0
    daly = mean * math.exp(restart / mean) * (math.exp((tau + delta) / mean) - 1) / tau
    assert 1 / efficiency(tau, save=delta, restart=restart, failures_per_second=1 / mean) == pytest.approx(daly)


def test_edges() -> None:
    assert efficiency(90, save=10, restart=5, failures_per_second=0) == pytest.approx(0.9)
    assert efficiency(90, save=10, restart=1e9, failures_per_second=1) == 0
    assert efficiency(1e-9, save=0, restart=0, failures_per_second=1e-3) == pytest.approx(1)
    assert best_interval(save=1, failures_per_second=0) == math.inf
    assert best_interval(save=0, failures_per_second=1e-3) == 0


@given(
    save=st.floats(1e-3, 1e3),
    mean=st.floats(1.0, 1e7),
    restart=st.floats(0, 1e3),
    lag=st.floats(0, 1e3),
    factor=st.floats(0.5, 2).filter(lambda factor: abs(factor - 1) > 0.01),
)
def test_no_other_interval_is_better_than_the_best(
    save: float, mean: float, restart: float, lag: float, factor: float
) -> None:
    model: dict[str, Any] = {"save": save, "failures_per_second": 1 / mean, "latency": save + lag}
    best = best_interval(**model)
    assert best >= lag * (1 - 1e-12)
    here = efficiency(best, restart=restart, **model)
    assert efficiency(best * factor, restart=restart, **model) <= here * (1 + 1e-9)


def test_the_best_interval_is_near_youngs_where_failures_are_rare() -> None:
    """Young, A first order approximation to the optimum checkpoint interval (1974): sqrt(2 delta M)."""
    assert best_interval(save=30, failures_per_second=1 / 86400) == pytest.approx(math.sqrt(2 * 30 * 86400), rel=0.02)


def test_local_intervals_have_bounds() -> None:
    assert local_interval(save=1e-6, failures_per_second=1e-3) == cadence.LEAST_LOCAL_SECONDS
    assert local_interval(save=60, failures_per_second=1e-6) == cadence.MOST_LOCAL_SECONDS
    assert local_interval(save=2, failures_per_second=1 / 600) == best_interval(save=2, failures_per_second=1 / 600)
    assert local_interval(save=2, failures_per_second=1 / 600, latency=100) == 98


def test_the_rate_goes_from_the_expected_to_the_seen() -> None:
    day = cadence.DAY_SECONDS
    assert failure_rate(prior_per_day=2, failures=0, seconds=0) == pytest.approx(2 / day)
    assert failure_rate(prior_per_day=2, failures=0, seconds=30 * day) < 0.05 / day
    assert failure_rate(prior_per_day=2, failures=500, seconds=100 * day) == pytest.approx(5 / day, rel=0.01)


def test_costs_are_those_of_the_kind_asked_for() -> None:
    lines = [
        {"durable": durable, "blocked_seconds": blocked, "heldout_seconds": held, "seconds": until}
        for durable, blocked, held, until in [(False, 1, 0, 4), (True, 2, 5, 9), (False, 3, 0, 6), (False, 100, 0, 8)]
    ]
    assert cadence.measured_cost(lines, durable=False) == Cost(save=3, latency=6)
    assert cadence.measured_cost(lines, durable=True) == Cost(save=7, latency=9)
    assert cadence.measured_cost(lines[:1], durable=True) is None


def advised(every: int, *, num_steps: int = 100_000, **measured: Any) -> cadence.Advice:
    return advice(micro.config(checkpoint_every_steps=every), num_steps=num_steps, step_seconds=2.0, **measured)


@pytest.mark.parametrize("every", [1800, 2700, 3600])
def test_between_one_and_two_hours_nothing_is_said(every: int) -> None:
    assert not advised(every).warning


@pytest.mark.parametrize(("every", "consequence"), [(200, "cost more"), (3700, "loses more work")])
def test_outside_a_warning_says_how_many_steps_would_do(every: int, consequence: str) -> None:
    found = advised(every)
    assert f"pretrain.checkpoint_every_steps = {every} " in found.warning and consequence in found.warning
    assert "1800 to 3600 steps" in found.warning
    assert not advised(found.least_steps).warning and not advised(found.most_steps).warning


def test_where_the_measured_optimum_differs_the_advice_goes_as_far() -> None:
    often: dict[str, Any] = {"cost": Cost(save=1, latency=1), "failures_per_second": 1 / 7200}
    best = best_interval(save=1, failures_per_second=1 / 7200)
    assert best < 150 and not advised(math.ceil(best / 2), **often).warning and advised(math.floor(best / 2.2)).warning
    rarely: dict[str, Any] = {"cost": Cost(save=600, latency=600), "failures_per_second": 1 / (90 * 86400)}
    assert not advised(10_000, **rarely).warning and advised(100_000, **rarely).warning


def test_nothing_is_said_of_runs_shorter_than_an_hour() -> None:
    assert not advised(10, num_steps=1799).warning
    assert advised(10, num_steps=1801).warning
    assert not advised(5000, num_steps=3000).warning, "the last step is always one, and it comes in time"
