"""Secrets that are planted in training text to find out what a model learns by heart (Carlini et al. 2019).

Secret i is a function of (seed, i) alone, so that whoever judges the model can make it again, and others like it that
were never planted.
"""

import random
from dataclasses import dataclass

DOMAIN = "canary"
SECRET_DIGITS = 12


@dataclass(frozen=True, kw_only=True)
class Canary:
    """A text that ends in a secret of random digits."""

    prefix: str
    secret: str


@dataclass(frozen=True, kw_only=True)
class CanarySet:
    """Canaries 0 to `number` - 1 of `seed` were planted."""

    seed: int
    number: int


def canary(seed: int, index: int) -> Canary:
    """Canary `index` of `seed`."""
    rng = random.Random(f"canary/{seed}/{index}")
    return Canary(
        prefix=f"The number of canary {index} is ",
        secret="".join(rng.choice("0123456789") for _ in range(SECRET_DIGITS)),
    )
