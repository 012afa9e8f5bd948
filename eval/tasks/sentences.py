"""Items from sentences of held-out text: six to fifteen plain words on one line."""

import random
import re
from collections.abc import Iterator, Sequence

from eval.tasks.items import Frame, Item, exchanged_in_pairs

SENTENCE = re.compile(r"(?:^[ \t]*|(?<=[.!?] ))([A-Z][a-z]+(?: [a-z]+){5,14}\.)(?!\S)", re.MULTILINE)
SENTENCES_PER_DOCUMENT = 3
CLOZE_CHARACTERS = range(4, 10)  # of the word that is asked for


def _sentences(documents: Sequence[tuple[str, str]], rng: random.Random) -> list[tuple[str, str]]:
    """(document, sentence), at most three of each document, no sentence twice, in an order drawn from `rng`."""
    found: dict[str, tuple[str, str]] = {}
    for identity, text in documents:
        for sentence in [match.group(1) for match in SENTENCE.finditer(text)][:SENTENCES_PER_DOCUMENT]:
            found.setdefault(sentence, (identity, sentence))
    chosen = sorted(found.values())
    rng.shuffle(chosen)
    return chosen


def word_order(documents: Sequence[tuple[str, str]], rng: random.Random) -> Iterator[Item]:
    """A sentence and itself with two neighbouring words exchanged. The first word stays where it is, since its capital
    would give the answer away.
    """
    for identity, sentence in _sentences(documents, rng):
        words = sentence[:-1].split(" ")
        places = [i for i in range(1, len(words) - 1) if words[i] != words[i + 1]]
        if places:
            i = rng.choice(places)
            wrong = " ".join([*words[:i], words[i + 1], words[i], *words[i + 2 :]]) + "."
            gold = rng.randrange(2)
            yield Item(choices=(sentence, wrong) if gold == 0 else (wrong, sentence), gold=gold, cluster=identity)


def definitions(documents: Sequence[tuple[str, str]], rng: random.Random) -> Iterator[Item]:
    """A word of one sentence and an equally long word of another, each in its own sentence and in the other's."""
    return exchanged_in_pairs(_words(documents, rng), rng)


def _words(documents: Sequence[tuple[str, str]], rng: random.Random) -> Iterator[tuple[int, Frame]]:
    """A word of each sentence, with its length."""
    for identity, sentence in _sentences(documents, rng):
        words = sentence[:-1].split(" ")
        places = [i for i, word in enumerate(words) if i > 0 and len(word) in CLOZE_CHARACTERS]
        if not places:
            continue
        i = rng.choice(places)
        before, after = " ".join(words[:i]) + " ", " ".join(["", *words[i + 1 :]]) + "."
        yield len(words[i]), Frame(before=before, answer=words[i], after=after, cluster=identity)
