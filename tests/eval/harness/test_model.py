"""The other two kinds of request that lm-eval makes: whole texts, and greedy generation up to a stop."""

from typing import Any

import pytest
from lm_eval.api.instance import Instance

from data.errors import InputError
from eval.harness import HarnessModel
from eval.scoring.scorer import Scorer
from tests.eval.stubs import END, BigramModel, characters

TOKENIZER = characters("ing")


def request(kind: str, *arguments: Any) -> Instance:
    return Instance(request_type=kind, doc={}, arguments=arguments, idx=0)  # type: ignore[arg-type]


def spelling(text: str, *, max_length: int = 64) -> HarnessModel:
    """A model that goes on with `text` after its first token, then ends the document."""
    model = BigramModel(TOKENIZER.size, max_length=max_length)
    sequence = [*TOKENIZER.encode(text), END]
    for before, after in zip(sequence, sequence[1:], strict=False):
        model.table[before, after] = 100.0
    return HarnessModel(Scorer(model, prefix_token=END), TOKENIZER)


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({"until": []}, "bc=defing."),
        ({"until": ["="]}, "bc"),
        ({"until": "="}, "bc"),
        ({"until": ["in", "d"]}, "bc="),
        ({"until": ["fi"]}, "bc=de"),
        ({"until": ["none of these"], "max_gen_toks": 4}, "bc=d"),
        ({"until": [], "do_sample": True, "temperature": 0.0}, "bc=defing."),
    ],
)
def test_generation_ends_at_the_first_stop_which_is_left_out(settings: dict[str, Any], wanted: str) -> None:
    model = spelling("abc=defing.")
    assert model.generate_until([request("generate_until", "xa", settings)]) == [wanted]


def test_a_prompt_that_is_too_long_keeps_its_end() -> None:
    model = spelling("abc=defing.", max_length=16)
    found = model.generate_until([request("generate_until", "x" * 100 + "a", {"until": [], "max_gen_toks": 12})])
    assert found == ["bc=defing."]


def test_sampling_is_refused_and_not_replaced_by_something_else() -> None:
    with pytest.raises(InputError, match="sampled generation"):
        spelling("ab").generate_until([request("generate_until", "a", {"until": [], "do_sample": True})])


def test_the_likelihood_of_a_whole_text_is_that_of_all_its_tokens() -> None:
    model = BigramModel(TOKENIZER.size, max_length=5)
    texts = ["", "a", "something longer than the model can take at once"]
    found = HarnessModel(Scorer(model, prefix_token=END), TOKENIZER).loglikelihood_rolling(
        [request("loglikelihood_rolling", text) for text in texts]
    )
    wanted = [model.log_likelihood([END, *TOKENIZER.encode(text)], 1) for text in texts]
    assert found == pytest.approx(wanted, abs=1e-4)


def test_requests_that_end_alike_go_on_together_and_keep_their_order() -> None:
    model = spelling("abc=defing.")
    asked = [("xa", {"until": ["="]}), ("b", {"until": ["d"]}), ("e", {"until": ["="]}), ("a", {"max_gen_toks": 1})]
    steps: list[tuple[int, int]] = []
    model._progress = lambda done, total: steps.append((done, total))
    found = model.generate_until([request("generate_until", *arguments) for arguments in asked])
    assert found == ["bc", "c=", "fing.", "b"]
    assert steps[-1] == (4, 4) and steps == sorted(steps)
