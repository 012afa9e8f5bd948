"""A regression that is really there: weights perturbed until bits per byte are 2 % worse."""

import copy
from pathlib import Path

import pytest
import torch

from eval.compare.compare import compare
from eval.regression.heldout_bits import chosen_documents, run_task
from eval.results import Skipped
from eval.scoring.scorer import Scorer
from eval.subject import Subject
from eval.suites import Suite, TaskDefinition
from tests.eval.compare.made import evaluation, task
from tests.eval.stubs import END, BigramModel, characters

DOCUMENTS, LENGTH = 60, 150
TOKENIZER = characters()
BITS = TaskDefinition(
    name="bits",
    source="bits_per_byte",
    version=1,
    limit=50,
    metric="bits_per_byte",
    higher_is_better=False,
    alert_threshold=0.01,
    settings={"document_bytes": 120},
)
SUITE = Suite(name="regression", axis="regression", version=1, tasks=(BITS,))


@pytest.fixture(scope="module")
def model():
    return BigramModel(TOKENIZER.size, max_length=64)


@pytest.fixture(scope="module")
def heldout(model):
    """Text of the model's own, so that any change of its weights makes it worse at it."""
    generator = torch.Generator().manual_seed(1)
    odds = model.table.clone()
    odds[:, END] = -torch.inf
    texts = []
    for _ in range(DOCUMENTS):
        tokens = [END]
        while len(tokens) <= LENGTH:
            tokens.append(int(torch.multinomial(odds[tokens[-1]].softmax(-1), 1, generator=generator)))
        texts.append(TOKENIZER.decode(tokens[1:]))
    pairs = [(f"document {i}", text) for i, text in enumerate(texts)]
    return {"code": pairs[:20], "prose": pairs[20:]}


def subject(model, heldout):
    return Subject(
        scorer=Scorer(model, prefix_token=END),
        tokenizer=TOKENIZER,
        heldout=heldout,
        training=lambda most, seed: [],
        canaries=None,
        chat=None,
        num_parameters=1,
        model_bytes=1,
        scratch=Path(),
    )


def scored(model, heldout):
    found = run_task(SUITE, BITS, subject(model, heldout), None)
    bits = task(found.items, suite="regression", metric="bits_per_byte", higher_is_better=False, alert_threshold=0.01)
    return found.value, evaluation({"bits": bits}, suites={"regression": 1})


def perturbed(model, scale):
    changed = copy.copy(model)
    changed.table = model.table + scale * torch.randn(model.table.shape, generator=torch.Generator().manual_seed(2))
    return changed


def worse_by(share, model, heldout):
    """The model with noise on its weights, as much as makes its bits per byte worse by `share`."""
    value, _ = scored(model, heldout)
    scale = 0.3
    for _ in range(3):  # what noise costs grows with its square
        scale *= (share / (scored(perturbed(model, scale), heldout)[0] / value - 1)) ** 0.5
    return perturbed(model, scale)


def test_two_percent_are_found_and_an_equal_model_is_not(model, heldout):
    value, baseline = scored(model, heldout)
    worse_value, worse = scored(worse_by(0.02, model, heldout), heldout)
    assert worse_value == pytest.approx(1.02 * value, rel=2e-3)
    found = compare(worse, baseline)
    assert found.with_verdict("regressed", measured=False) == ["bits"]
    assert found.tasks["bits"].found.low > 0
    assert found.tasks["bits"].minimal_detectable_difference < 0.02 * value
    _, equal = scored(perturbed(model, 1e-3), heldout)
    assert compare(equal, baseline).verdict(measured=False) == "no_difference"


def test_documents_are_taken_from_the_domains_in_turns_and_a_larger_limit_appends(heldout):
    few, many = (chosen_documents(heldout, seed=3, limit=limit, document_bytes=50) for limit in (9, 45))
    assert many[:9] == few
    assert [document.domain for document in few[:4]] == ["code", "prose", "code", "prose"]
    assert len({document.id for document in many}) == 45
    assert {len(document.text) for document in many} == {50}
    assert chosen_documents(heldout, seed=4, limit=9, document_bytes=50) != few
    other_order = {domain: pairs[::-1] for domain, pairs in reversed(heldout.items())}
    assert chosen_documents(other_order, seed=3, limit=9, document_bytes=50) == few


def test_a_character_is_never_cut_and_empty_texts_are_passed_over():
    heldout = {"a": [("1", "ä" * 9), ("2", ""), ("3", "€")]}
    found = chosen_documents(heldout, seed=0, limit=9, document_bytes=3)
    assert sorted(document.text for document in found) == ["ä", "€"]


def test_without_heldout_text_the_task_is_left_out(model):
    with pytest.raises(Skipped, match="no held-out text"):
        run_task(SUITE, BITS, subject(model, {"a": [("1", "")]}), None)
