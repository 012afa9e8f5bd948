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

# The parser's time grows with the square of these. No pattern gives back what it took, so none searches a page again
# and again.
MOST_DEPTH = 2000
MOST_ATTRIBUTES = 2000
START_TAG = re.compile(r"""<[a-zA-Z][^>=]*+(?:=\s*+(?:"[^"]*+"|'[^']*+')?+[^>=]*+)*+""")
ATTRIBUTE = re.compile(r"""[^\s/=]++(?:\s*+=\s*+(?:"[^"]*+"|'[^']*+'|[^\s"']\S*+)?+)?+""")
LEAST_ATTRIBUTE_CHARACTERS = 2  # with what stands between two
BEFORE_THE_CONTENT = re.compile(r"<body\b[^<>]{0,2000}+>|</head\s{0,20}+>(?!\s{0,200}+<body)", re.IGNORECASE)
DEEPER = "<div><div><div>"  # the extraction takes a list near the root for a menu
TAG = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9-]*)")
NOT_NESTED = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
SHAPES = {
    "a",
    "circle",
    "defs",
    "ellipse",
    "g",
    "image",
    "line",
    "lineargradient",
    "marker",
    "path",
    "polygon",
    "polyline",
}
SHAPES |= {"radialgradient", "rect", "stop", "svg", "symbol", "text", "title", "tspan", "use"}
MOST_TAG_CHARACTERS = 20_000
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
    if html.count("<") > MOST_DEPTH and _deepest(html) > MOST_DEPTH:
        return f"nested more than {MOST_DEPTH} deep"
    for tag in START_TAG.finditer(html):
        if tag.end() - tag.start() <= LEAST_ATTRIBUTE_CHARACTERS * MOST_ATTRIBUTES:
            continue
        if sum(1 for _ in ATTRIBUTE.finditer(tag[0])) > MOST_ATTRIBUTES:
            return f"more than {MOST_ATTRIBUTES} attributes in a tag"
    return ""


def _deepest(html: str) -> int:
    """How many elements stand in one another at most; too many where end tags are left out. A shape of a drawing may
    close itself by "/>", which means nothing elsewhere; whatever is no shape ends the drawing, as in the parser."""
    open_tags = deepest = 0
    in_drawing = False
    for tag in TAG.finditer(html):
        closes, name = bool(tag[1]), tag[2].lower()
        in_drawing = not closes if name == "svg" else in_drawing and name in SHAPES
        if name in NOT_NESTED | CLOSED_BY_THE_NEXT or in_drawing and not closes and _closes_itself(html, tag.end()):
            continue
        open_tags = max(0, open_tags + (-1 if closes else 1))
        deepest = max(deepest, open_tags)
    return deepest


def _closes_itself(html: str, behind_name: int) -> bool:
    end = html.find(">", behind_name, behind_name + MOST_TAG_CHARACTERS)
    return end > 0 and html[end - 1] == "/"
