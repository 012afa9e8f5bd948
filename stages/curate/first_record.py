"""A look at the beginning of a source's first file, for the message about a source that is read wrongly."""

import json
from pathlib import Path

from data.errors import InputError
from data.reading.compressed import open_stream
from data.reading.readers import expand
from stages.curate.source import Kind, Source

MOST_LINE_BYTES = 1 << 20
STARTS = {
    b"PAR1": "a Parquet file",
    b"\x1f\x8b": "compressed by gzip (its name should end in .gz)",
    b"\x28\xb5\x2f\xfd": "compressed by zstd (its name should end in .zst)",
    b"WARC/": "a web archive",
    b"ARROW1": "an Arrow file",
    b"PK\x03\x04": "a zip archive",
    b"[": "one JSON array, not a record a line",
}


def first_fields(source: Source) -> tuple[str, ...]:
    """The fields or columns of the first record; () where that cannot be told cheaply."""
    if source.kind not in (Kind.JSONL, Kind.PARQUET):
        return ()
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        path = _first_file(source)
        if source.kind is Kind.PARQUET:
            return tuple(pq.read_schema(path).names)
        with open_stream(path) as (stream, _):
            record = json.loads(stream.readline(MOST_LINE_BYTES))
        return tuple(record) if isinstance(record, dict) else ()
    except (OSError, ValueError, pa.ArrowException):  # this was only to help
        return ()


def other_format(source: Source) -> str:
    """What the first file seems to be, if that is another format than the source's; "" where it cannot be told."""
    if not source.path:
        return ""
    try:
        with open_stream(_first_file(source)) as (stream, _):
            start = stream.read(8)
    except (OSError, InputError):
        return ""
    return next((name for magic, name in STARTS.items() if start.startswith(magic)), "")


def _first_file(source: Source) -> Path:
    """Of those with something in them, if there are any."""
    paths = expand(source.path)
    return next((path for path in paths if path.stat().st_size), paths[0])
