import ast
import hashlib
import re
from collections import Counter

import pytest

from eval.suites import load_suite
from eval.tasks.items import Item
from eval.tasks.language import OPENINGS
from eval.tasks.symbols import OPERATIONS
from eval.tasks.syntax import PAIRS
from eval.tasks.templates import GENERATORS, template_items
from eval.tasks.words import ENDINGS, NOUNS, plural

CHANCE = {task.name: task.chance for task in load_suite("core").tasks}
NUM_ITEMS = 600  # of which whole groups, since it is a multiple of their sizes


def right(item: Item) -> str:
    return item.choices[item.gold]


@pytest.mark.parametrize("name", GENERATORS)
def test_items_are_a_function_of_seed_and_place(name: str) -> None:
    items = template_items(name, seed=3, limit=120)
    assert len(items) == 120
    assert template_items(name, seed=3, limit=31) == items[:31], "a larger limit only appends"
    assert template_items(name, seed=4, limit=120) != items
    assert len({tuple(sorted(item.choices)) for item in items}) == 120
    for item in items:
        assert len(set(item.choices)) == len(item.choices) and 0 <= item.gold < len(item.choices)


@pytest.mark.parametrize("name", GENERATORS)
def test_the_patterns_are_many(name: str) -> None:
    """Errors are computed over them."""
    assert len({item.cluster for item in template_items(name, seed=0, limit=NUM_ITEMS)}) >= 20


def gap(item: Item) -> list[str]:
    """What the choices of an item differ in."""
    prefix, suffix = 0, 0
    while len({choice[prefix] for choice in item.choices if len(choice) > prefix}) == 1 and prefix < min(
        map(len, item.choices)
    ):
        prefix += 1
    shortest = min(len(choice) for choice in item.choices) - prefix
    while suffix < shortest and len({choice[-1 - suffix] for choice in item.choices}) == 1:
        suffix += 1
    return [choice[prefix : len(choice) - suffix] for choice in item.choices]


@pytest.mark.parametrize("name", GENERATORS)
@pytest.mark.parametrize(
    "preference",
    [
        lambda answers: 0,
        lambda answers: max(range(len(answers)), key=lambda i: (len(answers[i]), answers[i])),
        lambda answers: min(range(len(answers)), key=lambda i: (len(answers[i]), answers[i])),
        lambda answers: min(range(len(answers)), key=lambda i: hashlib.sha256(answers[i].encode()).digest()),
    ],
    ids=["first", "longest", "shortest", "arbitrary"],
)
def test_a_fixed_preference_among_answers_scores_exactly_chance(name: str, preference) -> None:
    items = template_items(name, seed=0, limit=NUM_ITEMS)
    correct = sum(preference(gap(item)) == item.gold for item in items)
    assert correct == NUM_ITEMS * CHANCE[name]


@pytest.mark.parametrize("name", GENERATORS)
def test_a_preference_for_a_last_character_scores_chance(name: str) -> None:
    """Of a whole text, so that a shortcut that needs no understanding is found: within four standard errors."""
    items = template_items(name, seed=0, limit=NUM_ITEMS)
    correct = sum(max(range(len(item.choices)), key=lambda i: item.choices[i][-1]) == item.gold for item in items)
    chance = CHANCE[name]
    assert chance is not None
    assert abs(correct / NUM_ITEMS - chance) < 4 * (chance * (1 - chance) / NUM_ITEMS) ** 0.5


@pytest.mark.parametrize("name", ["bracket_1", "bracket_3"])
def test_brackets_are_closed_in_order_only_in_the_right_answer(name: str) -> None:
    for item in template_items(name, seed=1, limit=NUM_ITEMS):
        assert [_fits(choice) for choice in item.choices] == [i == item.gold for i in range(2)], item


def _fits(text: str) -> bool:
    """Whether every closer is that of the innermost open bracket."""
    opened: list[str] = []
    for character in text:
        if character in PAIRS:
            opened.append(character)
        elif character in PAIRS.values() and (not opened or PAIRS[opened.pop()] != character):
            return False
    return True


def test_quotes_are_those_that_were_opened() -> None:
    for item in template_items("quote", seed=1, limit=200):
        marks = [re.findall("['\"]", choice) for choice in item.choices]
        assert [a == b for a, b in marks] == [i == item.gold for i in range(2)]


@pytest.mark.parametrize("name", ["block_colon", "indent"])
def test_blocks_are_opened_by_heads_alone(name: str) -> None:
    heads = ["if", "for", "while", "else", "try", "with", "def", "elif", "class", "finally", "except"]
    for item in template_items(name, seed=1, limit=300):
        first, *more = right(item).removesuffix("\n").split("\n")
        is_head = first.split()[0].rstrip(":") in heads
        assert first.endswith(":") == is_head
        if more:
            assert (len(more[0]) - len(more[0].lstrip()) == 8) == is_head


def test_verbs_agree_with_the_first_noun() -> None:
    singular = {one for one, _ in ENDINGS}
    for name in ("agreement", "agreement_across"):
        for item in template_items(name, seed=1, limit=300):
            opening = max((o for o in OPENINGS if right(item).startswith(o + " ")), key=len)
            rest = right(item)[len(opening) + 1 :]
            verbs = [verb for verb in singular if f" {verb} " in rest]
            assert bool(verbs) == (rest.split()[0] in NOUNS), item
    assert plural("axis") == "axes" and plural("file") == "files"


def test_what_is_copied_stood_before() -> None:
    for item in template_items("copying", seed=1, limit=200):
        counts = [Counter(re.findall("[a-z]{6}", choice)) for choice in item.choices]
        (answer,) = set(gap_words(item)[item.gold])
        assert counts[item.gold][answer] >= 2
    for item in template_items("induction", seed=1, limit=200):
        words = re.findall("[a-z]{6}", right(item))
        key, value = words[-2:]
        assert words[words.index(key) + 1] == value and words.index(key) < len(words) - 2
        wrong = re.findall("[a-z]{6}", item.choices[1 - item.gold])
        assert wrong[wrong.index(key) + 1] != wrong[-1] and wrong[-1] in words, "the wrong value stood in the list too"


def gap_words(item: Item) -> list[list[str]]:
    """The last made-up word of each choice."""
    return [re.findall("[a-z]{6}", choice)[-1:] for choice in item.choices]


def test_calculations_are_right_and_as_long() -> None:
    signs = {**{sign: sign for sign in OPERATIONS}, **{word: sign for sign, (word, _) in OPERATIONS.items()}}
    for item in template_items("arithmetic", seed=1, limit=300):
        found = re.search(r"(\d) ?(\+|-|\*|plus|minus|times) ?(\d)", right(item))
        assert found is not None
        result = OPERATIONS[signs[found[2]]][1](int(found[1]), int(found[3]))
        ends = [re.findall(r"\d+", choice)[-1] for choice in item.choices]
        assert int(ends[item.gold]) == result and len(ends[0]) == len(ends[1]) and ends[0] != ends[1]


def test_lines_of_python_are_such() -> None:
    """The right keyword makes a line that Python reads, with what such a line needs around it; a wrong one does not."""
    items = template_items("keyword_4way", seed=1, limit=1000)
    for item in items:
        readable = [_is_read(choice.strip()) for choice in item.choices]
        assert readable == [number == item.gold for number in range(4)], item
    assert max(Counter(item.cluster for item in items).values()) < 0.08 * len(items)


def _is_read(line: str) -> bool:
    for text in (
        f"def f():\n {line}",
        f"def f():\n {line}\n  pass",
        f"def f():\n if x:\n  pass\n {line}\n  pass",
        f"def f():\n try:\n  pass\n {line}\n  pass",
        f"def f():\n try:\n  pass\n {line} pass",
    ):
        try:
            ast.parse(text)
        except SyntaxError:
            continue
        return True
    return False
