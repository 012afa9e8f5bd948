from collections import Counter

import pytest
import torch

from eval.scoring.scorer import Scorer
from eval.scoring.transformers_model import TransformersModel
from tests.eval.scoring.models import LENGTH, VOCABULARY, small
from tests.eval.stubs import BigramModel


def test_greedy_generation_follows_the_best_token_and_ends_at_the_end_of_the_document() -> None:
    model = BigramModel(13, max_length=8)
    for token in range(12):
        model.table[token, token + 1] = 100.0
    assert Scorer(model, prefix_token=9).generate([[5]], max_new_tokens=39)[0] == [6, 7, 8], "9 ends the document"
    assert Scorer(model, prefix_token=12, end_tokens=[8]).generate([[5]], max_new_tokens=39)[0] == [6, 7]
    assert Scorer(model, prefix_token=12).generate([[5]], max_new_tokens=2)[0] == [6, 7]
    assert Scorer(model, prefix_token=12).generate([[5]], max_new_tokens=0)[0] == []
    assert Scorer(model, prefix_token=12).generate([[5]], max_new_tokens=9, stop=lambda new: len(new) == 1) == [[6]]


CONTEXTS = [[5 + i, *range(30, 30 + 3 * i % 17)] for i in range(11)] + [[], list(range(3, 3 + LENGTH - 4))]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_texts_go_on_together_as_they_do_alone(temperature: float) -> None:
    """Of all lengths, ending at different times, one too long for what was read to be kept."""
    model = small()
    settings = {"max_new_tokens": 9, "temperature": temperature, "stop": lambda new: new[-1] % 7 == 3}
    scorer = Scorer(TransformersModel(model), prefix_token=2)
    together = scorer.generate(CONTEXTS, **settings)
    assert len({len(text) for text in together}) > 2
    with torch.inference_mode():
        for number, context in enumerate(CONTEXTS):
            read, new = [2, *context], together[number]
            for token in new:
                best = int(model(torch.tensor([read[-LENGTH:]])).logits[0, -1].argmax())
                assert temperature or token == best
                read.append(token)
    small_batches = Scorer(TransformersModel(model), prefix_token=2, batch_tokens=30)
    assert small_batches.generate(CONTEXTS, **settings) == together == scorer.generate(CONTEXTS, **settings)
    assert temperature == 0 or scorer.generate(CONTEXTS, seed=1, **settings) != together


def test_tokens_are_drawn_with_the_probabilities_of_the_model() -> None:
    model = BigramModel(VOCABULARY, max_length=8)
    model.table = torch.full((VOCABULARY, VOCABULARY), -30.0)
    model.table[:, 5], model.table[:, 6] = 0.0, 1.0
    drawn = Scorer(model, prefix_token=2).generate([[3]] * 2000, max_new_tokens=1, temperature=0.5)
    share = Counter(token for (token,) in drawn)[6] / 2000
    assert share == pytest.approx(1 / (1 + 2.718281828**-2), abs=0.03)
