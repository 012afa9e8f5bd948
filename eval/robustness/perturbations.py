"""Small changes of a question that leave its right answer right.

typos         a letter inside a word of five or more dropped, doubled, exchanged with the next, or taken from its
              neighbour on the keyboard; the first and the last two stay, and with them the number of a noun or verb
case          all of it, choices too, in upper case, in lower case, in title case, or with each letter's case turned
spacing       single spaces within a line doubled or made tabs, or empty lines before it; indentation stays
look_alikes   letters as others that look the same (Cyrillic, full width), or an invisible mark inside a word
paraphrase    introduced by words that change nothing: a sentence becomes a clause, other text gets a line before it

Each has variants, of which one is drawn; a share of the places is changed, at least one.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from eval.robustness.pieces import Pieces, split
from eval.robustness.questions import Question
from eval.robustness.settings import Perturbation

Variant = Callable[[Pieces, random.Random, float], Question]

LEAST_TYPO_LETTERS = 5
ENDING_LETTERS = 2
KEYBOARD_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
CYRILLIC = str.maketrans("aceopxyABCEHKMOPTX", "асеорхуАВСЕНКМОРТХ")  # noqa: RUF001 - that they look alike is the point
FULL_WIDTH = {code: code + 0xFEE0 for code in range(ord("!"), ord("~") + 1)}
ZERO_WIDTH_SPACE = "\u200b"
CLAUSES = ("Note that", "As we said above,", "In most cases,", "This means that", "It is known that", "In other words,")
LINES = ("# Example\n", "Example:\n\n", "# Here is another one.\n\n", '"""As before."""\n\n', ">>> 1\n1\n\n", "---\n")


def perturb(
    question: Question, perturbation: Perturbation, rng: random.Random, strength: float
) -> tuple[Question, str] | None:
    """The changed question and the variant that was drawn among those that change it; None where none does, or where
    choices would become equal.
    """
    pieces = split(question)
    variants = list(VARIANTS[perturbation].items())
    rng.shuffle(variants)
    for name, variant in variants:
        changed = variant(pieces, rng, strength)
        if changed.texts != question.texts and len(set(changed.choices)) == len(changed.choices):
            return changed, name
    return None


def _at(places: Sequence[int], rng: random.Random, strength: float) -> list[int]:
    return sorted(rng.sample(places, min(len(places), max(1, round(strength * len(places))))))


def _words(least_letters: int, change: Callable[[str, random.Random], str]) -> Variant:
    """Changes words of at least `least_letters` letters."""

    def variant(pieces: Pieces, rng: random.Random, strength: float) -> Question:
        words = (*pieces.head, *pieces.tail)
        places = _at(pieces.words(least_letters), rng, strength)
        return pieces.changed({place: change(words[place], rng) for place in places}).build()

    return variant


def _inside(word: str, rng: random.Random) -> int:
    return rng.randrange(1, len(word) - ENDING_LETTERS)


def _drop(word: str, rng: random.Random) -> str:
    i = _inside(word, rng)
    return word[:i] + word[i + 1 :]


def _double(word: str, rng: random.Random) -> str:
    i = _inside(word, rng)
    return word[:i] + word[i] + word[i:]


def _exchange(word: str, rng: random.Random) -> str:
    places = [i for i in range(1, len(word) - ENDING_LETTERS - 1) if word[i] != word[i + 1]]
    if not places:
        return _double(word, rng)
    i = rng.choice(places)
    return word[:i] + word[i + 1] + word[i] + word[i + 2 :]


def _neighbour(word: str, rng: random.Random) -> str:
    i = _inside(word, rng)
    row = next(row for row in KEYBOARD_ROWS if word[i].lower() in row)
    place = row.index(word[i].lower())
    other = rng.choice(row[max(0, place - 1) : place] + row[place + 1 : place + 2])
    return word[:i] + (other.upper() if word[i].isupper() else other) + word[i + 1 :]


def _invisible(word: str, rng: random.Random) -> str:
    i = rng.randrange(1, len(word))
    return word[:i] + ZERO_WIDTH_SPACE + word[i:]


def _case(change: Callable[[str], str]) -> Variant:
    def variant(pieces: Pieces, rng: random.Random, strength: float) -> Question:
        whole = pieces.question
        return replace(whole, context=change(whole.context), choices=tuple(map(change, whole.choices)))

    return variant


def _gaps(space: str) -> Variant:
    def variant(pieces: Pieces, rng: random.Random, strength: float) -> Question:
        return pieces.changed(dict.fromkeys(_at(pieces.gaps(), rng, strength), space)).build()

    return variant


def _empty_lines(pieces: Pieces, rng: random.Random, strength: float) -> Question:
    return pieces.after("\n" * rng.randint(1, 3)).build()


def _introduced(i: int) -> Variant:
    """By clause i if it is a sentence, else by line i."""

    def variant(pieces: Pieces, rng: random.Random, strength: float) -> Question:
        text = pieces.question.texts[0].rstrip()
        first = pieces.head[0] if pieces.head else ""
        if not (first.istitle() and first.isalpha() and text.endswith((".", "?"))):
            return pieces.after(LINES[i]).build()
        return pieces.changed({0: first.lower()}).after(f"{CLAUSES[i]} ").build()

    return variant


VARIANTS: dict[Perturbation, dict[str, Variant]] = {
    "typos": {
        "drop": _words(LEAST_TYPO_LETTERS, _drop),
        "double": _words(LEAST_TYPO_LETTERS, _double),
        "exchange": _words(LEAST_TYPO_LETTERS, _exchange),
        "neighbour": _words(LEAST_TYPO_LETTERS, _neighbour),
    },
    "case": {
        "upper": _case(str.upper),
        "lower": _case(str.lower),
        "title": _case(str.title),
        "turned": _case(str.swapcase),
    },
    "spacing": {"double": _gaps("  "), "tab": _gaps("\t"), "empty_lines": _empty_lines},
    "look_alikes": {
        "cyrillic": _words(1, lambda word, rng: word.translate(CYRILLIC)),
        "full_width": _words(1, lambda word, rng: word.translate(FULL_WIDTH)),
        "invisible": _words(2, _invisible),
    },
    "paraphrase": {f"introduction_{i}": _introduced(i) for i in range(len(LINES))},
}
