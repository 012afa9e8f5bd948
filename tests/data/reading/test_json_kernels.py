"""Lines of JSON read by the kernel: never otherwise than Python's parser reads them, and rarely left to it."""

import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from data.reading.documents import Document, Place
from data.reading.json_kernels import EMPTY_LINE, PADDING, PLAIN, UNUSUAL, count_newlines, depth, line_ends, parse_lines
from data.reading.jsonl import from_line
from data.reading.records import Fields

NAMES = Fields(text="text", id="id", group="né")


def parse(content: bytes) -> tuple[np.ndarray, list[list[str | None]]]:
    """The status of each line, and (text, id, group) of each plain one."""
    values = np.frombuffer(content + b'x"\\{}[,:1'[:PADDING], np.uint8)
    num_newlines = count_newlines(values[: len(content)])
    ends = np.full(num_newlines + (not content.endswith(b"\n")), len(content))
    line_ends(values, len(content), ends[:num_newlines])
    assert [len(line) for line in content.split(b"\n")] == [
        *(np.diff([0, *ends[:num_newlines]]) - 1).tolist(),
        len(content) - (ends[num_newlines - 1] if num_newlines else 0),
    ]
    names = [name.encode() for name in ("text", "id", "né")]
    status = np.full(len(ends), 9, np.uint8)
    out = tuple(np.zeros(len(values), np.uint8) for _ in names)
    out_ends = np.zeros((3, len(ends) + 1), np.int64)
    present = np.zeros((3, len(ends)), bool)
    n = parse_lines(
        values,
        ends,
        np.frombuffer(b"".join(names), np.uint8),
        np.cumsum([len(name) for name in names]),
        status,
        out,
        out_ends,
        present,
    )
    assert n == (status == PLAIN).sum()
    rows: list[list[str | None]] = []
    for i in range(n):
        found = [out[f][out_ends[f, i] : out_ends[f, i + 1]].tobytes().decode() for f in range(3)]
        assert all(present[f, i] == bool(found[f]) for f in range(3))
        rows.append([value or None for value in found])
    return status, rows


def agrees(line: bytes) -> int:
    """The status of one line, which Python's parser must read alike if it is plain."""
    (status,), rows = parse(line)
    if status == EMPTY_LINE:
        assert not line.strip()
    if status == PLAIN:
        repairs: Counter[str] = Counter()
        document = from_line(line, NAMES, Place("here", "web", "file"), repairs)
        assert isinstance(document, Document) and not repairs
        assert rows == [[document.text, None if document.id == "here" else document.id, document.group]]
    return status


TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=40) | st.text(
    'ab"\\\n\t\x00\x1f\x7fé\u2028😀', max_size=60
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
RECORDS = st.fixed_dictionaries({}, optional={"text": TEXTS | VALUES, "id": VALUES, "né": VALUES, "other": VALUES})


@given(RECORDS, st.booleans(), st.sampled_from([None, 1, "\t"]))
@settings(max_examples=300, deadline=None)
def test_a_record_is_read_as_python_reads_it(record, ascii_only, indent):
    line = (
        json.dumps(record, ensure_ascii=ascii_only, indent=indent).replace("\n", " ").encode("utf-8", "surrogatepass")
    )
    status = agrees(line)
    text = record.get("text")
    plain_text = isinstance(text, str) and text.strip() and "\0" not in text
    ordinary = isinstance(record.get("id"), str | None) and isinstance(record.get("né"), str | None)
    holds_nan = any(word in line for word in (b"NaN", b"Infinity"))
    names = [record.get("id") or "", record.get("né") or ""]
    if plain_text and ordinary and not holds_nan and not any("\0" in name for name in names):
        assert status == PLAIN or b"\\" in line


@given(RECORDS, st.data())
@settings(max_examples=300, deadline=None)
def test_a_damaged_line_is_never_read_otherwise_than_python_reads_it(record, data):
    line = bytearray(json.dumps({"text": "a text", **record}, ensure_ascii=data.draw(st.booleans())).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(line) - 1))
        piece = data.draw(st.binary(max_size=2) | st.sampled_from(list(PIECES)))
        line[at : at + data.draw(st.integers(0, 2))] = piece
    agrees(bytes(line).replace(b"\n", b" ") or b" ")


PIECES = [
    b'"',
    b"\\",
    b"\\u",
    b"\\ud83d",
    b"\\ude00",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"0",
    b"-",
    b".",
    b"e5",
    b"1E+",
    b"true",
    b"nul",
    b"NaN",
    b"\xc3",
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
    b"\xc0\x80",
    b"\x00",
    b"\x1f",
    b"\x0b",
    b'"text"',
    b'"text":"b",',
]


@given(st.lists(st.sampled_from(PIECES), max_size=12))
@settings(max_examples=500, deadline=None)
def test_pieces_of_json_in_any_order(pieces):
    agrees(b'{"text": "a", "x": ' + b"".join(pieces) + b"}")


@pytest.mark.parametrize(
    "line",
    [
        b'{"text":"a"}',
        b'{"text":"a","id":"b","n\xc3\xa9":-12}\r',
        b' {\t"x" : [ ] , "y":{ } ,"text" :"a \\n \\u00e9 \\uD83D\\ude00 \\/" , "z": [1, -0.5e+3, {"text": [true]}] } ',
        b'{"text":"a","id":null,"n\xc3\xa9":1.5}',
        b'{"text":"a","id":"","n\xc3\xa9":[1]}',
        '{"text":"é\u2028\u3000中文😀"}'.encode(),
        b'{"other":"\\ud83d","text":"12345678\\\\12345678\\""}',
        b'{"text":"a","x":' + b"[" * 50 + b"]" * 50 + b"}",
    ],
)
def test_lines_that_are_plain(line):
    assert agrees(line) == PLAIN


@pytest.mark.parametrize(
    "line",
    [
        b'{"text":"a","text":"b"}',
        b'{"text":"a \\ud83d b"}',
        b'{"text":"a \\ude00\\ud83d b"}',
        b'{"text":"\\u0000"}',
        b'{"text":" \\n "}',
        b'{"text":"a","id":-0}',
        b'{"text":"a","id":1234567890123456789}',
        b'{"te\\u0078t":"a"}',
        b'{"text":"a"},',
        b'{"text":"a"}{}',
        b'{"text":"a","x":01}',
        b'{"text":"a","x":1.}',
        b'{"text":"a","x":.5}',
        b'{"text":"a","x":+1}',
        b'{"text":"a","x":NaN}',
        b'{"text":"a","x":tru}',
        b'{"text":"a","x":[1,]}',
        b'{"text":"a","x":{"y"}}',
        b'{"text":"a",}',
        b'{"text":"a\tb"}',
        b'{"text":"a"',
        b'{"text":"\xff"}',
        b'{"text":"a","x":"\xed\xa0\x80"}',
        b'{"text":"a","x":"\xc0\xaf"}',
        b'["text"]',
        b'"text"',
        b"{}",
        b'{"text":7}',
        b'\xef\xbb\xbf{"text":"a"}',
        b'{"text":"a","x":' + b"[" * 70 + b"]" * 70 + b"}",
        b'{"text":"a","x":' + b"9" * 5000 + b"}",
        b'{"text":"a","x":]}',
        b'{"text":"a","x":[}]}',
        b'{"text":"a","x":"\\x"}',
        b'{"text":"a","x":"\\u12g4"}',
        b"{'text':'a'}",
    ],
)
def test_lines_that_are_left_to_python(line):
    assert agrees(line) == UNUSUAL


@pytest.mark.parametrize("line", [b"", b" ", b"\t \r", b"\x0b\x0c"])
def test_lines_with_nothing_in_them(line):
    assert agrees(line) == EMPTY_LINE if line else len(parse(line)[0]) == 1


def test_lines_follow_one_another():
    lines = [b'{"text":"one","id":"1"}', b"", b"[]", b'{"id":2,"text":"two \\" two"}', b"  ", b'{"text":"three"}']
    status, rows = parse(b"\n".join(lines))
    assert status.tolist() == [PLAIN, EMPTY_LINE, UNUSUAL, PLAIN, EMPTY_LINE, PLAIN]
    assert rows == [["one", "1", None], ['two " two', "2", None], ["three", None, None]]


@given(st.text('[]{}"\\a', max_size=30))
@example('[{"[[[\\"[": [[]]}]')
@settings(deadline=None)
def test_depth_counts_brackets_outside_of_strings(text):
    now = most = 0
    inside = escaped = False
    for c in text:
        if inside:
            inside, escaped = escaped or c != '"', not escaped and c == "\\"
        elif c == '"':
            inside = True
        else:
            now += (c in "[{") - (c in "]}")
            most = max(most, now)
    assert depth(np.frombuffer(text.encode(), np.uint8)) == most
