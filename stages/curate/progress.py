"""How far the reading is, seen from the shards that the tasks leave in the work directory: a part may take hours, and
on a cluster a task has no other way to tell."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from stages.curate.shard import finished_shards

INTERVAL_SECONDS = 1.0


@contextmanager
def watched(folder: Path, tell: Callable[[int], None], interval_seconds: float = INTERVAL_SECONDS) -> Iterator[None]:
    """While the block runs, tell how many shards there are in the folders of `folder` whenever there are more."""
    ended = threading.Event()
    settled: dict[str, int] = {}

    def watch() -> None:
        told = 0
        while not ended.wait(interval_seconds):
            count = _count(folder, settled)
            if count != told:
                tell(count)
                told = count

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _count(folder: Path, settled: dict[str, int]) -> int:
    """settled: part -> its number of shards, of parts that are done, which need no second look."""
    total = 0
    for part in folder.iterdir() if folder.is_dir() else ():
        if part.name not in settled:
            shards, done = finished_shards(part)
            if done:
                settled[part.name] = len(shards)
            else:
                total += len(shards)
    return total + sum(settled.values())
