"""A small disk, and a full one. Needs root."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BYTES = 24 << 20
BALLAST = "ballast"


@contextmanager
def small(folder: Path) -> Iterator[None]:
    """A file system of its own in `folder`, which is empty; what is there at the end stays."""
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={BYTES}", "chaos", str(folder)], check=True, capture_output=True
    )
    try:
        yield
    finally:
        stays = folder.with_name(f"{folder.name}-stays")
        shutil.copytree(folder, stays, symlinks=True)
        subprocess.run(["umount", "--lazy", str(folder)], check=True, capture_output=True)
        folder.rmdir()
        stays.rename(folder)


@contextmanager
def full(folder: Path) -> Iterator[None]:
    """No byte is free on the disk of `folder`, save what is given free meanwhile."""
    ballast = folder / BALLAST
    try:
        with open(ballast, "wb", buffering=0) as file:
            for size in (1 << 16, 1 << 12):
                try:
                    while file.write(bytes(size)) == size:
                        pass
                except OSError:
                    continue
        yield
    finally:
        ballast.unlink()
