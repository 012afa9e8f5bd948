"""What pieces of a source hold, for the tests of readers."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data.reading.documents import Rejected
from data.reading.jsonl import read_jsonl
from data.reading.parquet import read_parquet
from data.reading.pieces import Piece
from data.reading.records import Fields
from data.reading.tables import SCHEMA

LINE_BOUNDARIES = "one\u2028two\u2029three\x85four\x0bfive\x0csix\rseven"


@dataclass
class Held:
    """All that was read: documents as rows, in order."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    repairs: Counter[str] = field(default_factory=Counter)

    @property
    def texts(self) -> list[str]:
        return [row["text"] for row in self.rows]

    @property
    def reasons(self) -> Counter[str]:
        return Counter(record.reason for record in self.rejected)


def held(pieces: Iterable[Piece]) -> Held:
    found = Held()
    for piece in pieces:
        assert piece.documents.schema == SCHEMA
        piece.documents.validate(full=True)
        found.rows += piece.documents.to_pylist()
        found.rejected += piece.rejected
        found.repairs += piece.repairs
        places = [at for at, _ in piece.notes]
        assert places == sorted(places) and all(0 <= at <= piece.documents.num_rows for at in places)
    return found


def jsonl(path: Path, begin: int = 0, end: int | None = None, **fields: str) -> Held:
    return held(read_jsonl(path, Fields(**fields), "web", name=str(path), begin=begin, end=end))


def parquet(path: Path, begin: int = 0, end: int | None = None, **fields: str) -> Held:
    return held(read_parquet(path, Fields(**fields), "web", name=str(path), begin=begin, end=end))


def lines(*records: object) -> bytes:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode()
