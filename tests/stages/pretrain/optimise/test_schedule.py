import math
from typing import Any

import pytest

from stages.pretrain.optimise.schedule import learning_rate
from tests.stages.pretrain import micro


def table(**settings: Any) -> list[float]:
    config = micro.config(**{"num_steps": 100, "warmup_ratio": 0.1, "learning_rate": 1.0, **settings})
    return [learning_rate(config, step) for step in range(1, config.num_steps + 1)]


def test_the_learning_rate_warms_up_and_falls_along_a_cosine() -> None:
    found = table(final_learning_rate_ratio=0.05)
    assert found[:10] == pytest.approx([step / 10 for step in range(1, 11)])
    assert found[54] == pytest.approx(0.525)
    assert found[-1] == pytest.approx(0.05)
    for step in range(10, 101):
        expected = 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * (step - 10) / 90))
        assert found[step - 1] == pytest.approx(expected)


def test_linear_and_constant() -> None:
    linear = table(schedule="linear", final_learning_rate_ratio=0.1)
    assert linear[9:] == pytest.approx([1 - 0.9 * (step - 10) / 90 for step in range(10, 101)])
    constant = table(schedule="constant")
    assert constant[:9] == linear[:9] and constant[9:] == [1.0] * 91


@pytest.mark.parametrize("shape", ["1-sqrt", "linear"])
def test_wsd_stays_and_falls_at_the_end(shape: str) -> None:
    found = table(schedule="wsd", decay_ratio=0.25, decay_shape=shape, final_learning_rate_ratio=0.0)
    assert found[9:75] == [1.0] * 66
    over = [(step - 75) / 25 for step in range(76, 101)]
    expected = [1 - (math.sqrt(part) if shape == "1-sqrt" else part) for part in over]
    assert found[75:] == pytest.approx(expected) and found[-1] == 0


def test_wsd_stands_at_the_peak_wherever_it_is_cut_short() -> None:
    """A longer training has the same steps up to the decay of a shorter one, so that it can go on from there."""
    short = table(schedule="wsd", num_steps=100, warmup_ratio=0.1)
    long = table(schedule="wsd", num_steps=200, warmup_ratio=0.05)
    assert short[:80] == long[:80] and short[80] < long[80]


@pytest.mark.parametrize("ratio", [0.0, 1.0])
@pytest.mark.parametrize("schedule", ["cosine", "linear"])
def test_no_warm_up_and_nothing_but_warm_up(ratio: float, schedule: str) -> None:
    found = table(num_steps=4, warmup_ratio=ratio, schedule=schedule)
    assert found[-1] == pytest.approx(1.0 if ratio else 0.05)
    assert all(0 < rate <= 1 for rate in found)


def test_in_tokens_a_batch_of_twice_the_size_goes_twice_as_far() -> None:
    """Steps 1 to 60 have 6 rows, steps 61 to 100 have 12: 840 in all."""
    ramp = [{"from_step": 61, "batch_sequences": 12}]
    settings: dict[str, Any] = {"batch_ramp": ramp, "schedule": "linear", "final_learning_rate_ratio": 0}
    found = table(schedule_unit="tokens", **settings)
    rows = [6 * step if step <= 60 else 360 + 12 * (step - 60) for step in range(1, 101)]
    assert found == pytest.approx([min(at / 84, 1 - (at - 84) / 756) for at in rows])
    assert found[59] > 1.4 * table(schedule_unit="steps", **settings)[59]
    alike = table(schedule_unit="tokens", **{**settings, "batch_ramp": [{"from_step": 61, "batch_sequences": 6}]})
    assert alike == pytest.approx(table(**settings | {"batch_ramp": ()}))


def test_the_learning_rate_does_not_depend_on_the_layout() -> None:
    """Nor on accumulation, nor on where a run begins: it is asked for a step and remembers nothing."""
    layouts = [{}, {"num_processes": 3, "threads": 4}, {"micro_batch_sequences": 1}, {"sharding": "none"}]
    tables = [table(**layout) for layout in layouts]
    assert all(found == tables[0] for found in tables)
    config = micro.config(num_steps=100, warmup_ratio=0.1, learning_rate=1.0)
    assert [learning_rate(config, step) for step in range(100, 0, -1)] == tables[0][::-1]
