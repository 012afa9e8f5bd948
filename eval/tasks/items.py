"""An item of a multiple-choice task: the record that a generator makes and that lm-eval reads from a JSONL file."""

import json
from collections.abc import Iterable
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
        return {"choices": list(self.choices), "gold": self.gold, "cluster": self.cluster}


def write_items(path: Path, items: Iterable[Item]) -> None:
    """One JSON object a line, ASCII only, so that no reader can find a line boundary inside a text."""
    with open(path, "w", encoding="ascii") as file:
        for item in items:
            file.write(json.dumps(item.record()) + "\n")
