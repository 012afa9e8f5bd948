"""A user relies on: the proportions are those that were asked for, when they were asked for, or the run says what it
does instead.
"""

from typing import Any

import pytest

from data.errors import InputError
from data.order.mixture import ResolvedMixture, resolve_phases

TOKENS = {"prose": 3000, "code": 1000, "empty": 0}
POOLS = {"prose": {64: 20, 256: 7}, "code": {256: 4}, "empty": {}}
BATCHES = [(0, 1024)]
THERE: dict[str, Any] = {"batch_tokens": BATCHES, "num_tokens": TOKENS, "num_sequences": POOLS}


def resolved(weights, schedule=(), lengths=(), tokens=TOKENS, pools=POOLS) -> ResolvedMixture:
    return resolve_phases(weights, schedule, lengths, batch_tokens=BATCHES, num_tokens=tokens, num_sequences=pools)


def weights_of(mixture: ResolvedMixture) -> list[dict[str, float]]:
    return [dict(phase.weights) for phase in mixture.phases]


def test_weights_are_scaled_to_one_and_all_lengths_are_drawn() -> None:
    mixture = resolved({"prose": 30, "code": 10})
    (phase,) = mixture.phases
    assert (phase.first_step, phase.longest_tokens, mixture.warnings) == (0, 256, ())
    assert phase.weights == {"prose": 0.75, "code": 0.25}


def test_without_weights_tokens_decide() -> None:
    mixture = resolved({})
    assert weights_of(mixture) == [{"prose": 0.75, "code": 0.25}] and mixture.warnings == ()


def test_a_temperature_takes_the_root_of_the_weights() -> None:
    """Whether they are given, scheduled, or those of the tokens."""
    given = resolve_phases({"prose": 9, "code": 1}, [(5, {})], **THERE, temperature=2)
    assert weights_of(given)[0] == pytest.approx({"prose": 0.75, "code": 0.25})
    root = 3**0.5
    assert weights_of(given)[1] == pytest.approx({"prose": root / (root + 1), "code": 1 / (root + 1)})
    sharper = resolve_phases({"prose": 3, "code": 1}, **THERE, temperature=0.5)
    assert weights_of(sharper) == [pytest.approx({"prose": 0.9, "code": 0.1})]
    flat = resolve_phases({"prose": 9e5, "code": 1}, **THERE, temperature=1000)
    assert weights_of(flat)[0]["code"] > 0.49


def test_a_share_of_which_a_temperature_leaves_nothing_is_refused() -> None:
    with pytest.raises(InputError, match=r"^pretrain\.mixture: .*mixture_temperature = 0\.1 .*'code'"):
        resolve_phases({"prose": 1, "code": 1e-30}, **THERE, temperature=0.1)


def test_share_of_a_domain_without_a_sequence_goes_to_the_others() -> None:
    mixture = resolved({"empty": 0.6, "prose": 0.3, "code": 0.1})
    assert weights_of(mixture)[0] == pytest.approx({"prose": 0.75, "code": 0.25})
    (warning,) = mixture.warnings
    assert "'empty' has 0 tokens" in warning and "from the start its share goes to the other domains" in warning


def test_both_schedules_together() -> None:
    mixture = resolved(
        {"prose": 1},
        schedule=[(100, {"prose": 1, "code": 3}), (300, {})],
        lengths=[(0, 64), (200, 256)],
    )
    assert [(phase.first_step, phase.longest_tokens) for phase in mixture.phases] == [
        (0, 64),
        (100, 64),
        (200, 256),
        (300, 256),
    ]
    assert weights_of(mixture) == [
        {"prose": 1},
        {"prose": 1},  # code has nothing of 64
        {"prose": 0.25, "code": 0.75},
        {"prose": 0.75, "code": 0.25},
    ]
    (warning,) = mixture.warnings
    assert "'code' has 1000 tokens, but no training sequence of at most 64 tokens; after 100 steps" in warning


def test_before_the_first_phase_of_the_lengths_all_are_drawn() -> None:
    mixture = resolved({"prose": 1}, lengths=[(10, 64), (20, 256)])
    assert [(phase.first_step, phase.longest_tokens) for phase in mixture.phases] == [(0, 256), (10, 64), (20, 256)]


def test_one_warning_however_many_phases() -> None:
    mixture = resolved({"prose": 1, "empty": 1}, schedule=[(step, {"prose": step, "empty": 1}) for step in (5, 6, 7)])
    assert len(mixture.phases) == 4
    (warning,) = mixture.warnings
    assert "from the start" in warning


def test_absent_domain_lists_those_present() -> None:
    with pytest.raises(InputError, match=r"^pretrain\.mixture names domain 'proze'.*code, empty, prose"):
        resolved({"proze": 1})


def test_absent_domain_of_a_schedule_is_found_in_the_recipe() -> None:
    """Whose steps count from 1."""
    with pytest.raises(InputError, match=r"^pretrain\.mixture_schedule \(from_step = 6\) names domain 'proze'"):
        resolved({"prose": 1}, schedule=[(3, {"prose": 1}), (5, {"proze": 1})], lengths=[(7, 256)])


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan"), float("inf")])
def test_a_weight_that_is_no_share_is_refused(weight: float) -> None:
    with pytest.raises(InputError, match="'code'.*above 0"):
        resolved({"prose": 1, "code": weight})


@pytest.mark.parametrize("steps", [[5, 5], [7, 3], [0, 4], [-1]])
def test_phases_that_do_not_ascend_are_refused(steps: list[int]) -> None:
    with pytest.raises(InputError, match="mixture_schedule.*ascend, from 1"):
        resolved({}, schedule=[(step, {}) for step in steps])


def test_length_phases_that_do_not_ascend_are_refused() -> None:
    with pytest.raises(InputError, match="length_schedule.*ascend, from 0"):
        resolved({}, lengths=[(9, 64), (9, 256)])


def test_nothing_left() -> None:
    with pytest.raises(InputError, match=r"no domain.*\(empty 0 tokens\); add text"):
        resolved({"empty": 1})
    with pytest.raises(InputError, match="no tokens at all"):
        resolved({}, tokens={"empty": 0}, pools={})
    with pytest.raises(InputError, match="at most 32 tokens a sequence after 50 steps.*has 64; raise longest_tokens"):
        resolved({}, lengths=[(0, 256), (50, 32)])
