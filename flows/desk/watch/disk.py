"""When a file system is nearly full, and when it is not any more. Each is told once; between the two lies a band in
which nothing is told, so that a run which writes and removes checkpoints does not tell it all night."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

RECOVERED_AT = 1.25  # times the least


@dataclass(frozen=True, kw_only=True)
class Space:
    """A file system. path: of ours on it. device: names it while the machine runs."""

    path: str
    device: int
    free_bytes: int
    total_bytes: int

    @property
    def free_share(self) -> float:
        return self.free_bytes / self.total_bytes if self.total_bytes else 1.0


@dataclass(frozen=True, kw_only=True)
class Change:
    """A file system became nearly full, or has room again."""

    space: Space
    low: bool

    @property
    def text(self) -> str:
        """A sentence."""
        space = self.space
        free = f"{space.free_bytes / 1e9:.1f} GB of {space.total_bytes / 1e9:.0f} GB are free ({space.free_share:.1%})"
        return f"{space.path}: {free}" + ("; a stage that cannot write stops" if self.low else "")


class Disks:
    """Looks again and again. low: paths that were told to be nearly full before."""

    def __init__(self, least_share: float, least_bytes: float, low: Sequence[str] = ()) -> None:
        self._least_share, self._least_bytes = least_share, least_bytes
        self._low = set(low)

    def look(self, spaces: Sequence[Space]) -> list[Change]:
        """What to tell now."""
        changes = []
        for space in spaces:
            was_low = space.path in self._low
            margin = RECOVERED_AT if was_low else 1.0
            low = space.free_share < margin * self._least_share or space.free_bytes < margin * self._least_bytes
            if low != was_low:
                changes.append(Change(space=space, low=low))
                (self._low.add if low else self._low.remove)(space.path)
        return changes


def spaces(paths: Sequence[Path]) -> list[Space]:
    """The file systems on which `paths` are, each once; of a path that is not there yet, that of its nearest parent."""
    found: dict[int, Space] = {}
    for path in paths:
        there = next(place for place in (path, *path.parents) if place.exists())
        device, place = os.stat(there).st_dev, os.statvfs(there)
        space = Space(
            path=str(path),
            device=device,
            free_bytes=place.f_bavail * place.f_frsize,
            total_bytes=place.f_blocks * place.f_frsize,
        )
        found.setdefault(device, space)
    return list(found.values())
