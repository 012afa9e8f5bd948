"""Items of Python's syntax: which closer, which quote, whether a line opens a block, how deep the next one stands,
which keyword.

bracket_1     the closer that fits one open bracket
bracket_3     the order of three closers
quote         the quotation mark that was opened
block_colon   a colon after the head of a block, none after a plain statement
indent        the line after a head one level deeper, after a plain statement level with it
keyword_4way  the keyword that fits, against three others
"""

import itertools
import random

from eval.tasks.items import Frame, Item, exchanged
from eval.tasks.words import fill, filled_alike

PAIRS = {"(": ")", "[": "]", "{": "}"}
EXPRESSION_LINES = (
    "{n} = EXPRESSION",
    "return EXPRESSION",
    "if EXPRESSION",
    "{n}.{m} = EXPRESSION",
    "for {n} in EXPRESSION",
    "{n} += EXPRESSION",
    "self.{n} = EXPRESSION",
    "assert EXPRESSION",
    "while EXPRESSION",
    "yield EXPRESSION",
    "{n} = {m} + EXPRESSION",
    "{n}, {m} = EXPRESSION",
    "    return self.{n}, EXPRESSION",
    "raise {t}(EXPRESSION",
    "print({m}, EXPRESSION",
    "{n} = not EXPRESSION",
    "elif EXPRESSION",
    "    {n} = EXPRESSION",
    ">>> EXPRESSION",
    ">>> {n} = EXPRESSION",
    "{n} = {m} or EXPRESSION",
    "del EXPRESSION",
    "if not EXPRESSION",
    "lambda {n}: EXPRESSION",
)
HEADS = {"(": "{f}(", "[": "{m}[", "{": "{{"}  # a call, a subscript, a set or dict
INNER_HEADS = {"(": "(", "[": "[", "{": ", {{"}


def bracket_1(rng: random.Random) -> tuple[Item, ...]:
    """`n = f(a` and `n = m[a` with each other's closers."""
    line, openers = rng.choice(EXPRESSION_LINES), rng.sample(list(PAIRS), 2)
    patterns = tuple(line.replace("EXPRESSION", HEADS[opener] + "{a}") for opener in openers)
    return exchanged(
        [
            Frame(before=text, answer=PAIRS[opener], cluster=line)
            for text, opener in zip(filled_alike(patterns, rng), openers, strict=True)
        ],
        rng,
    )


def bracket_3(rng: random.Random) -> tuple[Item, ...]:
    """`n = f(a[b, {c` and the same with its brackets in another order, with each other's closers."""
    line = rng.choice(EXPRESSION_LINES)
    orders = rng.sample(list(itertools.permutations(PAIRS)), 2)
    patterns = tuple(
        line.replace("EXPRESSION", HEADS[a] + "{a}" + INNER_HEADS[b] + "{c}" + INNER_HEADS[c] + "{d}")
        for a, b, c in orders
    )
    return exchanged(
        [
            Frame(before=text, answer="".join(PAIRS[opener] for opener in reversed(order)), cluster=line)
            for text, order in zip(filled_alike(patterns, rng), orders, strict=True)
        ],
        rng,
    )


STRING_LINES = (
    "{n} = QUOTED",
    "return QUOTED",
    "if {n} == QUOTED",
    "{n}.{m} = QUOTED",
    "{f}(QUOTED",
    "{n} += QUOTED",
    "self.{n} = QUOTED",
    "assert {n} == QUOTED",
    "print(QUOTED",
    "yield QUOTED",
    "{n} = {m} + QUOTED",
    "raise {t}(QUOTED",
    "{n} = {m}[QUOTED",
    "{n} = [QUOTED",
    "for {n} in QUOTED",
    "elif {n} != QUOTED",
    "    {n} = QUOTED",
    "    return QUOTED",
    ">>> {f}(QUOTED",
    ">>> {n} = QUOTED",
    "{n} = {{QUOTED",
    "if QUOTED",
    "{n} = {f}({m}, QUOTED",
    "while {n} != QUOTED",
)


def quote(rng: random.Random) -> tuple[Item, ...]:
    """`n = 'a` and `n = "a` with each other's quotation marks."""
    line = rng.choice(STRING_LINES)
    marks = ("'", '"')
    patterns = tuple(line.replace("QUOTED", mark + "{a}") for mark in marks)
    return exchanged(
        [
            Frame(before=text, answer=mark, cluster=line, after="\n")
            for text, mark in zip(filled_alike(patterns, rng), marks, strict=True)
        ],
        rng,
    )


HEAD_LINES = (
    "if {a}",
    "for {a} in {b}",
    "while {a}",
    "else",
    "try",
    "with {f}({a}) as {b}",
    "def {f}({a})",
    "if not {a}",
    "if {a} is None",
    "elif {a}",
    "class {t}",
    "finally",
    "except {t}",
    "except {t} as {a}",
    "for {a} in {f}({b})",
    "while True",
    "if {a} == {b}",
    "if {a} in {b}",
    "def {f}(self)",
    "def {f}({a}, {b})",
    "with {a}",
    "if {f}({a})",
    "for {a}, {b} in {c}",
    "if {a} is not None",
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
    "{a}.{f}({b})",
    "{a} = self.{b}",
    "from {a} import {b}",
    "{a}[{b}] = {c}",
    "pass",
)


def block_colon(rng: random.Random) -> tuple[Item, ...]:
    """A head, which ends in a colon, and a plain statement, which does not."""
    head = rng.choice(HEAD_LINES)
    first, second = fill(head, rng), fill(rng.choice(PLAIN_LINES), rng)
    return exchanged(
        [
            Frame(before=f"    {first}", answer=":\n", cluster=head),
            Frame(before=f"    {second}", answer="\n", cluster=head),
        ],
        rng,
    )


def indent(rng: random.Random) -> tuple[Item, ...]:
    """A line after a head and the same line after a plain statement: deeper, and level."""
    head = rng.choice(HEAD_LINES)
    first, plain, follower = fill(head, rng), fill(rng.choice(PLAIN_LINES), rng), fill(rng.choice(PLAIN_LINES), rng)
    return exchanged(
        [
            Frame(before=f"    {first}:\n", answer=" " * 8, after=follower + "\n", cluster=head),
            Frame(before=f"    {plain}\n", answer=" " * 4, after=follower + "\n", cluster=head),
        ],
        rng,
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
    ("    if {a} ", "and", " {b} is None:\n"),
    ("    ", "assert", " {a} == {b}\n"),
    ("    ", "except", " {t} as {a}:\n"),
    ("    ", "del", " {a}[{b}]\n"),
    ("    ", "elif", " {a} is None:\n"),
    ("    {n} = [{f}({a}, {b}) for {a}, {b} ", "in", " {c}]\n"),
    ("    ", "import", " {a}\n"),
    ("    {n} = [{a} for {a} ", "in", " {b}]\n"),
    ("for {a}, {b} ", "in", " {c}.items():\n"),
    ("    for {a} ", "in", " range({b}):\n"),
    ("import numpy ", "as", " {a}\n"),
    ("    with {f}({a}, {b}) ", "as", " {c}:\n"),
    ("from .{a} ", "import", " {b}, {c}\n"),
    ("", "from", " .{a} import {b}\n"),
    ("    if {a} ", "is", " not None:\n"),
    ("    ", "def", " {f}(self):\n"),
    ("", "def", " {f}({a}, {b}=None):\n"),
    ("", "class", " {t}:\n"),
    ("    ", "return", " {f}({a}, {b})\n"),
    ("        ", "return", " None\n"),
    ("        ", "raise", " ValueError({a})\n"),
    ("    ", "if", " {a} is None:\n"),
    ("    ", "if", " not {a}:\n"),
    ("    {n} = None if {a} ", "else", " {b}\n"),
    ("    {f}({a} if {b} ", "else", " None)\n"),
    ("    {n} = [{a} if {b} ", "else", " 0 for {a} in {c}]\n"),
    ("    print({a} if {m} ", "else", " {b}, {c})\n"),
    ("    return {a} if {b} ", "else", " {c}\n"),
    ("    if {a} is ", "not", " {b}:\n"),
    ("    ", "elif", " {f}({a}, {t}):\n"),
    ("    {f}({a}, key=", "lambda", " {b}: {c})\n"),
    ("    return ", "lambda", " {a}: {f}({a})\n"),
    ("    self.{n} = ", "lambda", " {a}, {b}: {a}\n"),
    ("    {a}.{m}(", "lambda", " {b}: {f}({b}), {c})\n"),
    ("    ", "for", " {a}, {b} in {c}:\n"),
    ("    ", "except", " ({t}, KeyError):\n"),
    ("    ", "import", " {a}.{b}\n"),
    ("    ", "while", " True:\n"),
)
KEYWORD_KINDS = (
    ("return", "raise", "assert", "del", "import"),
    ("if", "while", "elif", "with", "for", "except"),
    ("in", "is", "and", "not"),
    ("as",),
    ("from",),
    ("else",),
    ("def",),
    ("class",),
    ("lambda",),
)
KEYWORD_PLACES = (  # of one place: where one stands, another may stand too, and the line is still Python
    frozenset({"return", "raise", "assert", "del", "import", "not"}),
    frozenset({"if", "while", "elif", "with", "for", "except", "def", "class"}),
    frozenset({"in", "is", "and", "not", "as"}),
    frozenset({"in", "is", "and", "not", "from"}),
)


def _keywords(rng: random.Random) -> list[str]:
    """Four of four kinds, of which none may stand in another's place."""
    while True:
        found = [rng.choice(kind) for kind in rng.sample(KEYWORD_KINDS, 4)]
        if all(len(place.intersection(found)) < 2 for place in KEYWORD_PLACES):
            return found


def keyword_4way(rng: random.Random) -> tuple[Item, ...]:
    """Four lines with each other's keywords: only its own makes a line Python."""
    frames = []
    for keyword in _keywords(rng):
        line = rng.choice([line for line in KEYWORD_LINES if line[1] == keyword])
        before, _, after = fill("\0".join((line[0], line[2])), rng).partition("\0")
        frames.append(Frame(before=before, answer=keyword, after=after, cluster="".join(line)))
    return exchanged(frames, rng)
