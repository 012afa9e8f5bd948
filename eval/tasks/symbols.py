"""Items that no word's meaning helps with: what stood before comes again, or follows from it by rule.

copying      a made-up name that was defined a line before, against another such name
induction    the second pass through a list of pairs: what followed a made-up word the first time
arithmetic   the sum, difference or product of two small numbers, against that of two others
"""

import operator
import random

from eval.tasks.items import Frame, Item, exchanged
from eval.tasks.words import made_up

COPIES = (
    "def W():\n    return 1\n\nprint(",
    "def W(x):\n    return x\n\ny = ",
    "class W:\n    pass\n\nx = ",
    "import W\n\nx = ",
    "import W\n\n",
    "from W import x\n\nimport ",
    "W = 1\nprint(",
    "W = []\nfor x in ",
    "W = None\nif ",
    "W = f(x)\nreturn ",
    "for W in x:\n    print(",
    "with f(x) as W:\n    y = ",
    "def f(W):\n    return ",
    "def f(W):\n    assert ",
    "def f(self, W):\n    self.W = ",
    "def f(W=None):\n    if ",
    "if W is None:\n    ",
    "W, x = f()\nreturn ",
    "W : int\n    The value of ",
    "W : str\n    The name of ",
    "The W is a list. If the ",
    "Returns the W of x. The ",
    "Set the W to 1 and read the ",
    "except KeyError as W:\n    raise ",
)
LISTS = (
    "K = V\n",
    "K: V\n",
    "K V\n",
    "K -> V\n",
    "(K, V), ",
    "K, V; ",
    "'K': 'V', ",
    '"K": "V", ',
    "K=V, ",
    "* K: V\n",
    "- K (V)\n",
    "K | V\n",
)
LIST_PAIRS = (2, 3)  # in a list
OPERATIONS = {"+": ("plus", operator.add), "-": ("minus", operator.sub), "*": ("times", operator.mul)}
SUMS = (
    "A SIGN B = ",
    "ASIGNB=",
    ">>> A SIGN B\n",
    ">>> print(A SIGN B)\n",
    "assert A SIGN B == ",
    "x = A SIGN B  # ",
    "A WORD B is ",
    "The result of A SIGN B is ",
)


def copying(rng: random.Random) -> tuple[Item, ...]:
    """Two made-up names, each where it was defined, and where the other was."""
    pattern, words = rng.choice(COPIES), made_up(rng, 2)
    return exchanged([Frame(before=pattern.replace("W", word), answer=word, cluster=pattern) for word in words], rng)


def induction(rng: random.Random) -> tuple[Item, ...]:
    """A list of pairs and the first half of one of them again; and of another of them."""
    pair, num_pairs = rng.choice(LISTS), rng.choice(LIST_PAIRS)
    words = made_up(rng, 2 * num_pairs)
    keys, values = words[:num_pairs], words[num_pairs:]
    shown = "".join(pair.replace("K", k).replace("V", v) for k, v in zip(keys, values, strict=True))
    head = pair.partition("V")[0]
    asked = rng.sample(range(num_pairs), 2)
    return exchanged(
        [
            Frame(before=shown + head.replace("K", keys[i]), answer=values[i], cluster=f"{pair}{num_pairs}")
            for i in asked
        ],
        rng,
    )


def arithmetic(rng: random.Random) -> tuple[Item, ...]:
    """Two calculations in the same words, with each other's results, of as many digits."""
    pattern, sign = rng.choice(SUMS), rng.choice(list(OPERATIONS))
    word, calculate = OPERATIONS[sign]
    found: list[tuple[int, int, int]] = []
    while len(found) < 2:
        b, a = sorted((rng.randint(1, 9), rng.randint(1, 9)))
        result = calculate(a, b)
        if not found or (result != found[0][2] and len(str(result)) == len(str(found[0][2]))):
            found.append((a, b, result))
    return exchanged(
        [
            Frame(
                before=pattern.replace("A", str(a)).replace("B", str(b)).replace("SIGN", sign).replace("WORD", word),
                answer=str(result),
                after="\n",
                cluster=f"{sign} {pattern}",
            )
            for a, b, result in found
        ],
        rng,
    )
