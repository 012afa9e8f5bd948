"""From a record with named fields to a document."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from data.reading.documents import Document, Place, Rejected, admit, clean


@dataclass(frozen=True, kw_only=True)
class Fields:
    """Which fields of a record hold what."""

    text: str = "text"
    id: str | None = None
    group: str | None = None


def from_record(
    record: dict[str, Any], fields: Fields, place: Place, repairs: Counter[str], num_bytes: int = 0
) -> Document | Rejected:
    """The document of a record, or why there is none. `num_bytes`: the size of the record if it is more than the
    text."""
    named = name_of(record.get(fields.id)) if fields.id else None
    place = Place(named, place.domain, place.source) if named else place
    group = name_of(record.get(fields.group)) if fields.group else None
    return admit(record.get(fields.text), place, group=group, repairs=repairs, num_bytes=num_bytes)


def name_of(value: object) -> str | None:
    """What a field calls something: a string with something in it, or a whole number; None for all else."""
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeDecodeError:
            return None
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return clean(value, Counter()) or None if isinstance(value, str) else None
