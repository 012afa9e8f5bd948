"""Readers that give one `Document` or `Rejected` for each record: text files and Hugging Face datasets.

Those that give columns are in data/reading/jsonl.py and data/reading/parquet.py.
"""

import glob
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from data.errors import InputError
from data.reading.compressed import open_stream
from data.reading.documents import TOO_LONG, Document, Place, Rejected, admit
from data.reading.filehash import FileHashes
from data.reading.records import Fields, from_record

MOST_FILE_BYTES = 1 << 30
BYTE_ORDER_MARK = b"\xef\xbb\xbf"

Record = Document | Rejected


def expand(pattern: str, suggestion: str = "*") -> list[Path]:
    """The files that a path or a glob names, in order. Raises InputError if there are none; for a folder it suggests
    such a pattern in it."""
    written = Path(pattern).expanduser()
    if written.is_file():
        return [written]
    if written.is_dir():
        raise InputError(f"{pattern}: this is a folder; name its files, such as {pattern.rstrip('/')}/{suggestion}")
    found = sorted(path for path in map(Path, glob.glob(str(written), recursive=True)) if path.is_file())
    if not found:
        wrong = "no file matches this pattern" if glob.has_magic(pattern) else "there is no such file"
        raise InputError(f"{pattern}: {wrong} (looked from {Path.cwd()}); correct the source's path")
    return found


def read_text(path: Path, name: str, domain: str, repairs: Counter[str]) -> Record:
    """A whole file (also .gz and .zst) as one document, which is its own group. name: what the file is called."""
    place = Place(name, domain, name)
    content = read_whole(path, place)
    return (
        content
        if isinstance(content, Rejected)
        else admit(content.removeprefix(BYTE_ORDER_MARK), place, group=name, repairs=repairs)
    )


def read_whole(path: Path, place: Place) -> bytes | Rejected:
    """The bytes of a file (also .gz and .zst), unless they are more than MOST_FILE_BYTES."""
    with open_stream(path) as (stream, _):
        content = stream.read(MOST_FILE_BYTES + 1)
    if len(content) <= MOST_FILE_BYTES:
        return content
    size = path.stat().st_size
    return Rejected(
        place.id, place.domain, place.source, TOO_LONG, f"more than {MOST_FILE_BYTES} bytes in a file", size
    )


def read_huggingface(
    name: str,
    *,
    root: Path,
    subset: str | None,
    split: str,
    revision: str | None,
    fields: Fields,
    domain: str,
    repairs: Counter[str],
) -> Iterator[Record]:
    """A dataset by its name on the hub, or a local folder (looked up from `root`) of data files or one written by
    `save_to_disk`.

    It is streamed, so nothing is copied into the library's cache; code that comes with a dataset is never run.
    """
    import datasets

    local = root / name
    place = str(local) if local.is_dir() else name
    try:
        if (local / "state.json").exists():
            rows = datasets.load_from_disk(place)
        elif (local / "dataset_dict.json").exists():
            rows = datasets.load_from_disk(place)[split]
        else:
            rows = datasets.load_dataset(place, subset, split=split, revision=revision, streaming=True)
        source = f"huggingface:{name}"
        for number, record in enumerate(rows):
            yield from_record(record, fields, Place(f"{source}#{number}", domain, source), repairs)
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
