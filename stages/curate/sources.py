"""From the sources of a recipe to record batches of documents, and what of the world outside the store they stand
for."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa

from data.documents import Document, Rejected
from data.errors import InputError
from data.filehash import FileHashes
from data.python_environment import PythonEnvironment
from data.quality_rules import DOMAIN_PRESETS, Preset
from data.readers import (
    Fields,
    Record,
    expand,
    huggingface_identity,
    read_huggingface,
    read_jsonl,
    read_parquet,
    read_text,
)
from data.tables import batches
from stages.curate.config import Kind, Source
from stages.journal import Journal


@dataclass
class Reading:
    """What was met while a source was read."""

    rejected: list[Rejected] = field(default_factory=list)
    repairs: Counter[str] = field(default_factory=Counter)
    documents: Counter[str] = field(default_factory=Counter)
    text_bytes: Counter[str] = field(default_factory=Counter)
    renamed: int = 0
    stopped_domains: set[str] = field(default_factory=set)


def identity(source: Source, hashes: FileHashes) -> dict[str, Any]:
    """What decides the text of a source, beyond its configuration: digests of files, the commit of a dataset, the
    versions of packages."""
    if source.kind is Kind.PYTHON_ENVIRONMENT:
        return _environment(source).identity()
    if source.kind is Kind.HUGGINGFACE:
        return huggingface_identity(source.name, source.revision, hashes)
    return {"files": {str(path): list(hashes.of(path)) for path in expand(source.path)}}


def preset(source: Source, domain: str) -> Preset:
    """The rules by which a source's documents of a domain are judged."""
    if source.quality is not Preset.AUTO:
        return source.quality
    return DOMAIN_PRESETS[domain] if source.kind is Kind.PYTHON_ENVIRONMENT else Preset.PROSE


def read(source: Source, taken_ids: set[str], reading: Reading, journal: Journal) -> Iterator[pa.RecordBatch]:
    """The documents of a source, each batch of one domain. Fills `reading`; adds to `taken_ids`. Raises InputError for
    a source without a single record."""
    num_records = 0

    def documents(records: Iterator[Record]) -> Iterator[Document]:
        nonlocal num_records
        for record in records:
            num_records += 1
            if source.max_bytes is not None and reading.text_bytes[record.domain] >= source.max_bytes:
                reading.stopped_domains.add(record.domain)
                return
            if isinstance(record, Rejected):
                reading.rejected.append(record)
                continue
            reading.documents[record.domain] += 1
            reading.text_bytes[record.domain] += len(record.text.encode())
            yield _with_own_id(record, taken_ids, reading)

    for records in _records_by_domain(source, reading, journal):
        yield from batches(documents(records))
    if not num_records:
        raise InputError(
            f"source {source.label} is empty: not a single record; take it out of curate.sources, or correct it"
        )


def _records_by_domain(source: Source, reading: Reading, journal: Journal) -> Iterator[Iterator[Record]]:
    fields = Fields(text=source.text_field, id=source.id_field, group=source.group_field)
    name = f"read {source.label}"
    if source.kind is Kind.PYTHON_ENVIRONMENT:
        environment = _environment(source)
        for domain in source.domains:
            step = f"{name} {domain}"
            yield environment.read(domain, reading.repairs, partial(journal.progress, step, unit="files"))
    elif source.kind is Kind.HUGGINGFACE:
        yield _dataset_records(source, fields, reading, journal, name)
    else:
        yield _file_records(source, fields, reading, journal, name)


def _dataset_records(source: Source, fields: Fields, reading: Reading, journal: Journal, name: str) -> Iterator[Record]:
    """How many rows there are shows at the end only."""
    num_rows = 0
    for record in read_huggingface(
        source.name,
        subset=source.subset,
        split=source.split,
        revision=source.revision,
        fields=fields,
        domain=source.domain,
        repairs=reading.repairs,
        progress=lambda rows: journal.progress(name, int(rows), int(rows) + 1, unit="records"),
    ):
        num_rows += 1
        yield record
    journal.progress(name, num_rows, num_rows, unit="records")


def _file_records(source: Source, fields: Fields, reading: Reading, journal: Journal, name: str) -> Iterator[Record]:
    paths = expand(source.path)
    sizes = [path.stat().st_size for path in paths]
    before = 0

    def report(position: float) -> None:
        journal.progress(name, before + int(position), sum(sizes), unit="bytes")

    for path, size in zip(paths, sizes, strict=True):
        if source.kind is Kind.JSONL:
            yield from read_jsonl(path, fields, source.domain, reading.repairs, report)
        elif source.kind is Kind.PARQUET:
            yield from read_parquet(path, fields, source.domain, reading.repairs, report)
        else:
            yield read_text(path, source.domain, reading.repairs)
        before += size
        journal.progress(name, before, sum(sizes), unit="bytes")


def _environment(source: Source) -> PythonEnvironment:
    return PythonEnvironment(
        domains=source.domains, packages=source.packages, package_source_bytes=source.package_source_bytes
    )


def _with_own_id(document: Document, taken: set[str], reading: Reading) -> Document:
    """Ids are unique in a corpus: one that is taken gets a number."""
    name, number = document.id, 1
    while name in taken:
        number += 1
        name = f"{document.id}~{number}"
    taken.add(name)
    if name == document.id:
        return document
    reading.renamed += 1
    return Document(name, document.text, document.domain, document.group, document.source)


def as_facts(source: Source, reading: Reading) -> dict[str, Any]:
    """What a source gave, as JSON."""
    rejected: dict[str, int] = defaultdict(int)
    for record in reading.rejected:
        rejected[record.reason] += 1
    return {
        "kind": source.kind.value,
        "source": source.path or source.name or source.kind.value,
        "documents": dict(sorted(reading.documents.items())),
        "bytes": dict(sorted(reading.text_bytes.items())),
        "rejected": dict(sorted(rejected.items())),
        "repaired": dict(sorted(reading.repairs.items())),
        "renamed_ids": reading.renamed,
        "stopped_at_max_bytes": sorted(reading.stopped_domains),
    }
