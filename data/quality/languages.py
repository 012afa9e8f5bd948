"""Which languages the quality rules cover, and the bounds that replace a preset's for some of them.

The bounds follow from texts of ten sentences, and of all sentences, in each of the languages below. What English has at
5 characters a word and 86 % of units with a letter is between 3.1 and 8.0 characters and between 76 % and 96 % there:
longer words stand between more marks. Where every letter counts as a word, repeated runs of a few of them are grammar
(34 % of 24,000 characters of Thai lie in repeated 5-grams, 11 % in repeated 10-grams; 9 % and 0.5 % of Japanese).
Rules for English alone (its stop words, and the sentences of C4) say nothing about other languages.
"""

import math
from collections.abc import Mapping

ENGLISH = "en"
NOT_ENGLISH = {"least share of units with a letter": 0.65}
LONG_WORDS = {**NOT_ENGLISH, "most mean word length": 14.0}
SHORT_WORDS = {**NOT_ENGLISH, "least mean word length": 2.0}
SPACELESS = {
    **NOT_ENGLISH,
    "least mean word length": 0.0,
    "most share of repeated 10-grams": 0.3,
    **{f"most share of repeated {n}-grams": math.inf for n in (5, 6, 7, 8, 9)},
}
WITHOUT_STOPS = {**SPACELESS, "least share of lines ending in punctuation": 0.0}
OTHER_SCRIPT = {**LONG_WORDS, **SHORT_WORDS}

SPACELESS_LANGUAGES = frozenset({"ja", "zh", "yue", "wuu", "th", "lo", "km", "my"})
_BOUNDS_OF = {
    "af ar as be bg bn bs ca cs cy da de el eo es fa fr ga gl gu he hi hr id is it la lg lv mk mn mr ms nb nl nn no pa "
    "pl pt ro ru sk sl so sq sr st sv sw tl tn ts uk ur yo": NOT_ENGLISH,
    "az et eu fi hu hy ka kk kn lt ml sn ta te tr xh zu": LONG_WORDS,
    "ko mi vi": SHORT_WORDS,
    "ja zh yue wuu km my": SPACELESS,
    "th lo": WITHOUT_STOPS,
}
LANGUAGE_BOUNDS: Mapping[str, Mapping[str, float]] = {
    ENGLISH: {},
    **{language: bounds for languages, bounds in _BOUNDS_OF.items() for language in languages.split()},
}
