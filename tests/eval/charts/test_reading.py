"""What charts are given, out of facts: the side of better, the interval of a drop, the units of a cost."""

import pytest

from eval.charts.reading import cost, differences, drops, tasks_by_axis
from eval.charts.scores import BIGRAM, CHANCE, PROMOTED
from tests.eval.charts.facts import MEASUREMENTS, NASTY, comparison, difference, evaluation, task


def test_tasks_stand_in_the_order_of_the_axes_with_measured_ones() -> None:
    found = tasks_by_axis(evaluation(), MEASUREMENTS)
    assert list(found) == ["capability", "long_tail", "efficiency", "safety"]
    assert [task.name for task in found["efficiency"]] == ["token_latency_p99", "throughput"]


def test_marks_are_chance_bigrams_and_the_baseline_of_the_same_version() -> None:
    before = {"tasks": {NASTY: task(0.75), "typos": task(0.5, version=2)}}
    found = tasks_by_axis(evaluation(), {}, before)
    assert found["capability"][0].score.marks == {CHANCE: 0.5, BIGRAM: 0.6, PROMOTED: 0.75}
    assert found["long_tail"][0].score.marks == {CHANCE: 0.5}


def test_the_interval_of_a_drop_is_the_paired_one_laid_at_the_clean_score() -> None:
    ((drop,),) = drops(tasks_by_axis(evaluation(), {})).values()
    assert (drop.clean, drop.perturbed, drop.worst_group) == (0.8, 0.6, 0.5)
    assert (drop.low, drop.high) == pytest.approx((0.45, 0.75))
    lost = {"value": 0.5, "low": 0.25, "high": 0.75}
    rare = task(2.5, "long_tail", metric="bits_per_byte", higher_is_better=False, clean=2.0, drop=lost)
    found = drops(tasks_by_axis(evaluation() | {"tasks": {"rare": rare}}, {}))
    assert list(found) == ["bits per byte: less is better"]
    ((bits,),) = found.values()
    assert (bits.low, bits.high, bits.worst_group) == (2.25, 2.75, None), "what is worse is more"


def test_better_is_to_the_right_whichever_way_a_metric_goes() -> None:
    found = differences(comparison(), {"tasks": {"slow": difference(0.5, "worse", higher_is_better=False)}})
    assert list(found) == ["accuracy", "bits per byte"], "what regressed comes first"
    assert [(row.name, row.value) for row in found["accuracy"]] == [("slow", -0.5), (NASTY, -0.2), ("same", 0.01)]
    (bits,) = found["bits per byte"]
    assert bits.value == 0.1 and (bits.low, bits.high) == pytest.approx((0.05, 0.15))
    same = found["accuracy"][2]
    assert (same.low, same.high, same.detectable) == (0.01, 0.01, None)


def test_costs_are_told_in_the_units_that_people_use() -> None:
    latency, throughput = tasks_by_axis(evaluation(), MEASUREMENTS)["efficiency"]
    assert (
        cost(latency) == "token_latency_p99 21.2 ms"
        and cost(throughput) == "throughput 505 tokens a second (batch of 8)"
    )
