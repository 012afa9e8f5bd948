import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval.scoring.scorer import Scorer
from eval.scoring.windows import windows
from tests.eval.stubs import END, BigramModel


@given(num_tokens=st.integers(2, 60), data=st.data(), max_length=st.integers(1, 20))
def test_every_token_is_scored_once_in_windows_that_fit(num_tokens: int, data: st.DataObject, max_length: int) -> None:
    first = data.draw(st.integers(1, num_tokens))
    found = list(windows(num_tokens, first, max_length))
    scored = [token for window in found for token in range(window.end - window.num_scored, window.end)]
    assert scored == list(range(first, num_tokens))
    for window in found:
        inputs = window.end - 1 - window.begin
        assert window.begin >= 0 and 1 <= inputs <= max_length and window.num_scored <= inputs
        assert inputs == min(max_length, window.end - 1), "a window has all the context that fits"


def test_windows_are_cut_as_lm_eval_documents_it() -> None:
    """Tokens 0 to 9 after a prefix, context 4: the example in the documentation of loglikelihood_rolling."""
    found = list(windows(11, 1, 4))
    assert [(window.begin, window.end - 1, window.num_scored) for window in found] == [(0, 4, 4), (4, 8, 4), (6, 10, 2)]


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 30)), min_size=1, max_size=12), st.integers(1, 64))
def test_scores_equal_brute_force_whatever_the_batch(shapes: list[tuple[int, int]], batch_tokens: int) -> None:
    model = BigramModel(17, max_length=8)
    rng = random.Random(1)
    requests = [tuple([rng.randrange(17) for _ in range(length)] for length in shape) for shape in shapes]
    scores = Scorer(model, prefix_token=END, batch_tokens=batch_tokens).score(requests)
    for (context, answer), score in zip(requests, scores, strict=True):
        wanted = model.log_likelihood([END, *context, *answer], 1 + len(context)) if answer else 0.0
        assert score.log_likelihood == pytest.approx(wanted, abs=1e-4)
        assert score.num_tokens == len(answer)


def test_one_prefix_token_stands_before_each_sequence() -> None:
    model = BigramModel(11, max_length=6)
    Scorer(model, prefix_token=END).rolling([[3, 4, 5], [7, 8], []])
    assert model.inputs == [[END, 3, 4], [END, 7, END]], "the second row is filled up on the right"
    model.inputs.clear()
    Scorer(model, prefix_token=END, batch_tokens=1).rolling([[1 + i % 9 for i in range(20)]])
    assert [row.count(END) for row in model.inputs] == [1, 0, 0, 0], "a document longer than two windows has one prefix"


def test_greedy_is_told_apart_from_likely() -> None:
    model = BigramModel(13, max_length=8)
    best = int(model.table[4].argmax())
    worse = int(model.table[4].argsort(descending=True)[1])
    scores = Scorer(model, prefix_token=END).score(
        [([4], [best]), ([4], [worse]), ([4], [best, int(model.table[best].argmin())])]
    )
    assert [score.is_greedy for score in scores] == [True, False, False]


def test_a_start_token_is_left_to_a_tokenizer_that_puts_one() -> None:
    """One where the context is empty, none before other text, and never two."""
    model = BigramModel(11, max_length=6)
    scorer = Scorer(model, prefix_token=1, always_prefix=False)
    found = scorer.score([((), [3, 4]), ((), [1, 3, 4]), ([1, 3], [4]), ([3], [4]), ((), ())])
    assert sorted(model.inputs) == [[1, 3], [3, 1]], "what reads the same is read once"
    one, four = model.log_likelihood([1, 3, 4], 1), model.log_likelihood([3, 4], 1)
    assert [score.log_likelihood for score in found] == pytest.approx([one, one, four, four, 0.0], abs=1e-4)
    assert [score.num_tokens for score in found] == [2, 2, 1, 1, 0]


def test_a_pause_is_offered_before_each_batch() -> None:
    calls: list[int] = []
    model = BigramModel(11, max_length=6)
    scorer = Scorer(model, prefix_token=END, batch_tokens=3, between=lambda: calls.append(len(model.inputs)))
    scorer.rolling([[3, 4, 5], [7, 8, 9], [2]])
    scorer.generate([[3], [4]], max_new_tokens=1)
    assert calls == [0, 1, 2, 3]
