"""One text that a model will be judged on, with whose it is: light, so that suites can name it without Arrow."""

from dataclasses import dataclass


@dataclass(frozen=True)
class JudgedItem:
    """task: what asks it. name: which of the task's items it is."""

    task: str
    name: str
    text: str
