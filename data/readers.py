"""Streaming readers of files and Hugging Face datasets. Each yields a `Document` or a `Rejected` for every record, in
the order of the source."""

import glob
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data.compressed import open_stream
from data.documents import INVALID_UTF8, MALFORMED_JSON, Document, Place, Rejected, admit, clean
from data.errors import InputError
from data.filehash import FileHashes

PROGRESS_RECORDS = 256
BYTE_ORDER_MARK = b"\xef\xbb\xbf"

Record = Document | Rejected
Progress = Callable[[float], None]


@dataclass(frozen=True, kw_only=True)
class Fields:
    """Which fields of a record hold what. Without a group each text is its own group: equal texts share it, under
    whatever name they stand."""

    text: str = "text"
    id: str | None = None
    group: str | None = None


def expand(pattern: str) -> list[Path]:
    """The files that a path or a glob names, in order. Raises InputError if there are none."""
    written = Path(pattern).expanduser()
    if written.is_file():
        return [written]
    if written.is_dir():
        raise InputError(f"{pattern}: this is a folder; name its files, such as {pattern.rstrip('/')}/*.jsonl")
    found = sorted(path for path in map(Path, glob.glob(str(written), recursive=True)) if path.is_file())
    if not found:
        wrong = "no file matches this pattern" if glob.has_magic(pattern) else "there is no such file"
        raise InputError(f"{pattern}: {wrong} (looked from {Path.cwd()}); correct the source's path")
    return found


def read_jsonl(path: Path, fields: Fields, domain: str, repairs: Counter[str], progress: Progress) -> Iterator[Record]:
    """One JSON object a line (.jsonl, also .gz and .zst). Lines end at \\n only: U+2028 and its like stay inside a
    text."""
    with open_stream(path) as (stream, raw):
        for number, line in enumerate(stream, start=1):
            if number % PROGRESS_RECORDS == 0:
                progress(raw.tell())
            if number == 1:
                line = line.removeprefix(BYTE_ORDER_MARK)
            if line.strip():
                yield _from_json(line, fields, Place(f"{path}#{number}", domain, str(path)), repairs)


def read_text(path: Path, domain: str, repairs: Counter[str]) -> Record:
    """A whole file (also .gz and .zst) as one document, which is its own group."""
    with open_stream(path) as (stream, _):
        content = stream.read().removeprefix(BYTE_ORDER_MARK)
    return admit(content, Place(str(path), domain, str(path)), group=str(path), repairs=repairs)


def read_parquet(
    path: Path, fields: Fields, domain: str, repairs: Counter[str], progress: Progress
) -> Iterator[Record]:
    """A Parquet file with a column of texts. `progress` is told bytes of it, by the share of rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    wanted = [name for name in (fields.text, fields.id, fields.group) if name is not None]
    try:
        with pq.ParquetFile(path) as file:
            _require_columns(path, file.schema_arrow, fields, wanted)
            row, size = 0, path.stat().st_size
            for batch in file.iter_batches(batch_size=1024, columns=wanted):
                # As bytes, since Arrow does not check that what a file calls a string is UTF-8.
                texts = batch.column(fields.text).cast(pa.large_binary()).to_pylist()
                others = {name: batch.column(name).to_pylist() for name in wanted if name != fields.text}
                for i, text in enumerate(texts):
                    record = {name: values[i] for name, values in others.items()} | {fields.text: text}
                    yield _from_record(record, fields, Place(f"{path}#{row + i}", domain, str(path)), repairs)
                row += len(texts)
                progress(size * row / max(1, file.metadata.num_rows))
    except (pa.ArrowException, OSError) as error:
        raise InputError(
            f"{path}: not a readable Parquet file ({error}); fetch or write it again, then run the same command"
        ) from None


def read_huggingface(
    name: str,
    *,
    subset: str | None,
    split: str,
    revision: str | None,
    fields: Fields,
    domain: str,
    repairs: Counter[str],
    progress: Progress,
) -> Iterator[Record]:
    """A dataset by its name on the hub, or a local folder of data files or one written by `save_to_disk`. `progress` is
    told rows.

    It is streamed, so nothing is copied into the library's cache; code that comes with a dataset is never run.
    """
    import datasets

    try:
        if (Path(name) / "state.json").exists():
            rows = datasets.load_from_disk(name)
        elif (Path(name) / "dataset_dict.json").exists():
            rows = datasets.load_from_disk(name)[split]
        else:
            rows = datasets.load_dataset(name, subset, split=split, revision=revision, streaming=True)
        source = f"huggingface:{name}"
        for number, record in enumerate(rows):
            if number % PROGRESS_RECORDS == 0:
                progress(number)
            yield _from_record(record, fields, Place(f"{source}#{number}", domain, source), repairs)
    except (
        OSError,
        ValueError,
        KeyError,
        datasets.exceptions.DatasetsError,
        datasets.exceptions.DatasetGenerationError,
    ) as error:
        raise InputError(
            f"dataset {name!r} (subset {subset}, split {split!r}) cannot be read: {error}; "
            "correct the name, or download it first"
        ) from None


def huggingface_identity(name: str, revision: str | None, hashes: FileHashes) -> dict[str, object]:
    """What decides the content of a dataset: the digests of a local folder's files, or the commit on the hub (looked up
    unless `revision` is one)."""
    folder = Path(name)
    if folder.is_dir():
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        return {"files": {path.relative_to(folder).as_posix(): list(hashes.of(path)) for path in files}}
    if revision is not None and re.fullmatch(r"[0-9a-f]{40}", revision):
        return {"commit": revision}
    import huggingface_hub

    try:
        return {"commit": huggingface_hub.HfApi().dataset_info(name, revision=revision).sha}
    except (OSError, ValueError, huggingface_hub.errors.HTTPError) as error:
        raise InputError(
            f"dataset {name!r} is no folder here and cannot be looked up ({type(error).__name__}); "
            "correct the name, or set `revision` to a commit"
        ) from None


def _from_json(line: bytes, fields: Fields, place: Place, repairs: Counter[str]) -> Record:
    try:
        record = json.loads(line.decode())
    except UnicodeDecodeError as error:
        return Rejected(place.id, place.domain, INVALID_UTF8, f"byte {error.start}", len(line))
    except (ValueError, RecursionError) as error:
        return Rejected(place.id, place.domain, MALFORMED_JSON, str(error), len(line))
    if not isinstance(record, dict):
        return Rejected(place.id, place.domain, MALFORMED_JSON, f"a {type(record).__name__}, not an object", len(line))
    return _from_record(record, fields, place, repairs, num_bytes=len(line))


def _from_record(
    record: dict[str, Any], fields: Fields, place: Place, repairs: Counter[str], num_bytes: int = 0
) -> Record:
    value = record.get(fields.text)
    named = _named(record, fields.id)
    place = Place(named, place.domain, place.source) if named else place
    group = _named(record, fields.group)
    if group is None and isinstance(value, str | bytes):
        content = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
        group = "text:" + hashlib.sha256(content).hexdigest()[:32]
    return admit(value, place, group=group or place.id, repairs=repairs, num_bytes=num_bytes)


def _named(record: dict[str, Any], field: str | None) -> str | None:
    """A field that names something: a string or a whole number; else None, and the record's place serves as its
    name."""
    value = record.get(field) if field else None
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return clean(value, Counter()) or None if isinstance(value, str) else None


def _require_columns(path: Path, schema: Any, fields: Fields, wanted: list[str]) -> None:
    import pyarrow.types as types

    for name in wanted:
        if name not in schema.names:
            raise InputError(
                f"{path}: there is no column {name!r}; it has {', '.join(schema.names)}; set the source's field names"
            )
    kind = schema.field(fields.text).type
    value = kind.value_type if types.is_dictionary(kind) else kind
    if not any(
        test(value)
        for test in (
            types.is_string,
            types.is_large_string,
            types.is_string_view,
            types.is_binary,
            types.is_large_binary,
        )
    ):
        raise InputError(f"{path}: column {fields.text!r} holds {kind}, not text; set the source's text_field")
