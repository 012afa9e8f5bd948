import random
import re
from collections.abc import Callable
from dataclasses import replace
from typing import get_args

import pytest

from eval.robustness.perturbations import LEAST_TYPO_LETTERS, VARIANTS, perturb
from eval.robustness.pieces import split
from eval.robustness.questions import Question, read_questions
from eval.robustness.settings import Perturbation
from eval.tasks.templates import GENERATORS, template_items
from tests.eval.robustness.stubs import MISMATCHED, JudgingScorer, balance, subject, task

PERTURBATIONS: tuple[Perturbation, ...] = get_args(Perturbation)


def questions(base: str, number: int = 60) -> list[Question]:
    return [
        Question(context="", choices=item.choices, gold=item.gold, base=base, cluster=item.cluster)
        for item in template_items(base, seed=5, limit=number)
    ]


def changed(question: Question, perturbation: Perturbation, seed: int) -> Question | None:
    found = perturb(question, perturbation, random.Random(seed), 0.5)
    return found[0] if found else None


def is_quoted(text: str) -> bool:
    return text.count("'") % 2 == 0 and text.count('"') % 2 == 0


def is_indented(text: str) -> bool:
    before, after = [line for line in text.splitlines() if line.strip()][-2:]
    deeper = len(after) - len(after.lstrip()) > len(before) - len(before.lstrip())
    return deeper == before.rstrip().endswith(":")


def is_copied(text: str) -> bool:
    *before, last = re.findall(r"\w+", text.casefold())
    return last in before


def is_looked_up(text: str) -> bool:
    words = re.findall(r"\w+", text.casefold())
    return (words[-2], words[-1]) in list(zip(words, words[1:-1], strict=False))[:-1]


ORACLES: dict[str, Callable[[str], bool]] = {
    "bracket_1": lambda text: balance(text) > MISMATCHED,
    "bracket_3": lambda text: balance(text) > MISMATCHED,
    "quote": is_quoted,
    "indent": is_indented,
    "copying": is_copied,
    "induction": is_looked_up,
}


@pytest.mark.parametrize("perturbation", PERTURBATIONS)
@pytest.mark.parametrize("base", ORACLES)
def test_the_right_answer_stays_the_right_answer(base: str, perturbation: Perturbation) -> None:
    """By a rule that knows the answer and nothing of the change."""
    num_changed = 0
    for seed, question in enumerate(questions(base)):
        assert [ORACLES[base](text) for text in question.texts].index(True) == question.gold, "the rule knows it"
        found = changed(question, perturbation, seed)
        if found is not None:
            num_changed += 1
            right = [ORACLES[base](text) for text in found.texts]
            assert right == [choice == question.gold for choice in range(len(right))], found.texts
    assert num_changed >= 10


@pytest.mark.parametrize("perturbation", [name for name in PERTURBATIONS if name != "case"])
@pytest.mark.parametrize("base", GENERATORS)
def test_what_choices_differ_in_is_not_touched(base: str, perturbation: Perturbation) -> None:
    for seed, question in enumerate(questions(base, 30)):
        found = changed(question, perturbation, seed)
        if found is None:
            continue
        assert found.texts != question.texts and len(set(found.choices)) == len(found.choices)
        assert (found.gold, found.cluster, found.base) == (question.gold, question.cluster, question.base)
        middles = ["".join(middle) for middle in split(question).middles]
        head, tail = found.texts[0].split(middles[0], 1) if middles[0] else ("", "")
        if middles[0] and found.texts[0].count(middles[0]) == 1:
            assert found.texts == tuple(head + middle + tail for middle in middles), "the same for all choices"


def test_typos_leave_short_words_first_letters_and_endings_alone() -> None:
    question = questions("agreement", 1)[0]
    sentence = "the gardeners from axes abcde returns"
    question = replace(question, choices=(f"{sentence} one.", f"{sentence} two."), gold=0)
    seen = set()
    for seed in range(200):
        found = changed(question, "typos", seed)
        assert found is not None
        for old, new in zip(sentence.split(), found.choices[0].split()[:-1], strict=True):
            assert len(old) >= LEAST_TYPO_LETTERS or new == old
            assert new[0] == old[0] and new[-2:] == old[-2:] and abs(len(new) - len(old)) <= 1
            seen.add(new)
    assert len(seen) > 20


def test_a_context_is_changed_and_its_choices_are_not() -> None:
    question = Question(context="Which colour has grass", choices=(" green", " purple"), gold=0, base="b", cluster="c")
    for name in PERTURBATIONS:
        found = changed(question, name, 1)
        assert found is not None and found.context != question.context
        assert [choice.casefold() for choice in found.choices] == [" green", " purple"]
    found = changed(replace(question, context="colour green"), "typos", 0)
    assert found is not None and found.context.endswith("green"), "a word of a choice"


def test_every_variant_is_drawn_and_nothing_is_said_to_change_where_nothing_can() -> None:
    found = [
        perturb(question, name, random.Random(i), 0.3)
        for name in PERTURBATIONS
        for i, question in enumerate(questions("agreement", 100))
    ]
    assert {entry[1] for entry in found if entry} == {variant for variants in VARIANTS.values() for variant in variants}
    numbers = Question(context="", choices=("1+1=2", "1+1=3"), gold=0, base="b", cluster="c")
    assert (
        perturb(numbers, "typos", random.Random(0), 1.0) is None
        and perturb(numbers, "case", random.Random(0), 1.0) is None
    )


def test_items_are_a_function_of_seed_and_place_and_a_larger_limit_appends() -> None:
    from eval.robustness.perturbed import fixed_texts, pairs

    judged = subject(JudgingScorer(balance), {"d": [("1", "nothing")]})
    bases = ("bracket_1", "agreement", "word_order")
    settings = {"perturbation": "typos", "bases": bases}

    def made(limit: int, seed: int = 3) -> list[tuple[int, Question]]:
        definition = task("perturbed", settings, limit=limit, seed=seed)
        return [(pair.item, pair.changed) for pair in pairs(definition, read_questions(definition, bases, judged))]

    short, long = made(30), made(60)
    assert long[: len(short)] == short and len(long) > len(short) and made(30, seed=4) != short
    assert {item % 3 for item, _ in long} == {0, 1}, "places of a base that has no items stay empty"
    texts = list(fixed_texts(task("perturbed", settings, limit=60, seed=3)))
    assert set(texts) >= {question.texts[question.gold] for _, question in long}
