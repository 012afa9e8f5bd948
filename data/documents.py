"""Documents, what becomes of a bad record, and the Arrow tables in which documents are held.

Policy for a record that is not plain text:

* invalid UTF-8, a malformed JSON line, a text that is missing or not a string, a text of blanks only: the record is set
  aside (`Rejected`, with its reason);
* a lone surrogate (JSON can hold one, UTF-8 cannot) becomes U+FFFD, a NUL character is removed: the document stays, the
  repair is counted.

Every other character is kept as it is: line ends, U+2028, byte order marks inside a text.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

BATCH_BYTES = 16 << 20

INVALID_UTF8 = "invalid UTF-8"
MALFORMED_JSON = "malformed JSON"
MISSING_TEXT = "text missing"
TEXT_NOT_A_STRING = "text not a string"
EMPTY = "empty"

LONE_SURROGATE = "lone surrogate replaced by U+FFFD"
NUL = "NUL removed"

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("text", pa.large_string()),
        ("domain", pa.string()),
        ("group", pa.string()),
        ("source", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class Document:
    """One text. Documents of one `group` (a source file, a package) are never divided between training and held-out
    text."""

    id: str
    text: str
    domain: str
    group: str
    source: str


@dataclass(frozen=True, slots=True)
class Rejected:
    """A record that could not become a document. `num_bytes` are those of the record as it stands in the source."""

    id: str
    domain: str
    reason: str
    detail: str
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record stands, and so what its document is called unless the record says it itself."""

    id: str
    domain: str
    source: str


def clean(text: str, repairs: Counter[str]) -> str:
    """`text` as valid UTF-8 without NUL. What had to be repaired is counted in `repairs`, once for each document."""
    try:
        text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        repairs[LONE_SURROGATE] += 1
    if "\0" in text:
        text = text.replace("\0", "")
        repairs[NUL] += 1
    return text


def admit(value: object, place: Place, *, group: str, repairs: Counter[str], num_bytes: int = 0) -> Document | Rejected:
    """The document of a record's text field, or why there is none.

    `value` may be bytes, which are decoded strictly. `num_bytes` is the size of the record if it is more than the text.
    """

    def rejected(reason: str, detail: str = "", size: int = 0) -> Rejected:
        return Rejected(place.id, place.domain, reason, detail, num_bytes or size)

    if value is None:
        return rejected(MISSING_TEXT)
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeDecodeError as error:
            return rejected(INVALID_UTF8, f"byte {error.start}", len(error.object))
    if not isinstance(value, str):
        return rejected(TEXT_NOT_A_STRING, type(value).__name__)
    text = clean(value, repairs)
    if not text or text.isspace():
        return rejected(EMPTY, size=len(text.encode()))
    return Document(place.id, text, place.domain, group, place.source)


def batches(documents: Iterable[Document], batch_bytes: int = BATCH_BYTES) -> Iterator[pa.RecordBatch]:
    """Record batches of `SCHEMA`, each of one domain and with about `batch_bytes` of strings (one long document may be
    a batch by itself).

    Documents of a domain keep their order. A string never comes near the 32-bit offsets of the short columns, and texts
    have 64-bit offsets.
    """
    rows: dict[str, list[Document]] = {}
    sizes: Counter[str] = Counter()
    for document in documents:
        domain = document.domain
        rows.setdefault(domain, []).append(document)
        sizes[domain] += len(document.text.encode()) + len(document.id) + len(document.group) + len(document.source)
        if sizes[domain] >= batch_bytes:
            yield _batch(rows.pop(domain))
            del sizes[domain]
    for domain in sorted(rows):
        yield _batch(rows[domain])


def _batch(rows: list[Document]) -> pa.RecordBatch:
    columns = [pa.array([getattr(row, field.name) for row in rows], field.type) for field in SCHEMA]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def text_buffers(texts: pa.LargeStringArray) -> tuple[np.ndarray, np.ndarray]:
    """The values and offsets of a column without nulls, uncopied: uint8[num_bytes], int64[len(texts) + 1]. Offsets are
    absolute."""
    assert texts.type == pa.large_string() and texts.null_count == 0, texts.type
    _, offsets, values = texts.buffers()
    window = (
        np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
        if len(texts)
        else np.zeros(1, np.int64)
    )
    return np.frombuffer(values, np.uint8) if values and values.size else np.zeros(0, np.uint8), window
