"""The words that patterns are filled with: names of code, nouns and verbs of its documentation, made-up words."""

import random


def _listed(text: str) -> tuple[str, ...]:
    return tuple(text.split())


NAMES = _listed("x y n a b value name data result items key index node line path size text count other args")
FUNCTIONS = _listed("f len list get int open max sum load read find parse update append write range sorted type")
TYPES = _listed("int str list Node Error Base object Path Token ValueError KeyError TypeError")
NOUNS = _listed(
    "function method value argument object module file user parameter element test error line name option "
    "list array string key node table column row index axis result field type number"
)
ENDINGS = {
    ("is", "are"): "used.",
    ("has", "have"): "been changed.",
    ("was", "were"): "found.",
    ("does not", "do not"): "exist.",
    ("returns", "return"): "a list.",
    ("takes", "take"): "an integer.",
    ("contains", "contain"): "the text.",
    ("uses", "use"): "the default.",
    ("isn't", "aren't"): "needed.",
    ("wasn't", "weren't"): "given.",
    ("hasn't", "haven't"): "been set.",
    ("doesn't", "don't"): "matter.",
    ("raises", "raise"): "an error.",
    ("depends", "depend"): "on the input.",
    ("holds", "hold"): "one value.",
    ("needs", "need"): "a name.",
    ("gives", "give"): "the same result.",
    ("starts", "start"): "with a letter.",
    ("refers", "refer"): "to the same data.",
    ("makes", "make"): "a copy.",
    ("supports", "support"): "this.",
    ("points", "point"): "to a file.",
    ("means", "mean"): "the same.",
    ("looks", "look"): "like this.",
}
ONSETS = _listed("b d f g k l m n p r s t v z br dr fl gr kl pl st tr")
VOWELS, CODAS = _listed("a e i o u"), _listed("b d g k l m n p r s t x")


def plural(noun: str) -> str:
    """The plural of one of NOUNS."""
    return {"axis": "axes", "index": "indexes"}.get(noun, noun + "s")


def made_up(rng: random.Random, num: int, num_characters: int = 6) -> list[str]:
    """Different words of `num_characters` letters that can be spoken and mean nothing."""
    words: list[str] = []
    while len(words) < num:
        syllables = (rng.choice(part) for part in (ONSETS, VOWELS, CODAS, VOWELS, CODAS))
        word = "".join(syllables)[:num_characters]
        if len(word) == num_characters and word not in words:
            words.append(word)
    return words


def fill(pattern: str, rng: random.Random, **fixed: str) -> str:
    """`pattern` with names of code in its fields: n, m, a, b, c, d different ones, f a function, t a type."""
    names = dict(zip("nmabcd", rng.sample(NAMES, 6), strict=True))
    return pattern.format(**{**names, "f": rng.choice(FUNCTIONS), "t": rng.choice(TYPES), **fixed})


def filled_alike(patterns: tuple[str, ...], rng: random.Random) -> list[str]:
    """All `patterns` with the same names in the same fields."""
    state = rng.getstate()
    filled = []
    for pattern in patterns:
        rng.setstate(state)
        filled.append(fill(pattern, rng))
    return filled
