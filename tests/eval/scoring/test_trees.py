import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from eval.scoring.scorer import Request, Scorer
from eval.scoring.transformers_model import TransformersModel
from eval.scoring.trees import Piece, lay_out, plant
from tests.eval.scoring.models import LENGTH, VOCABULARY, small


@settings(deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=9), min_size=1, max_size=20),
    st.booleans(),
    st.integers(1, 40),
)
def test_each_place_sees_its_own_sequence_and_nothing_else(
    inputs: list[list[int]], branching: bool, most_tokens: int
) -> None:
    pieces = [Piece(request=i, tokens=(*tokens, 9), num_scored=len(tokens)) for i, tokens in enumerate(inputs)]
    rows = plant(pieces, branching=branching, most_tokens=most_tokens)
    assert sorted(piece.request for row in rows for piece in row.pieces) == list(range(len(pieces)))
    layout = lay_out(rows, padding_token=7)
    if layout.visible is None:
        assert not any(row.branches for row in rows)
    for number, row in enumerate(rows):
        assert branching or not row.branches
        assert len(row.tokens) <= max(most_tokens, max(len(piece.tokens) - 1 for piece in row.pieces))
        for piece, places in zip(row.pieces, row.places, strict=True):
            wanted = list(piece.tokens[:-1])
            for length, place in enumerate(places, 1):
                if layout.visible is None or layout.positions is None:
                    seen = list(range(place + 1))
                else:
                    seen = [int(other) for other in layout.visible[number, place].nonzero()[0]]
                    assert [int(layout.positions[number, other]) for other in seen] == list(range(length))
                assert [int(layout.tokens[number, other]) for other in seen] == wanted[:length]


def requests(count: int = 60) -> list[Request]:
    """Choices of one question, minimal pairs without a question, answers of one token, equal requests, long ones."""
    rng = random.Random(0)

    def words(most: int) -> list[int]:
        return [rng.randrange(VOCABULARY) for _ in range(rng.randrange(1, most))]

    made: list[Request] = []
    for _ in range(count // 6):
        question, pair = words(20), words(9)
        made += [(question, words(7)), (question, words(2)), (question, words(2)), ((), pair), ((), [*pair[:-1], 5])]
        made.append((words(2 * LENGTH), words(2 * LENGTH)))
    return made


def scores(model: TransformersModel, batch_tokens: int) -> list[float]:
    return [
        score.log_likelihood for score in Scorer(model, prefix_token=2, batch_tokens=batch_tokens).score(requests())
    ]


class Plain(TransformersModel):
    """Reads every sequence by itself, padded on the right."""

    takes_trees = False


@pytest.mark.parametrize(
    ("family", "changes", "takes_trees"),
    [
        ("llama", {}, True),
        ("qwen3", {"head_dim": 16}, True),
        ("mistral", {"sliding_window": 6}, False),
        ("granite", {"logits_scaling": 4.0}, False),
        ("gpt2", {"n_embd": 64, "n_head": 4, "n_layer": 2, "n_positions": LENGTH}, True),
    ],
)
def test_what_is_shared_is_read_once_and_gives_the_scores_of_each_alone(
    family: str, changes: dict, takes_trees: bool
) -> None:
    model = small(family, **changes)
    plain = scores(Plain(model), 1)
    tree = TransformersModel(model)
    assert tree.takes_trees == takes_trees
    for batch_tokens in (1, 64, 4096):
        assert scores(tree, batch_tokens) == pytest.approx(plain, abs=1e-4)
    assert scores(tree, 4096) == scores(tree, 4096), "the same requests give the same bits"
    context, answer = requests()[0]
    with torch.inference_mode():
        logits = model(torch.tensor([[2, *context, *answer]])).logits[0].double().log_softmax(-1)
    alone = sum(float(logits[len(context) + i, token]) for i, token in enumerate(answer))
    assert plain[0] == pytest.approx(alone, abs=1e-4)


def test_the_model_reads_fewer_tokens() -> None:
    model = TransformersModel(small())
    question = list(range(10, 40))
    asked = [(question, [5, choice, 6]) for choice in range(4)]
    (row,) = plant(Scorer(model, prefix_token=2)._pieces(asked)[0], branching=True, most_tokens=LENGTH)
    assert len(row.tokens) == 1 + 30 + 1 + 4
