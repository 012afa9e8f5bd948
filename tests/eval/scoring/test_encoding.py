import pytest

from eval.scoring.encoding import encode_pair, encode_pair_like_lm_eval
from eval.scoring.scorer import Scorer
from tests.eval.stubs import END, BigramModel, characters


@pytest.mark.parametrize(
    ("context", "answer", "head", "tail"),
    [
        ("Ans", "wer", "", "Answer"),
        ("Q:", " C", "Q", ": C"),
        ("Q: ", "C", "Q", ": C"),
        ("x ", "y", "x", " y"),
        ("", "abc", "", "abc"),
        ("abc", "d", "abc", "d"),
        ("Answer", " Answer", "Answer", " Answer"),
    ],
)
def test_an_answer_has_its_tokens_wherever_the_tokenizer_cuts(context: str, answer: str, head: str, tail: str) -> None:
    tokenizer = characters("Answer", ": C")
    before, scored = encode_pair(tokenizer.encode, context, answer)
    assert (tokenizer.decode(before), tokenizer.decode(scored)) == (head, tail)
    assert len(scored) >= 1 and before + scored == tokenizer.encode(context + answer)
    model = BigramModel(tokenizer.size, max_length=512)
    found = Scorer(model, prefix_token=END).score([(before, scored)])[0]
    assert found.log_likelihood == pytest.approx(
        model.log_likelihood([END, *before, *scored], 1 + len(before)), abs=1e-4
    )


def test_a_token_that_ends_in_the_context_alone_is_no_reason_for_an_empty_answer() -> None:
    """The whole text has fewer tokens than its context."""
    tokenizer = characters("abcdef")
    assert encode_pair(tokenizer.encode, "abcde", "f") == ([], tokenizer.encode("abcdef"))
    assert encode_pair(tokenizer.encode, "abc", "") == (tokenizer.encode("abc"), [])


@pytest.mark.parametrize(
    ("context", "answer", "head", "tail"),
    [
        ("2-5=", "-3", "2-5=", "3"),
        ("2-5= ", "-3", "2-5=", " -3"),
        ("2+5=", "7", "2+5=", "7"),
        ("", "-3", "", "-3"),
        ("a", "=-", "a", "=-"),
        ("=", "-", "", "=-"),
    ],
)
def test_lm_evals_cut_is_by_the_number_of_tokens(context: str, answer: str, head: str, tail: str) -> None:
    tokenizer = characters("=-")
    before, scored = encode_pair_like_lm_eval(tokenizer.encode, context, answer)
    assert (tokenizer.decode(before), tokenizer.decode(scored)) == (head, tail)
