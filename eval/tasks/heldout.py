"""Items from held-out text, which no training text holds.

word_order    a sentence against the same sentence with two neighbouring words exchanged; chance 1/2. A bigram model
does well on it, so it shows that a model has learnt which words follow which, no more.
"""

import random
import re
from collections.abc import Iterable

from eval.tasks.items import Item

SENTENCE = re.compile(r"(?:^[ \t]*|(?<=[.!?] ))([A-Z][a-z]+(?: [a-z]+){5,14}\.)(?!\S)", re.MULTILINE)
SENTENCES_PER_DOCUMENT = 3


def word_order(documents: Iterable[tuple[str, str]], *, seed: int, limit: int) -> tuple[Item, ...]:
    """At most `limit` items from (id, text) pairs, at most three from one document; what is chosen does not depend on
    their order.

    Only sentences of 6 to 15 plain words on one line are taken. The first word stays where it is, since its capital
    would give the answer away.
    """
    found: dict[str, tuple[str, str]] = {}
    for identity, text in sorted(documents):
        sentences = [match.group(1) for match in SENTENCE.finditer(text)]
        for sentence in sentences[:SENTENCES_PER_DOCUMENT]:
            found.setdefault(sentence, (identity, sentence))
    candidates = sorted(found.values())
    random.Random(f"word_order/{seed}").shuffle(candidates)
    items = []
    for identity, sentence in candidates:
        item = _exchange(identity, sentence, random.Random(f"word_order/{seed}/{sentence}"))
        if item is not None:
            items.append(item)
        if len(items) == limit:
            break
    return tuple(items)


def _exchange(identity: str, sentence: str, rng: random.Random) -> Item | None:
    words = sentence[:-1].split(" ")
    places = [i for i in range(1, len(words) - 1) if words[i] != words[i + 1]]
    if not places:
        return None
    i = rng.choice(places)
    wrong = " ".join([*words[:i], words[i + 1], words[i], *words[i + 2 :]]) + "."
    gold = rng.randrange(2)
    return Item(choices=(sentence, wrong) if gold == 0 else (wrong, sentence), gold=gold, cluster=identity)
