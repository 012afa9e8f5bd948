"""Secrets that are planted in training text to find out what a model learns by heart (Carlini et al., The Secret
Sharer, 2019).

Secret i is a function of (seed, i) alone, so that whoever judges the model can make it again, and others like it that
were never planted. A canary's secret is one draw of many that are as likely: to a model that never read it, it is like
any other.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from data.reading.documents import Document

DOMAIN = "canary"
DEFINITION = 1  # raised when a canary of the same seed and number becomes another text
SECRET_DIGITS = 12


@dataclass(frozen=True, kw_only=True)
class Canary:
    """A text that ends in a secret of random digits."""

    prefix: str
    secret: str

    @property
    def text(self) -> str:
        return f"{self.prefix}{self.secret}\n"


@dataclass(frozen=True, kw_only=True)
class CanarySet:
    """Canaries 0 to `number` - 1 of `seed` were planted."""

    seed: int
    number: int


def canary(seed: int, index: int) -> Canary:
    """Canary `index` of `seed`."""
    rng = random.Random(f"canary/{seed}/{index}")
    return Canary(prefix=f"The number of canary {index} is ", secret=_secret(rng))


def alternatives(seed: int, index: int, number: int) -> tuple[str, ...]:
    """Secrets that canary `index` of `seed` might have had, distinct and none of them its own; a larger number
    appends.
    """
    taken = {canary(seed, index).secret}
    found: list[str] = []
    rng = random.Random(f"canary alternatives/{seed}/{index}")
    while len(found) < number:
        secret = _secret(rng)
        if secret not in taken:
            taken.add(secret)
            found.append(secret)
    return tuple(found)


def read_canaries(planted: CanarySet) -> Iterator[Document]:
    """The documents of a set, each a group of its own."""
    source = f"canaries:{planted.seed}"
    for index in range(planted.number):
        text = canary(planted.seed, index).text
        yield Document(f"{source}#{index}", text, DOMAIN, None, source)


def _secret(rng: random.Random) -> str:
    return "".join(rng.choice("0123456789") for _ in range(SECRET_DIGITS))
