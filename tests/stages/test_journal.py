"""A user relies on: what listens to a stage gets the lines of its journal whole, and a listener that has gone does not
cost the work."""

import json
import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.journal import Event, Journal, LineWriter, line_of, read_events

TEXT = st.text(st.characters(exclude_categories=())) | st.sampled_from(["NaN", "Infinity", "\udcff"])


def test_a_reader_gets_the_lines_of_the_file_also_from_several_threads(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    got: list[bytes] = []

    def read() -> None:
        with os.fdopen(reading, "rb") as stream:
            got.extend(stream)

    reader = threading.Thread(target=read)
    reader.start()
    journal = Journal(tmp_path / "events.jsonl", stage="curate", listeners=(LineWriter(writing),))
    long = "x" * 100_000  # more than a pipe takes at once

    def write(name: str) -> None:
        for number in range(300):
            journal.event("note", text=f"{name} {number} \udcff ü {long if number % 50 == 0 else ''}")

    writers = [threading.Thread(target=write, args=(name,)) for name in "abc"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    journal.close()
    os.close(writing)
    reader.join()
    assert len(got) == 900
    by_text = sorted(json.loads(line)["text"] for line in got)
    assert by_text == sorted(event["text"] for event in read_events(tmp_path / "events.jsonl"))


@pytest.mark.parametrize("is_needed", [True, False])
def test_a_listener_that_has_gone_stops_only_what_works_for_it(tmp_path: Path, is_needed: bool) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    writer = LineWriter(writing, is_needed=is_needed)
    journal = Journal(tmp_path / "events.jsonl", stage="pretrain", listeners=(writer,))
    if is_needed:
        with pytest.raises(BrokenPipeError):
            journal.event("note", text="a")
    else:
        journal.event("note", text="a")
        journal.event("note", text="b")
        assert [event["text"] for event in read_events(tmp_path / "events.jsonl")] == ["a", "b"]
    journal.close()
    os.close(writing)


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (float("nan"), ValueError),
        (float("-inf"), ValueError),
        ([float("nan")], ValueError),
        ({1, 2}, TypeError),
        ({"a": {1, 2}}, TypeError),
        (b"bytes", TypeError),
        (Path("a"), TypeError),
    ],
)
def test_a_value_that_is_no_json_is_refused_where_it_is_written(
    tmp_path: Path, value: object, error: type[Exception]
) -> None:
    journal = Journal(tmp_path / "events.jsonl", stage="pretrain")
    with pytest.raises(error):
        journal.event("metric", value=value)
    journal.close()
    assert list(read_events(tmp_path / "events.jsonl")) == []


@given(
    st.dictionaries(
        st.text(),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
            max_leaves=5,
        ),
        max_size=8,
    )
)
def test_what_was_written_is_read(event: Event) -> None:
    """By either encoder, to the last bit; half a character too, which a broken file name may hold."""
    line = line_of(event)
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    assert repr(json.loads(line)) == repr(event)
