"""An item of a multiple-choice task, and how items are made so that a fixed preference earns nothing."""

import json
import random
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Item:
    """Whole texts to choose from. The likelihood of a whole text does not depend on where a tokenizer cuts it.

    `cluster` names the pattern or document that an item was made from: items of one cluster are not independent, and
    errors are computed over clusters.
    """

    choices: tuple[str, ...]
    gold: int
    cluster: str

    def record(self) -> dict[str, Any]:
        """`context` is empty. As a column it costs lm-eval a look-up, as a template a compilation for each item."""
        return {"context": "", "choices": list(self.choices), "gold": self.gold, "cluster": self.cluster}


@dataclass(frozen=True, kw_only=True)
class Frame:
    """A text with a gap, the answer that belongs into it, and the cluster of its item."""

    before: str
    answer: str
    cluster: str
    after: str = ""


def exchanged(frames: Sequence[Frame], rng: random.Random) -> tuple[Item, ...]:
    """An item for each frame, to be filled with the answers of all of them, its own being the right one.

    A wrong answer of one item is right in another of the same group, so a model that prefers an answer whatever stands
    around it (a frequent word, a short one, one of few tokens, the first) has exactly one of the group's items right.
    """
    answers = [frame.answer for frame in frames]
    assert len(set(answers)) == len(answers), answers
    rng.shuffle(answers)
    return tuple(
        Item(
            choices=tuple(frame.before + answer + frame.after for answer in answers),
            gold=answers.index(frame.answer),
            cluster=frame.cluster,
        )
        for frame in frames
    )


def exchanged_in_pairs(frames: Iterable[tuple[Hashable, Frame]], rng: random.Random) -> Iterator[Item]:
    """`exchanged` of two frames at a time, whose kinds are equal and whose answers are not: each waits for the next
    such one.
    """
    waiting: dict[Hashable, Frame] = {}
    for kind, frame in frames:
        other = waiting.pop(kind, None)
        if other is None or other.answer == frame.answer:
            waiting[kind] = frame
        else:
            yield from exchanged([other, frame], rng)


def write_items(path: Path, items: Iterable[Item]) -> None:
    """One JSON object a line, ASCII only, so that no reader can find a line boundary inside a text."""
    with open(path, "w", encoding="ascii") as file:
        for item in items:
            file.write(json.dumps(item.record()) + "\n")
