"""Web pages to text: the content stays, what surrounds it goes, and no page stops the reader."""

import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.reading.documents import Document, Place, Rejected
from data.reading.web import MOST_ATTRIBUTES, MOST_DEPTH, admit_page, page_text, read_page

PLACE = Place("id", "web", "file")
PARAGRAPH = (
    "The river rose in the night, and by the morning the lower fields stood under water as far as the old mill. "
)
PAGE = f"""<!DOCTYPE html><html><head><title>Flood</title><style>p {{color: red}}</style>
<script>var x = "<p>no";</script></head>
<body><header><a href="/">Home of the paper</a></header>
<nav><ul><li><a href="/a">Sports pages</a></li><li><a href="/b">Weather maps</a></li></ul></nav>
<main><article><h1>The flood of the year</h1><p>{PARAGRAPH * 3}</p>
<pre>def level(day):
    return 3 * day  # metres</pre>
<ul><li>first fact</li><li>second fact</li></ul><p>{PARAGRAPH.upper() * 3}</p></article></main>
<aside class="sidebar"><h3>Most read stories</h3><a href="/c">Cats of the harbour</a></aside>
<div class="cookie-banner">We use cookies</div><footer>Imprint and contact</footer></body></html>"""


def admit(html: bytes, charset: str | None = None) -> tuple[Document | Rejected, Counter[str]]:
    repairs: Counter[str] = Counter()
    return admit_page(html, charset, PLACE, group="g", repairs=repairs), repairs


def test_the_content_stays_and_what_surrounds_it_goes():
    text = page_text(PAGE)
    for kept in (
        "The flood of the year",
        PARAGRAPH.strip(),
        "    return 3 * day  # metres",
        "first fact",
        PARAGRAPH.upper().strip(),
    ):
        assert kept in text
    for gone in ("Sports pages", "Most read", "Imprint", "var x", "color: red", "cookies", "<p>"):
        assert gone not in text
    assert text.index("flood of the year") < text.index("def level") < text.index("first fact")
    assert "The flood of the year\n" in text


@pytest.mark.parametrize(
    "before", ["", "<body>", "<main>", "<html><head><title>Title</title></head>", "<title>Title</title>"]
)
def test_a_list_in_the_content_stays(before):
    found = page_text(f"{before}<p>{PARAGRAPH}</p><ul><li>first fact</li><li>second fact</li></ul><p>{PARAGRAPH}</p>")
    assert "Title" not in found and found.count("river rose") == 2
    assert "second fact" in found or before.startswith("<title>")


def test_a_page_without_any_of_the_usual_marks_is_kept_whole():
    assert page_text(f"<p>{PARAGRAPH}</p><p>{PARAGRAPH}</p>").split() == (PARAGRAPH * 2).split()


def test_entities_become_characters():
    found = page_text("<p>caf&eacute; &amp; &#x4e2d;&#20013; &lt;tag&gt; &nbsp;end</p>")
    assert found.split() == ["café", "&", "中中", "<tag>", "end"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "no text"),
        (b"<html><body><script>only()</script></body></html>", "no text"),
        (b"<html><body><nav><a href='/'>x</a></nav></body></html>", "no text"),
        (bytes(range(0x80, 0x100)) * 20 + b"\xff\x81\x8d" * 100, "encoding"),
        (b"<div>" * (MOST_DEPTH + 1) + b"text", "page cannot be parsed"),
        (b"<body" * 100_000, "page cannot be parsed"),
        (b"<" * 1_000_000 + b"a " * 500_000, "page cannot be parsed"),
        (b"<div><b>" * 50_000 + b"text" + b"</b></div>" * 50_000, "page cannot be parsed"),
        (
            b"<p " + b" ".join(b'a%d="x y"' % i for i in range(MOST_ATTRIBUTES * 10)) + b">text</p>",
            "page cannot be parsed",
        ),
    ],
)
def test_pages_that_give_no_text_are_set_aside(content, reason):
    found, _ = admit(content)
    assert isinstance(found, Rejected) and found.reason == reason and found.num_bytes == len(content)


def test_long_pages_and_long_attributes_are_no_obstacle():
    items = "".join(f"<p>{PARAGRAPH} {i}<br><img src=x>" for i in range(5000))
    assert page_text(items).count("river rose") == 5000 and isinstance(admit(items.encode())[0], Document)
    found, _ = admit(f"<p>{PARAGRAPH}<img src='data:{'x y' * 50_000}'></p>".encode())
    assert isinstance(found, Document) and found.text == PARAGRAPH.strip()


def test_shapes_of_a_drawing_that_close_themselves_are_not_nested():
    shapes = '<g><rect width="3"/></g><path d="M 0 0"/>' * MOST_DEPTH
    drawn, _ = admit(f"<html><body><p>{PARAGRAPH}</p><svg>{shapes}</svg><p>{PARAGRAPH}</p></body></html>".encode())
    assert isinstance(drawn, Document) and drawn.text.count("river rose") == 2
    open_shapes = '<rect width="3"/>' * (MOST_DEPTH + 1)
    for page in (f"<svg><p>{PARAGRAPH}</p>{open_shapes}", open_shapes, "<svg>" + "<div/>" * (MOST_DEPTH + 1)):
        found, _ = admit(page.encode())
        assert isinstance(found, Rejected) and found.reason == "page cannot be parsed", page[:40]


def test_nul_and_bad_bytes_are_repaired_and_counted():
    found, repairs = admit(f"<p>{PARAGRAPH * 20}{'é' * 20}".encode() + b"nul\0 bad\xff</p>")
    assert isinstance(found, Document) and "\0" not in found.text
    assert repairs["undecodable bytes replaced by U+FFFD"] == 1


def test_a_file_is_a_document_named_by_its_path(tmp_path: Path):
    (tmp_path / "a.html").write_bytes(f"<p>{PARAGRAPH}é</p>".encode("latin-1"))
    found = read_page(tmp_path / "a.html", "a.html", "web", Counter())
    assert found == Document("a.html", f"{PARAGRAPH}é".strip(), "web", "a.html", "a.html")


TAGS = st.sampled_from(
    [
        "<p>",
        "</p>",
        "<div class='x'>",
        "</div>",
        "<table><tr><td>",
        "<!--",
        "-->",
        "<script>",
        "</script>",
        "<pre>",
        "&#0;",
        "&#xd800;",
    ]
    + [
        "<svg><style>",
        "<b><i></b>",
        "<",
        "<a href=",
        "text words ",
        "\x00",
        "<textarea>",
        "<template>",
        "<![CDATA[",
        "<select><option>",
    ]
)


@given(st.lists(TAGS | st.text(max_size=5), max_size=40))
@settings(max_examples=200, deadline=None)
def test_any_markup_is_a_document_or_set_aside(pieces):
    found, _ = admit("".join(pieces).encode("utf-8", "replace"))
    if isinstance(found, Document):
        assert found.text.strip() and "\0" not in found.text and found.text.encode()
    else:
        assert found.reason in ("no text", "encoding", "page cannot be parsed")


def test_damaged_pages_are_documents_or_set_aside():
    rng = random.Random(2)
    outcomes: Counter[str] = Counter()
    for _ in range(300):
        damaged = bytearray(PAGE.encode())
        for _ in range(rng.randrange(1, 60)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        found, _ = admit(bytes(damaged[: rng.randrange(1, len(damaged))]), rng.choice([None, "utf-8", "koi8-r"]))
        outcomes["document" if isinstance(found, Document) else found.reason] += 1
    assert outcomes.total() == 300 and outcomes["document"] > 100


@pytest.mark.parametrize("attribute", ["a{}=1 ", 'a{}=">" ', "a{}/", "a{}='x'"])
def test_a_tag_of_too_many_attributes_is_set_aside_however_they_are_parted(attribute):
    tag = "".join(attribute.format(i) for i in range(MOST_ATTRIBUTES + 2))
    found, _ = admit(f"<body><a {tag}>x</a><p>{PARAGRAPH}</p>".encode())
    assert isinstance(found, Rejected) and "attributes" in found.detail
    few = "".join(attribute.format(i) for i in range(20))
    found, _ = admit(f"<body><a {few} href='{'x' * 30_000}'>x</a><p>{PARAGRAPH}</p>".encode())
    assert isinstance(found, Document)


@pytest.mark.parametrize("piece", ["<body", "<a", "<a =", "<a ='", "</head ", "<", "&#", '<a x="', "<!--"])
def test_no_pattern_searches_a_page_again_and_again(piece):
    admit((piece * (1_000_000 // len(piece))).encode())
