"""Items from held-out text, which no training text holds: the generators by name.

word_order    a sentence against the same sentence with two neighbouring words exchanged
definitions   a word of a sentence of documentation, against the word of another sentence
code_line     the next line of a program, against the next line of another place
code_name     a name in a line of a program, against a name of another line
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence

from eval.tasks.code import code_line, code_name
from eval.tasks.items import Item
from eval.tasks.sentences import definitions, word_order

Heldout = Mapping[str, Sequence[tuple[str, str]]]
Generator = Callable[[Sequence[tuple[str, str]], random.Random], Iterator[Item]]

GENERATORS: dict[str, Generator] = {
    "word_order": word_order,
    "definitions": definitions,
    "code_line": code_line,
    "code_name": code_name,
}


def heldout_items(name: str, heldout: Heldout, *, seed: int, limit: int) -> tuple[Item, ...]:
    """At most `limit` items from domain -> (id, text); what is chosen does not depend on the order of the documents,
    and a larger limit only appends.
    """
    documents = sorted((identity, text) for pairs in heldout.values() for identity, text in pairs)
    items = GENERATORS[name](documents, random.Random(f"{name}/{seed}"))
    return tuple(item for item, _ in zip(items, range(limit), strict=False))
