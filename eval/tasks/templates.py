"""Items from templates: small tests of syntax that a model of a few million parameters learns within minutes.

Item i is a function of (task, seed, i) alone: a larger limit appends items and changes none. In each two-way task the
right answer is balanced over the patterns, so that a model with one fixed preference scores chance. What each task
needs:

bracket_1     the closer that fits one open bracket; chance 1/2; more than the previous token
bracket_3     the order of three closers; chance 1/2; a stack
indent        deeper after a colon, level after a plain statement; chance 1/2; the line before
keyword_4way  the Python keyword that fits, against three others; chance 1/4; a bigram model does well on it
agreement     a verb in the number of its subject; chance 1/2; the previous word
"""

import itertools
import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from eval.tasks.items import Item

if TYPE_CHECKING:
    from eval.suites import TaskDefinition

NAMES = (
    "x",
    "y",
    "n",
    "a",
    "b",
    "value",
    "name",
    "data",
    "result",
    "items",
    "key",
    "index",
    "node",
    "line",
    "path",
    "size",
    "text",
    "count",
    "other",
    "args",
)
FUNCTIONS = (
    "f",
    "len",
    "list",
    "get",
    "int",
    "open",
    "max",
    "sum",
    "load",
    "read",
    "find",
    "parse",
    "update",
    "append",
    "write",
    "range",
    "sorted",
    "type",
)
TYPES = (
    "int",
    "str",
    "list",
    "Node",
    "Error",
    "Base",
    "object",
    "Path",
    "Token",
    "ValueError",
    "KeyError",
    "TypeError",
)
PAIRS = {"(": ")", "[": "]", "{": "}"}

Generator = Callable[[random.Random], Item]

BRACKET_LINES = (
    "{n} = {expression}",
    "return {expression}",
    "if {expression}",
    "{n}.{m} = {expression}",
    "for {n} in {expression}",
    "{n} += {expression}",
    "self.{n} = {expression}",
    "assert {expression}",
    "while {expression}",
    "yield {expression}",
    "{n} = {m} + {expression}",
    "{expression}, {b}",
)
HEADS = {"(": "{f}(", "[": "{m}[", "{": "{{"}  # a call, a subscript, a set or dict
INNER_HEADS = {"(": "(", "[": "[", "{": ", {{"}


class _Kept(dict[str, str]):
    """For format_map: fields that are not given stay as they are."""

    def __missing__(self, field: str) -> str:
        return "{" + field + "}"


def _fill(pattern: str, rng: random.Random, **fixed: str) -> str:
    names = dict(zip("nmabcd", rng.sample(NAMES, 6), strict=True))
    return pattern.format(**{**names, "f": rng.choice(FUNCTIONS), "t": rng.choice(TYPES), **fixed})


def _shuffled(right: str, wrong: list[str], cluster: str, rng: random.Random) -> Item:
    gold = rng.randrange(len(wrong) + 1)
    return Item(choices=(*wrong[:gold], right, *wrong[gold:]), gold=gold, cluster=cluster)


def bracket_1(rng: random.Random) -> Item:
    """`n = f(a` and its closer, against another closer."""
    pattern, opener = rng.choice(BRACKET_LINES), rng.choice(list(PAIRS))
    line = _fill(pattern.format_map(_Kept(expression=HEADS[opener] + "{a}")), rng)
    wrong = rng.choice([closer for closer in PAIRS.values() if closer != PAIRS[opener]])
    return _shuffled(line + PAIRS[opener], [line + wrong], f"{pattern} {opener}", rng)


def bracket_3(rng: random.Random) -> Item:
    """`n = f(a[b, {c` and its three closers, against the same three in another order."""
    pattern, openers = rng.choice(BRACKET_LINES), rng.sample(list(PAIRS), 3)
    expression = HEADS[openers[0]] + "{a}" + INNER_HEADS[openers[1]] + "{c}" + INNER_HEADS[openers[2]] + "{d}"
    line = _fill(pattern.format_map(_Kept(expression=expression)), rng)
    right = "".join(PAIRS[opener] for opener in reversed(openers))
    wrong = rng.choice([order for order in map("".join, itertools.permutations(PAIRS.values())) if order != right])
    return _shuffled(line + right, [line + wrong], f"{pattern} {''.join(openers)}", rng)


OPENING_LINES = (
    "if {a}:",
    "for {a} in {b}:",
    "while {a}:",
    "else:",
    "try:",
    "with {f}({a}) as {b}:",
    "def {f}({a}):",
    "if not {a}:",
    "if {a} is None:",
    "elif {a}:",
    "class {t}:",
)
PLAIN_LINES = (
    "{a} = {b}",
    "{a} = {f}({b})",
    "{f}({a})",
    "{a}.{m} = {b}",
    "{a} += 1",
    "import {a}",
    "self.{a} = {b}",
    "print({a})",
    "{a} = []",
    "{a} = None",
    "assert {a}",
)


def indent(rng: random.Random) -> Item:
    """A line and the indentation of the next: one level deeper exactly after a colon."""
    opens = rng.random() < 0.5
    first_pattern, second_pattern = rng.choice(OPENING_LINES if opens else PLAIN_LINES), rng.choice(PLAIN_LINES)
    first, second = _fill(first_pattern, rng), _fill(second_pattern, rng)
    level, deeper = f"    {first}\n    {second}\n", f"    {first}\n        {second}\n"
    return _shuffled(deeper if opens else level, [level if opens else deeper], first_pattern, rng)


KEYWORDS = (
    "in",
    "is",
    "as",
    "if",
    "else",
    "from",
    "import",
    "def",
    "class",
    "not",
    "for",
    "while",
    "return",
    "raise",
    "with",
    "lambda",
)
KEYWORD_LINES = (
    ("for {a} ", "in", " {f}({b}):"),
    ("with {f}({a}) ", "as", " {b}:"),
    ("import {a} ", "as", " {b}\n"),
    ("from {a} ", "import", " {b}\n"),
    ("except {t} ", "as", " {a}:"),
    ("    if {a} ", "is", " None:"),
    ("    ", "def", " __init__(self, {a}):"),
    ("", "class", " {t}({b}):\n"),
    ("    ", "return", " self.{a}\n"),
    ("    ", "raise", " {t}({a})\n"),
    ("    {n} = {a} ", "if", " {b} else {m}\n"),
    ("    {n} = {a} if {b} ", "else", " {m}\n"),
    ("    if ", "not", " {a}:\n"),
    ("    ", "for", " {a} in {b}:\n"),
    ("    ", "while", " {a} < {b}:\n"),
    ("    raise {t}({a}) ", "from", " {b}\n"),
    ("    ", "from", " {a} import {b}\n"),
    ("    {n} = ", "lambda", " {a}: {b}\n"),
    ("    ", "with", " {f}({a}) as {b}:\n"),
    ("    if {a} is ", "not", " None:\n"),
)


def keyword_4way(rng: random.Random) -> Item:
    """A line with its keyword, against the same line with three others."""
    before, keyword, after = rng.choice(KEYWORD_LINES)
    wrong = rng.sample([other for other in KEYWORDS if other != keyword], 3)
    line = _fill(before + "{keyword}" + after, rng, keyword="{keyword}")
    return _shuffled(
        line.format(keyword=keyword), [line.format(keyword=other) for other in wrong], f"{before}{keyword}{after}", rng
    )


NOUNS = (
    "function",
    "method",
    "value",
    "argument",
    "object",
    "module",
    "file",
    "user",
    "class",
    "parameter",
    "element",
    "test",
    "error",
    "line",
    "name",
    "option",
)
VERBS = (
    ("is", "are"),
    ("has", "have"),
    ("was", "were"),
    ("does not", "do not"),
    ("returns", "return"),
    ("takes", "take"),
    ("contains", "contain"),
    ("uses", "use"),
)
ENDINGS = {
    "is": "used.",
    "has": "been changed.",
    "was": "found.",
    "does not": "exist.",
    "returns": "a list.",
    "takes": "an integer.",
    "contains": "the text.",
    "uses": "the default.",
}


def agreement(rng: random.Random) -> Item:
    """A sentence whose verb agrees with its subject, against the other number."""
    noun, (singular, plural), is_plural = rng.choice(NOUNS), rng.choice(VERBS), rng.random() < 0.5
    subject = (noun + "es" if noun.endswith("s") else noun + "s") if is_plural else noun
    article = rng.choice(("The", "If the", "When the", "Each time the"))
    right, wrong = (plural, singular) if is_plural else (singular, plural)
    ending = ENDINGS[singular]
    return _shuffled(f"{article} {subject} {right} {ending}", [f"{article} {subject} {wrong} {ending}"], singular, rng)


GENERATORS: dict[str, Generator] = {
    "bracket_1": bracket_1,
    "bracket_3": bracket_3,
    "indent": indent,
    "keyword_4way": keyword_4way,
    "agreement": agreement,
}


def _distinct(generator: Generator, name: str, seed: int) -> Iterator[Item]:
    seen: set[tuple[str, ...]] = set()
    attempt = 0
    while True:
        item = generator(random.Random(f"{name}/{seed}/{attempt}"))
        attempt += 1
        choices = tuple(sorted(item.choices))
        if choices not in seen:
            seen.add(choices)
            yield item
        elif attempt > 1000 + 20 * len(seen):
            return


def template_items(name: str, *, seed: int, limit: int) -> tuple[Item, ...]:
    """`limit` distinct items of a task, or as many as its patterns can give."""
    items = _distinct(GENERATORS[name], name, seed)
    return tuple(itertools.islice(items, limit))


def fixed_texts(task: "TaskDefinition") -> Iterator[str]:
    """The texts of a template task with their right answers; a larger limit appends to them and changes none."""
    for item in template_items(task.made_by, seed=task.seed, limit=task.limit):
        yield item.choices[item.gold]
