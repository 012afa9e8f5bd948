"""A user relies on: the proportions are those that were asked for, or the run says what it does instead."""

import pytest

from data.errors import InputError
from data.mixture import resolve_mixture

TOKENS = {"prose": 3000, "code": 1000, "licence": 40}
SEQUENCES = {"prose": 23, "code": 7, "licence": 0}


def test_weights_are_scaled_to_one() -> None:
    mixture = resolve_mixture({"prose": 30, "code": 10}, num_tokens=TOKENS, num_sequences=SEQUENCES)
    assert mixture.weights == {"prose": 0.75, "code": 0.25} and mixture.warnings == ()


def test_without_weights_tokens_decide() -> None:
    mixture = resolve_mixture({}, num_tokens=TOKENS | {"empty": 0}, num_sequences=SEQUENCES | {"empty": 0})
    assert mixture.weights == {"prose": 0.75, "code": 0.25}
    assert len(mixture.warnings) == 1 and "'licence' has 40 tokens" in mixture.warnings[0]


def test_share_of_a_domain_that_is_too_small_goes_to_the_others() -> None:
    mixture = resolve_mixture({"licence": 0.6, "prose": 0.3, "code": 0.1}, num_tokens=TOKENS, num_sequences=SEQUENCES)
    assert mixture.weights == pytest.approx({"prose": 0.75, "code": 0.25})
    assert len(mixture.warnings) == 1


def test_absent_domain_lists_those_present() -> None:
    with pytest.raises(InputError, match="'proze'.*code, licence, prose"):
        resolve_mixture({"proze": 1}, num_tokens=TOKENS, num_sequences=SEQUENCES)


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan"), float("inf")])
def test_a_weight_that_is_no_share_is_refused(weight: float) -> None:
    with pytest.raises(InputError, match="'code'.*above 0"):
        resolve_mixture({"prose": 1, "code": weight}, num_tokens=TOKENS, num_sequences=SEQUENCES)


def test_nothing_left() -> None:
    with pytest.raises(InputError, match="licence 40 tokens.*sequence_tokens"):
        resolve_mixture({"licence": 1}, num_tokens=TOKENS, num_sequences=SEQUENCES)
    with pytest.raises(InputError, match="no tokens at all"):
        resolve_mixture({}, num_tokens={"prose": 0}, num_sequences={"prose": 0})
