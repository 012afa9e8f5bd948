"""Items of English: a verb in the number of its subject.

agreement          the subject right before the verb: the previous word tells
agreement_across   a noun of the other number between them: the previous word misleads
"""

import random

from eval.tasks.items import Frame, Item, exchanged
from eval.tasks.words import ENDINGS, NOUNS, plural

OPENINGS = ("The", "If the", "When the", "Each time the", "Note that the", "This means that the", "By default the")
LINKS = ("of the", "in the", "for the", "from the", "with the")


def agreement(rng: random.Random) -> tuple[Item, ...]:
    """`The value is used.` and `The values are used.` with each other's verbs."""
    (singular, many), ending = rng.choice(list(ENDINGS.items()))
    opening, noun = rng.choice(OPENINGS), rng.choice(NOUNS)
    return exchanged(
        [
            Frame(before=f"{opening} {noun} ", answer=singular, after=f" {ending}", cluster=singular),
            Frame(before=f"{opening} {plural(noun)} ", answer=many, after=f" {ending}", cluster=singular),
        ],
        rng,
    )


def agreement_across(rng: random.Random) -> tuple[Item, ...]:
    """`The name of the files is used.` and `The names of the file are used.` with each other's verbs."""
    (singular, many), ending = rng.choice(list(ENDINGS.items()))
    opening, (head, other), link = rng.choice(OPENINGS), rng.sample(NOUNS, 2), rng.choice(LINKS)
    one, several = f"{opening} {head} {link} {plural(other)} ", f"{opening} {plural(head)} {link} {other} "
    return exchanged(
        [
            Frame(before=one, answer=singular, after=f" {ending}", cluster=singular),
            Frame(before=several, answer=many, after=f" {ending}", cluster=singular),
        ],
        rng,
    )
