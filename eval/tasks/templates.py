"""Items from templates: the generators by name. What each asks is told where it stands: eval/tasks/syntax.py,
language.py, symbols.py.

A generator makes a small group of items at a time from a source of random numbers. Group g of a task is a function of
(generator, seed, g) alone, so a larger limit appends items and changes none.
"""

import itertools
import random
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING

from eval.tasks.items import Item
from eval.tasks.language import agreement, agreement_across
from eval.tasks.symbols import arithmetic, copying, induction
from eval.tasks.syntax import block_colon, bracket_1, bracket_3, indent, keyword_4way, quote

if TYPE_CHECKING:
    from eval.suites import TaskDefinition

Generator = Callable[[random.Random], tuple[Item, ...]]

GENERATORS: dict[str, Generator] = {
    "bracket_1": bracket_1,
    "bracket_3": bracket_3,
    "quote": quote,
    "block_colon": block_colon,
    "indent": indent,
    "keyword_4way": keyword_4way,
    "agreement": agreement,
    "agreement_across": agreement_across,
    "copying": copying,
    "induction": induction,
    "arithmetic": arithmetic,
}


def _distinct(generator: Generator, name: str, seed: int) -> Iterator[Item]:
    seen: set[tuple[str, ...]] = set()
    attempt = 0
    while True:
        group = generator(random.Random(f"{name}/{seed}/{attempt}"))
        attempt += 1
        choices = {tuple(sorted(item.choices)) for item in group}
        if not choices & seen:
            seen |= choices
            yield from group
        elif attempt > 1000 + 20 * len(seen):
            return


def template_items(name: str, *, seed: int, limit: int) -> tuple[Item, ...]:
    """`limit` distinct items of a task, or as many as its patterns can give."""
    return _first(GENERATORS[name], name, seed, limit)


@cache  # many tasks change the same items, and every look-up of a key takes all of them
def _first(generator: Generator, name: str, seed: int, limit: int) -> tuple[Item, ...]:
    return tuple(itertools.islice(_distinct(generator, name, seed), limit))


def fixed_texts(task: "TaskDefinition") -> Iterator[str]:
    """The texts of a template task with their right answers; a larger limit appends to them and changes none."""
    for item in template_items(task.made_by, seed=task.seed, limit=task.limit):
        yield item.choices[item.gold]
