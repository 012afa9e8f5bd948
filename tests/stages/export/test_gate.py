import math

import pytest

from stages.export.gate import GreedyComparison, Measured, increases, objections

SAME = GreedyComparison(compared=9, equal=9, excluded=1)
OTHER = GreedyComparison(compared=9, equal=7, excluded=1)
REFERENCE = {"code": 2.0, "prose": 1.0}


def measured(code: float, prose: float, **fields) -> Measured:
    return Measured(**{"bits_per_byte": {"code": code, "prose": prose}, "greedy": SAME, "exact": False, **fields})


@pytest.mark.parametrize(
    ("code", "prose", "refused"),
    [
        (2.0, 1.0, []),
        (2.1, 1.05, []),
        (2.1001, 1.0, ["code"]),
        (1.0, 1.06, ["prose"]),
        (2.2, 1.2, ["code", "prose"]),
        (math.nan, 1.0, ["code"]),
        (math.inf, 1.0, ["code"]),
    ],
    ids=[
        "equal",
        "at the bound",
        "above on one",
        "no other domain makes up for it",
        "on both",
        "not a number",
        "infinite",
    ],
)
def test_the_bound_holds_on_every_domain(code: float, prose: float, refused: list[str]) -> None:
    found = objections(REFERENCE, measured(code, prose), 0.05)
    assert [reason.split()[4] for reason in found] == refused


def test_the_reason_gives_the_figures() -> None:
    (reason,) = objections(REFERENCE, measured(2.2, 1.0), 0.05)
    assert reason == "bits per byte on code rise by 10.00%, from 2.0000 to 2.2000; allowed are 5.00%"


def test_exact_forms_must_give_the_tokens_of_the_original_and_others_need_not() -> None:
    assert objections(REFERENCE, measured(2.0, 1.0, greedy=OTHER), 0.05) == []
    (reason,) = objections(REFERENCE, measured(2.0, 1.0, greedy=OTHER, exact=True), 0.05)
    assert "2 of 9 greedy tokens differ" in reason


def test_an_exact_form_of_which_no_token_could_be_compared_is_refused() -> None:
    nothing = GreedyComparison(compared=0, equal=0, excluded=12)
    assert not nothing.same
    (reason,) = objections(REFERENCE, measured(2.0, 1.0, greedy=nothing, exact=True), 0.05)
    assert "no greedy token could be compared" in reason and "all of 12" in reason
    assert objections(REFERENCE, measured(2.0, 1.0, greedy=nothing), 0.05) == []


def test_no_reference_makes_an_infinite_value_acceptable() -> None:
    endless = {"code": math.inf, "prose": 1.0}
    (reason,) = objections(endless, measured(math.inf, 1.0), 0.05)
    assert "bits per byte on code" in reason


def test_another_tokenizer_is_refused_at_any_quality() -> None:
    (reason,) = objections(REFERENCE, measured(1.0, 0.5, tokenizer_differences=("'a': at token 0",)), 0.05)
    assert "tokenizer differs" in reason


def test_a_form_is_compared_on_all_domains() -> None:
    assert increases(REFERENCE, {"code": 2.5, "prose": 0.9}) == pytest.approx({"code": 0.25, "prose": -0.1})
    with pytest.raises(AssertionError):
        increases(REFERENCE, {"code": 2.0})
