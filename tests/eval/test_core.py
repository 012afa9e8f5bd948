"""The items that the core suite takes from held-out text."""

import re
from collections import Counter

import pytest

from eval.results import Skipped
from eval.suites import TaskDefinition, load_suite
from eval.tasks.code import is_program
from eval.tasks.heldout import GENERATORS, heldout_items
from eval.tasks.make import make_items

WORDS = ["array", "value", "index", "table", "column", "number", "result", "object", "string", "method"]
SENTENCE = "{} of the {} was read from the {} before it ends. Another {} is not a name of any {} here.\n"
PROGRAM = '''import {0}


def {0}_of({1}, {2}):
    """Return the {0} of {1}."""
    {0}_list = [{1} for {1} in {2}]
    for {1}_name in {2}_names:
        {0}_list.append({1}_name)
        {2}_count += len({1}_name)
        {0}_total = {2}_count + {1}_name
    return {0}_list, {2}_count, {0}_total
'''


def documents() -> dict[str, list[tuple[str, str]]]:
    texts = {
        f"d{i}": SENTENCE.format("Most", *(WORDS[(i + j) % len(WORDS)] for j in range(4))) for i in range(len(WORDS))
    }
    programs = {
        f"p{i}": PROGRAM.format(*(WORDS[(3 * i + j) % len(WORDS)] for j in range(3))) * 3 for i in range(len(WORDS))
    }
    return {"reference": list(texts.items()), "code": list(programs.items())}


@pytest.mark.parametrize("name", GENERATORS)
def test_held_out_items_are_a_function_of_seed_and_documents(name: str) -> None:
    heldout = documents()
    items = heldout_items(name, heldout, seed=0, limit=40)
    turned = {domain: pairs[::-1] for domain, pairs in reversed(heldout.items())}
    assert len(items) > 3 and items == heldout_items(name, turned, seed=0, limit=40), "their order does not matter"
    assert heldout_items(name, heldout, seed=0, limit=3) == items[:3]
    assert heldout_items(name, heldout, seed=1, limit=40) != items
    assert {item.cluster for item in items} <= {identity for pairs in heldout.values() for identity, _ in pairs}
    assert heldout_items(name, {"reference": [("x", "no sentence, no program")]}, seed=0, limit=5) == ()


@pytest.mark.parametrize("name", GENERATORS)
def test_the_right_answer_stands_in_its_document(name: str) -> None:
    heldout = documents()
    texts = dict(heldout["reference"]) | dict(heldout["code"])
    for item in heldout_items(name, heldout, seed=0, limit=40):
        assert item.choices[item.gold] in texts[item.cluster]
        assert len(set(item.choices)) == 2


@pytest.mark.parametrize("name", ["definitions", "code_line", "code_name"])
def test_wrong_answers_are_right_elsewhere(name: str) -> None:
    """So that frequent and short words earn nothing; word_order exchanges words instead."""
    items = heldout_items(name, documents(), seed=0, limit=40)
    for first, second in zip(items[::2], items[1::2], strict=False):
        assert first.gold != second.gold
        lengths = [len(choice) for choice in first.choices]
        assert max(lengths) - min(lengths) < 4, "about as long"


def test_word_order_exchanges_two_neighbours() -> None:
    for item in heldout_items("word_order", documents(), seed=0, limit=40):
        right, wrong = (item.choices[i][:-1].split() for i in (item.gold, 1 - item.gold))
        assert Counter(right) == Counter(wrong) and right[0] == wrong[0]
        places = [i for i, (a, b) in enumerate(zip(right, wrong, strict=True)) if a != b]
        assert len(places) == 2 and places[1] == places[0] + 1


def test_names_are_whole_and_no_keywords() -> None:
    for item in heldout_items("code_name", documents(), seed=0, limit=40):
        tokens = [re.findall(r"\w+", choice) for choice in item.choices]
        assert len(tokens[0]) == len(tokens[1])
        changed = {pair for pair in zip(*tokens, strict=True) if pair[0] != pair[1]}
        assert len(changed) == 1 and all(len(a) == len(b) for a, b in changed)


def test_text_without_items_skips_the_task() -> None:
    task = TaskDefinition(name="code_line", source="heldout", version=1, limit=3)
    with pytest.raises(Skipped, match="held-out text"):
        make_items(task, {"reference": [("a", "Nothing of a program.")]})


def test_prose_with_an_example_is_no_program() -> None:
    programs = [text for _, text in documents()["code"]]
    assert all(map(is_program, programs))
    assert not is_program("Some prose.\n" * 400 + programs[0]) and not is_program("A sentence.")


def test_limits_hold_whole_groups() -> None:
    """Chance is exact only then."""
    for task in load_suite("core").tasks:
        assert task.limit % (4 if task.chance == 0.25 else 2) == 0, task.name
