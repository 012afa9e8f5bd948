"""What one task of curation reads: parts of sources, and the batches of documents that a part gives.

The parts follow from the sources and the sizes of their files. The batches of all parts, one part after another, hold
the documents of a sequential read in its order; every record is in exactly one batch or set aside in exactly one.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import pyarrow as pa

from data.canaries import CanarySet, read_canaries
from data.errors import InputError
from data.reading.compressed import is_compressed
from data.reading.documents import Document, Rejected
from data.reading.jsonl import read_jsonl
from data.reading.parquet import read_parquet, row_group_bytes
from data.reading.pieces import BATCH_BYTES, Piece, batches, collect, until
from data.reading.readers import expand, read_huggingface, read_text
from data.reading.records import Fields
from data.reading.warc import read_warc
from data.reading.web import read_page
from stages.curate.source import PATTERNS, Kind, Source
from stages.curate.sources import environment

PART_BYTES = 15 << 20  # about a shard, so that the last tasks of a pass are short


@dataclass(frozen=True, kw_only=True)
class Span:
    """A file, or of a Parquet file the row groups from `begin` to `end`, of a plain .jsonl the lines that start in the
    bytes from `begin` to `end`."""

    path: Path
    begin: int = 0
    end: int | None = None
    num_bytes: int


@dataclass(frozen=True, kw_only=True)
class Part:
    """What one task reads of a source. source_number: the source's place in the recipe. number: the part's place among
    all parts. spans: what it reads of files, none for huggingface, python-environment and canaries. folder: from where
    relative paths are looked up, since another process may stand elsewhere."""

    source: Source
    source_number: int
    number: int
    spans: tuple[Span, ...] = ()
    folder: Path

    @property
    def num_bytes(self) -> int:
        """Of files (of Parquet uncompressed); 0: how much there is shows while reading."""
        return sum(span.num_bytes for span in self.spans)


@dataclass(frozen=True, kw_only=True)
class ReadBatch:
    """Documents of one domain (`data.reading.tables.SCHEMA`, 16 MB at most or one document; none where only set-aside
    records were left), and what else was met with them. done_bytes: how far the part has been read. stopped_domains: of
    which the source's max_bytes was reached."""

    batch: pa.RecordBatch
    rejected: tuple[Rejected, ...]
    repairs: Counter[str]
    done_bytes: int
    total_bytes: int
    stopped_domains: tuple[str, ...] = ()


def plan_parts(sources: tuple[Source, ...]) -> tuple[Part, ...]:
    """The parts of all sources, in the order of a sequential read. Raises InputError for a path that names nothing,
    for a file whose name is not UTF-8 and for a Parquet file that cannot be read."""
    parts: list[Part] = []
    folder = Path.cwd()
    for source_number, source in enumerate(sources):
        paths = expand(source.path, PATTERNS[source.kind]) if source.path else []
        _require_names(paths)
        spans = [span for path in paths for span in _spans(source.kind, path)]
        groups = _together(spans) if source.max_bytes is None and spans else [spans]
        for group in groups:
            part = Part(
                source=source, source_number=source_number, number=len(parts), spans=tuple(group), folder=folder
            )
            parts.append(part)
    return tuple(parts)


def _require_names(paths: Iterable[Path]) -> None:
    """A document is named after its file, and names are Unicode."""
    for path in paths:
        try:
            str(path).encode()
        except UnicodeEncodeError:
            raise InputError(f"{str(path)!r}: the file's name is not UTF-8; rename it") from None


def _spans(kind: Kind, path: Path) -> Iterator[Span]:
    if kind is Kind.PARQUET:
        sizes = row_group_bytes(path)
        begin = 0
        for end in range(1, len(sizes) + 1):
            if end == len(sizes) or sum(sizes[begin : end + 1]) > PART_BYTES:
                yield Span(path=path, begin=begin, end=end, num_bytes=sum(sizes[begin:end]))
                begin = end
        return
    size = path.stat().st_size
    if kind is Kind.JSONL and not is_compressed(path):
        for begin in range(0, size, PART_BYTES):
            end = min(begin + PART_BYTES, size)
            yield Span(path=path, begin=begin, end=end, num_bytes=end - begin)
    else:
        yield Span(path=path, num_bytes=size)


def _together(spans: Iterable[Span]) -> Iterator[list[Span]]:
    """Consecutive spans of PART_BYTES at most, or one."""
    group: list[Span] = []
    size = 0
    for span in spans:
        if group and size + span.num_bytes > PART_BYTES:
            yield group
            group, size = [], 0
        group.append(span)
        size += span.num_bytes
    yield group


def read_part(part: Part, skip_batches: int = 0) -> Iterator[ReadBatch]:
    """The batches of a part, without its first `skip_batches`. Raises InputError for what cannot be read."""
    streams = _by_domain(part)
    if part.source.max_bytes is not None:
        streams = (until(pieces, part.source.max_bytes) for pieces in streams)
    found = batches((piece for pieces in streams for piece in pieces), BATCH_BYTES)
    for piece in islice(found, skip_batches, None):
        yield ReadBatch(
            batch=piece.documents,
            rejected=piece.rejected,
            repairs=piece.repairs,
            done_bytes=piece.done_bytes,
            total_bytes=part.num_bytes,
            stopped_domains=(piece.domain,) if piece.stopped and piece.domain else (),
        )


def _by_domain(part: Part) -> Iterator[Iterator[Piece]]:
    """The pieces of each domain of a part, one domain after another."""
    source = part.source
    repairs: Counter[str] = Counter()
    if source.kind is Kind.PYTHON_ENVIRONMENT:
        python = environment(source)
        for domain in source.domains:
            yield collect(((record, 0) for record in python.read(domain, repairs, lambda *_: None)), repairs)
    elif source.kind is Kind.CANARIES:
        planted = read_canaries(CanarySet(seed=source.seed, number=source.number))
        yield collect(((record, 0) for record in planted), repairs)
    elif source.kind is Kind.HUGGINGFACE:
        records = read_huggingface(
            source.name,
            root=part.folder,
            subset=source.subset,
            split=source.split,
            revision=source.revision,
            fields=_fields(source),
            domain=source.domain,
            repairs=repairs,
        )
        yield collect(((record, 0) for record in records), repairs)
    elif source.kind in (Kind.JSONL, Kind.PARQUET):
        yield _columns(part)
    else:
        yield collect(_records(part, repairs), repairs)


def _fields(source: Source) -> Fields:
    return Fields(text=source.text_field, id=source.id_field, group=source.group_field)


def _columns(part: Part) -> Iterator[Piece]:
    read = read_jsonl if part.source.kind is Kind.JSONL else read_parquet
    before = 0
    for span in part.spans:
        path, name = part.folder / span.path, str(span.path)
        for piece in read(path, _fields(part.source), part.source.domain, name=name, begin=span.begin, end=span.end):
            yield replace(piece, done_bytes=before + piece.done_bytes)
        before += span.num_bytes


def _records(part: Part, repairs: Counter[str]) -> Iterator[tuple[Document | Rejected, int]]:
    """Each record, and how far the part has been read."""
    source, before = part.source, 0
    for span in part.spans:
        path, name = part.folder / span.path, str(span.path)
        if source.kind is Kind.WARC:
            for record, place in read_warc(path, name, _fields(source), source.domain, repairs):
                yield record, before + place
        else:
            read = read_text if source.kind is Kind.TEXT else read_page
            yield read(path, name, source.domain, repairs), before + span.num_bytes
        before += span.num_bytes
