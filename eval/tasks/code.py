"""Items from held-out programs: what looks like a module of Python among the held-out documents."""

import keyword
import random
import re
from collections.abc import Iterator, Sequence

from eval.tasks.items import Frame, Item, exchanged_in_pairs

CONTEXT_LINES = 3
PLACES_PER_DOCUMENT = 12
LINE_CHARACTERS = range(8, 60)
STATEMENT = re.compile(
    r"^(?:from [\w.]+ import \S|import [a-z_]\w*|(?: {4}|async )?def \w+\(.*:$|class \w+.*:$)", re.MULTILINE
)
LEAST_STATEMENTS, STATEMENTS_PER_LINE = 3, 0.025  # in a program; prose with an example has fewer
NAME = re.compile(r"(?<![\w'\"])[a-z_][a-z_0-9]{2,}(?!\w)")


def is_program(text: str) -> bool:
    """Whether a document is a program, by its imports and definitions."""
    found = len(STATEMENT.findall(text))
    return found >= LEAST_STATEMENTS and found > STATEMENTS_PER_LINE * text.count("\n")


def _places(documents: Sequence[tuple[str, str]], rng: random.Random) -> list[tuple[str, str, str]]:
    """(document, lines before, line) of programs, some of each, in an order drawn from `rng`."""
    found = []
    for identity, text in documents:
        if not is_program(text):
            continue
        lines = text.split("\n")
        places = [
            i
            for i in range(CONTEXT_LINES, len(lines))
            if all(line.strip() for line in lines[i - CONTEXT_LINES : i + 1])
            and len(lines[i].strip()) in LINE_CHARACTERS
            and not lines[i].lstrip().startswith(("#", '"', "'"))
        ]
        for i in rng.sample(places, min(PLACES_PER_DOCUMENT, len(places))):
            found.append((identity, "".join(line + "\n" for line in lines[i - CONTEXT_LINES : i]), lines[i]))
    rng.shuffle(found)
    return found


def code_line(documents: Sequence[tuple[str, str]], rng: random.Random) -> Iterator[Item]:
    """The next line at two places of programs, each also at the other: about as long, and as deep."""
    frames = (
        (
            (len(line) // 4, len(line) - len(line.lstrip())),
            Frame(before=before, answer=line, after="\n", cluster=identity),
        )
        for identity, before, line in _places(documents, rng)
    )
    return exchanged_in_pairs(frames, rng)


def code_name(documents: Sequence[tuple[str, str]], rng: random.Random) -> Iterator[Item]:
    """A name in a line, and an equally long name of another line, each also in the other."""
    return exchanged_in_pairs(_names(documents, rng), rng)


def _names(documents: Sequence[tuple[str, str]], rng: random.Random) -> Iterator[tuple[int, Frame]]:
    """A name in each line that has one, with its length."""
    for identity, before, line in _places(documents, rng):
        names = [match for match in NAME.finditer(line) if not keyword.iskeyword(match.group())]
        if not names:
            continue
        name = rng.choice(names)
        yield (
            len(name.group()),
            Frame(
                before=before + line[: name.start()],
                answer=name.group(),
                after=line[name.end() :] + "\n",
                cluster=identity,
            ),
        )
