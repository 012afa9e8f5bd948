"""The prompts that models are asked to continue or to answer, by task and group: prompts.toml."""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eval.suites import TaskDefinition

FILE = Path(__file__).parent / "prompts.toml"


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """name: of its cluster."""

    name: str
    group: str
    text: str


@cache
def prompts(source: str) -> tuple[Prompt, ...]:
    """All prompts of a source of tasks, one of each group after another, so that a limit leaves no group out."""
    groups: dict[str, list[str]] = tomllib.loads(FILE.read_text(encoding="utf-8"))[source]
    longest = max(map(len, groups.values()))
    return tuple(
        Prompt(name=f"{group}/{number}", group=group, text=texts[number])
        for number in range(longest)
        for group, texts in groups.items()
        if number < len(texts)
    )


def fixed_texts(task: "TaskDefinition") -> Iterator[str]:
    """What training text must not hold."""
    for prompt in prompts(task.source):
        yield prompt.text
