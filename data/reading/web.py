"""Web pages to text: the main content, without navigation, side bars, scripts and comments.

Headings, lists and preformatted text keep their lines. The extraction is resiliparse's.
"""

import re
from collections import Counter
from pathlib import Path

from data.reading.documents import EMPTY, Document, Place, Rejected, admit
from data.reading.encodings import decode_page
from data.reading.readers import read_whole

ENCODING = "encoding"
NO_TEXT = "no text"
NOT_PARSED = "page cannot be parsed"
UNDECODABLE = "undecodable bytes replaced by U+FFFD"

# The parser's time grows with the square of these. Patterns are bounded, so that none searches a page again and again.
MOST_DEPTH = 2000
MOST_ATTRIBUTES = 2000
LONG_TAG = re.compile(r"<[a-zA-Z][^>]{20000,}")
BEFORE_THE_CONTENT = re.compile(r"<body\b[^>]{0,2000}>|</head\s{0,20}>(?!\s{0,200}<body)", re.IGNORECASE)
DEEPER = "<div><div><div>"  # the extraction takes a list near the root for a menu
QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'")
TAG = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9-]*)")
NOT_NESTED = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
CLOSED_BY_THE_NEXT = {"p", "li", "dt", "dd", "tr", "td", "th", "thead", "tbody", "option"}


def read_page(path: Path, name: str, domain: str, repairs: Counter[str]) -> Document | Rejected:
    """An HTML file (also .gz and .zst) as one document, which is its own group."""
    place = Place(name, domain, name)
    content = read_whole(path, place)
    return content if isinstance(content, Rejected) else admit_page(content, None, place, group=name, repairs=repairs)


def admit_page(
    content: bytes, charset: str | None, place: Place, *, group: str, repairs: Counter[str]
) -> Document | Rejected:
    """The document of a page, or why there is none. charset: what the HTTP header says."""

    def rejected(reason: str, detail: str = "") -> Rejected:
        return Rejected(place.id, place.domain, place.source, reason, detail, len(content))

    decoded = decode_page(content, charset)
    if decoded is None:
        return rejected(ENCODING, f"declared as {charset}" if charset else "")
    wrong = _hard_to_parse(decoded.text)
    if wrong:
        return rejected(NOT_PARSED, wrong)
    try:
        text = page_text(decoded.text)
    except ValueError as error:
        return rejected(NOT_PARSED, str(error))
    if decoded.num_replaced:
        repairs[UNDECODABLE] += 1
    record = admit(text, place, group=group, repairs=repairs, num_bytes=len(content))
    return rejected(NO_TEXT) if isinstance(record, Rejected) and record.reason == EMPTY else record


def page_text(html: str) -> str:
    """The main content of a page; empty if it has none. Raises ValueError for what the parser refuses."""
    from resiliparse.extract.html2text import extract_plain_text

    head = BEFORE_THE_CONTENT.search(html)
    begin = head.end() if head else 0
    if head or "<title" not in html:
        html = f"{html[:begin]}{DEEPER}{html[begin:]}"
    return extract_plain_text(html, main_content=True, alt_texts=False, comments=False).strip()


def _hard_to_parse(html: str) -> str:
    """What of a page would keep the parser busy for minutes, or nothing."""
    if html.count("<") > MOST_DEPTH:
        open_tags = deepest = 0
        for tag in TAG.finditer(html):
            if tag[2].lower() not in NOT_NESTED | CLOSED_BY_THE_NEXT:
                open_tags = max(0, open_tags + (-1 if tag[1] else 1))
                deepest = max(deepest, open_tags)
        if deepest > MOST_DEPTH:
            return f"nested more than {MOST_DEPTH} deep"
    for long_tag in LONG_TAG.finditer(html):
        if len(QUOTED.sub("x", long_tag[0]).split()) > MOST_ATTRIBUTES:
            return f"more than {MOST_ATTRIBUTES} attributes in a tag"
    return ""
