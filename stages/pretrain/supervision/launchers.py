"""A launcher for each replica group, so that the loss of one is the loss of one group."""

import select
from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from stages.pretrain.supervision.groups import Group, GroupEnd, Launcher, Running


class Launchers:
    """Several of them, used as one is. Groups are numbered from 0."""

    def __init__(self, launchers: Sequence[Launcher]) -> None:
        """launchers: that of each group."""
        self._launchers = list(launchers)

    @property
    def running(self) -> dict[int, Running]:
        """Groups whose ranks have not all ended, by number."""
        return {number: running for launcher in self._launchers for number, running in launcher.running.items()}

    def each(self) -> Sequence[Launcher]:
        return self._launchers

    def start(self, group: Group) -> None:
        self._launchers[group.number].start(group)

    def kill(self, number: int) -> None:
        self._launchers[number].kill(number)

    def dump(self, number: int) -> None:
        self._launchers[number].dump(number)

    def poll(self) -> list[GroupEnd]:
        return [end for launcher in self._launchers for end in launcher.poll()]

    def wait(self, seconds: float) -> None:
        """Until one of them has something to say, so long at most."""
        outputs = [launcher.output for launcher in self._launchers if launcher.is_alive]
        if outputs:
            select.select(outputs, [], [], seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with ExitStack() as stack:
            for launcher in self._launchers:
                stack.callback(launcher.close)
