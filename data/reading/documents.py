"""Documents, and what becomes of a bad record.

Policy for a record that is not plain text:

* invalid UTF-8, a malformed JSON line, a text that is missing or not a string, a text of blanks only, a record that is
  too long to be held: the record is set aside (`Rejected`, with its reason);
* a lone surrogate (JSON can hold one, UTF-8 cannot) becomes U+FFFD, a NUL character is removed: the document stays, the
  repair is counted.

Every other character is kept as it is: line ends, U+2028, byte order marks inside a text.
"""

from collections import Counter
from dataclasses import dataclass

INVALID_UTF8 = "invalid UTF-8"
MALFORMED_JSON = "malformed JSON"
MISSING_TEXT = "text missing"
TEXT_NOT_A_STRING = "text not a string"
EMPTY = "empty"
TOO_LONG = "too long"

LONE_SURROGATE = "lone surrogate replaced by U+FFFD"
NUL = "NUL removed"


@dataclass(frozen=True, slots=True)
class Document:
    """One text. Documents of one `group` (a source file, a package) are never divided between training and held-out
    text; without a group a text is its own, and equal texts share it."""

    id: str
    text: str
    domain: str
    group: str | None
    source: str


@dataclass(frozen=True, slots=True)
class Rejected:
    """A record that could not become a document. `num_bytes` are those of the record as it stands in the source."""

    id: str
    domain: str
    source: str
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


def admit(
    value: object, place: Place, *, group: str | None, repairs: Counter[str], num_bytes: int = 0
) -> Document | Rejected:
    """The document of a record's text field, or why there is none.

    `value` may be bytes, which are decoded strictly. `num_bytes` is the size of the record if it is more than the text.
    """

    def rejected(reason: str, detail: str = "", size: int = 0) -> Rejected:
        return Rejected(place.id, place.domain, place.source, reason, detail, num_bytes or size)

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
