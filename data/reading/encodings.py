"""From the bytes of a web page to its characters.

In this order: a byte order mark; UTF-16 by its zeros and UTF-8 by its validity, whatever is declared; the charset of
the HTTP header; the one that the page declares; a guess by the frequencies of bytes. Names are taken as browsers take
them (WHATWG Encoding, section 4.2: latin-1 means Windows-1252), and of a family of encodings the widest is used.

An encoding of which more than one character in a thousand does not decode is not the right one.
"""

import codecs
import re
from dataclasses import dataclass

MOST_REPLACED = 1 / 1000
DECLARATION_BYTES = 2048
MARKUP_BYTES = 40

MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
WIDEST = {
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "euc_jp": "euc_jis_2004",
    "euc_kr": "cp949",
    "big5": "big5hkscs",
    "iso8859-11": "cp874",
    "iso2022_jp": "iso2022_jp_2",
}
ESCAPE = 0x1B
CODE_PAGE = re.compile(r"(?:cp|ms|windows-?)(\d{3,5})", re.IGNORECASE)
DECLARED = re.compile(
    rb"""<\?xml[^>]{0,200}?encoding\s*=\s*["']([\w.:-]{1,40})|charset\s*=\s*["']?\s*([\w.:-]{1,40})"""
)


@dataclass(frozen=True)
class Decoded:
    """Text, the encoding that gave it, and how many characters are U+FFFD because they did not decode."""

    text: str
    encoding: str
    num_replaced: int


def decode_page(content: bytes, header_charset: str | None = None) -> Decoded | None:
    """The characters of an HTML page, or None if no encoding fits."""
    for mark, encoding in MARKS:
        if content.startswith(mark):
            return _decode(content[len(mark) :], encoding)
    named = DECLARED.search(content[:DECLARATION_BYTES])
    in_page = (named[1] or named[2]).decode() if named else None
    tried = [_by_zeros(content), "utf-8" if ESCAPE not in content and _is_utf8(content) else None]
    tried += [_codec(name) for name in (header_charset, in_page) if name]
    for candidate in tried:
        if candidate and (found := _decode(content, candidate)):
            return found
    guessed = _guess(content)
    return (_decode(content, guessed) if guessed else None) or _decode(content, "utf-8")


def _is_utf8(content: bytes) -> bool:
    """Whether the bytes are UTF-8, or were but for a few of them. By chance hardly any other text is."""
    text = content.decode("utf-8", "replace")
    num_replaced = text.count("\ufffd")
    return num_replaced == 0 or len(text) - len(text.encode("ascii", "ignore")) > 10 * num_replaced


def _codec(name: str) -> str | None:
    """Python's name for a charset's name, None if it is not known."""
    from resiliparse.parse.encoding import map_encoding_to_html5

    found = map_encoding_to_html5(name, fallback_utf8=False)
    if found is None and (page := CODE_PAGE.fullmatch(name)):
        found = f"cp{page[1]}"
    try:
        return codecs.lookup(WIDEST.get(found, found)).name if found else None
    except LookupError:
        return None


def _guess(content: bytes) -> str | None:
    from resiliparse.parse.encoding import detect_encoding

    found = detect_encoding(content, html5_compatible=False)
    return _codec(found) if found else None


def _by_zeros(content: bytes) -> str | None:
    """UTF-16 without a mark: of the markup at the beginning every other byte is 0."""
    half = min(len(content), MARKUP_BYTES) // 2
    even, odd = content[: 2 * half : 2].count(0), content[1 : 2 * half : 2].count(0)
    if odd > half / 2 and not even:
        return "utf-16-le"
    return "utf-16-be" if even > half / 2 and not odd else None


def _decode(content: bytes, encoding: str) -> Decoded | None:
    """None if too little of it decodes."""
    try:
        return Decoded(content.decode(encoding), encoding, 0)
    except UnicodeDecodeError:
        pass
    text = content.decode(encoding, "replace")
    num_replaced = text.count("\ufffd")
    return Decoded(text, encoding, num_replaced) if num_replaced <= MOST_REPLACED * len(text) else None
