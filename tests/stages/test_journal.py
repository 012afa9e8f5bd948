"""A user relies on: what listens to a stage gets the lines of its journal whole, and a listener that has gone does not
cost the work."""

import json
import os
import threading
from pathlib import Path

import pytest

from stages.journal import Journal, LineWriter, read_events


def test_a_reader_gets_the_lines_of_the_file_also_from_several_threads(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    got: list[bytes] = []

    def read() -> None:
        with os.fdopen(reading, "rb") as stream:
            got.extend(stream)

    reader = threading.Thread(target=read)
    reader.start()
    with os.fdopen(writing, "wb") as stream:
        journal = Journal(tmp_path / "events.jsonl", stage="curate", listeners=(LineWriter(stream),))

        def write(name: str) -> None:
            for number in range(300):
                journal.event("note", text=f"{name} {number} \udcff ü")

        writers = [threading.Thread(target=write, args=(name,)) for name in "abc"]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        journal.close()
    reader.join()
    assert journal.lines == len(got) == 900
    by_text = sorted(json.loads(line)["text"] for line in got)
    assert by_text == sorted(event["text"] for event in read_events(tmp_path / "events.jsonl"))


@pytest.mark.parametrize("is_needed", [True, False])
def test_a_listener_that_has_gone_stops_only_what_works_for_it(tmp_path: Path, is_needed: bool) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    stream = os.fdopen(writing, "wb", buffering=0)
    writer = LineWriter(stream, is_needed=is_needed)  # type: ignore[arg-type]
    journal = Journal(tmp_path / "events.jsonl", stage="pretrain", listeners=(writer,))
    if is_needed:
        with pytest.raises(BrokenPipeError):
            journal.event("note", text="a")
    else:
        journal.event("note", text="a")
        journal.event("note", text="b")
        assert journal.lines == 2
    journal.close()
    stream.close()


def test_a_value_that_is_no_json_is_refused_where_it_is_written(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "events.jsonl", stage="pretrain")
    for value, error in ((float("nan"), ValueError), ({1, 2}, TypeError)):
        with pytest.raises(error):
            journal.event("metric", value=value)
    journal.close()
    assert list(read_events(tmp_path / "events.jsonl")) == []
