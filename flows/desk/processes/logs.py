"""The logs of a desk stay bounded, however long it stands, and also on a disk that is full."""

import os
import shutil
from contextlib import suppress
from pathlib import Path

LOG_BYTES = 20 << 20
KEPT_LOGS = 3


def rotate(folder: Path, most_bytes: int = LOG_BYTES, kept: int = KEPT_LOGS) -> None:
    """Move what logs have grown beyond `most_bytes` to NAME.1, and so on up to `kept`. The processes that append to a
    log keep their file: it is copied and cut; a line that is written in between may be lost, and all of it where there
    is no room for the copy."""
    for log in folder.glob("*.log"):
        if log.stat().st_size <= most_bytes:
            continue
        copy = log.with_name(f"{log.name}.new")
        try:
            shutil.copyfile(log, copy)
        except OSError:
            copy.unlink(missing_ok=True)
        else:
            for number in range(kept - 1, 0, -1):
                with suppress(FileNotFoundError):
                    os.replace(f"{log}.{number}", f"{log}.{number + 1}")
            os.replace(copy, f"{log}.1")
        os.truncate(log, 0)
