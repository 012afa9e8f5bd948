"""Reading plain, gzip and Zstandard files as one stream of bytes, where a file that is cut off is an error and never a
shorter file."""

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from data.errors import InputError

CHUNK_BYTES = 64 << 10
PIECE_BYTES = 4 << 10  # decompressed at a time: 4 bytes of Zstandard can stand for 128 KiB
SUFFIXES = (".gz", ".zst")


def is_compressed(path: Path) -> bool:
    """Whether `open_stream` decompresses the file, by its name."""
    return path.suffix in SUFFIXES


class _ZstandardStream(io.RawIOBase):
    """All frames of a .zst file, one after another. The library's own reader takes a cut-off frame for the end of the
    file."""

    def __init__(self, raw: BinaryIO) -> None:
        import zstandard

        self._raw = raw
        self._decompressor = zstandard.ZstdDecompressor()
        self._frame = self._decompressor.decompressobj()
        self._begun = False
        self._left = b""
        self._out = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        while not self._out:
            data = self._left or self._raw.read(PIECE_BYTES)
            self._left = b""
            if not data:
                if self._begun or self._raw.tell() == 0:
                    raise EOFError("the file ends inside a frame")
                return 0
            self._begun = True
            self._out = memoryview(self._frame.decompress(data))
            if self._frame.eof:
                self._left = self._frame.unused_data
                self._frame = self._decompressor.decompressobj()
                self._begun = False
        count = min(len(target), len(self._out))
        target[:count] = self._out[:count]
        self._out = self._out[count:]
        return count


@contextmanager
def open_stream(path: Path) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """The decompressed stream of `path` (by suffix: .gz, .zst, else plain), and the raw file, whose position tells how
    far reading has come.

    Raises InputError, also out of the body of the `with`, for a file that is missing, cut off or damaged.
    """
    import zstandard

    try:
        with open(path, "rb") as raw:
            if path.suffix == ".gz":
                if raw.seek(0, io.SEEK_END) == 0:
                    raise EOFError("the file is empty, which no .gz is")
                raw.seek(0)
                with gzip.open(raw, "rb") as stream:
                    yield cast(BinaryIO, stream), raw
            elif path.suffix == ".zst":
                yield cast(BinaryIO, io.BufferedReader(_ZstandardStream(raw), CHUNK_BYTES)), raw
            else:
                yield raw, raw
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file") from None
    except (IsADirectoryError, PermissionError) as error:
        raise InputError(f"{path}: {error.strerror}; a source is a readable file") from None
    except (EOFError, zlib.error, gzip.BadGzipFile, zstandard.ZstdError) as error:
        raise InputError(
            f"{path}: the file is cut off or damaged ({error}); fetch or write it again, then run the same command"
        ) from None
