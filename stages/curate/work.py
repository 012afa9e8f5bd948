"""Files of the work directory: each is there whole or not at all, so that a run goes on behind those that it finds.

Whatever is being written has a name that begins with a dot and that no other attempt uses; it is renamed once its bytes
are on the disk. The renaming itself may be lost with the machine's power: then the task is done again. Two attempts at
one task (a cluster node that was taken for lost) write the same bytes, so that the second finds its place taken and
goes.
"""

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc

from data.shards.mapped_file import open_arrow_file
from stages.files import fsync_directory, fsync_file


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """A folder to fill, which appears as `path` with all its files once the block ends without an error."""
    temporary = _temporary(path)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        for file in sorted(temporary.iterdir()):
            fsync_file(file)
        fsync_directory(temporary)
        try:
            os.rename(temporary, path)
        except OSError:
            if not path.is_dir():
                raise
            shutil.rmtree(temporary)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


@contextmanager
def whole_file(path: Path, *, written_anew: bool = False) -> Iterator[Path]:
    """The name of a file to write, which appears as `path` once the block ends without an error. written_anew: by each
    attempt, so that its bytes need not outlast the machine's power."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary(path)
    try:
        yield temporary
        if not written_anew:
            fsync_file(temporary)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_arrow(path: Path, table: pa.Table | pa.RecordBatch) -> None:
    """An Arrow IPC file that can be mapped into memory; not yet whole under its name: see `whole_file`."""
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write(table)


def read_arrow(path: Path) -> pa.Table:
    """The columns of a file of `write_arrow`, mapped rather than read."""
    return open_arrow_file(path).read_all()


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}")
