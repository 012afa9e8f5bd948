"""A user relies on: for every document that the corpus lacks, its reason can be asked for."""

import argparse
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data.errors import InputError
from stages.commands import add_commands
from stages.curate.artifact import file_path
from stages.curate.tables import DOCUMENTS, DROPPED, SAMPLES
from stages.store import Artifact, Store
from tests.end_to_end.shell import run
from tests.stages.export.made import publish, publish_tokenizer

SHORT, UGLY = "quality: least words", "an \x1b[31mid\x1b[0m [bold]with[/bold] 語"


def row(id: str, **changes: Any) -> dict[str, Any]:
    return {
        **{"id": id, "domain": "web", "source": "a.jsonl", "language": "en", "reason": SHORT, "detail": "bound 50"},
        **{"score": 12.0, "survivor": None, "num_bytes": 100},
        **changes,
    }


ROWS = [
    row("short-1"),
    row(UGLY, domain="code"),
    row("short-2", language="de", source="b.jsonl"),
    row("lines", reason="quality: duplicate lines", score=0.5, num_bytes=4000),
    row("copy", reason="exact duplicate of training text", detail="", score=1.0, survivor="first", language="de"),
    row("broken", reason="not JSON", detail="line 7", score=None, language=""),
]


@pytest.fixture
def corpus(tmp_path: Path) -> Artifact:
    def fill(folder: Path) -> None:
        pq.write_table(pa.Table.from_pylist(ROWS, DROPPED), folder / "dropped.parquet", row_group_size=2)
        samples = [found | {"excerpt": f"begin of {found['id']}"} for found in ROWS[:1]]
        pq.write_table(pa.Table.from_pylist(samples, SAMPLES), folder / "samples.parquet")
        for side, name in (("train", "first"), ("heldout", "held")):
            (folder / side).mkdir()
            held = {"id": name, "text": "t", "domain": "web", "group": "g", "source": "a.jsonl", "language": "en"}
            pq.write_table(pa.Table.from_pylist([held], DOCUMENTS), file_path(folder, side, "web", 0))

    return publish(Store(tmp_path), "curate", fill, {})


@pytest.fixture
def ask(corpus: Artifact, capsys: pytest.CaptureFixture[str]) -> Any:
    def asked(*words: Any) -> str:
        parser = argparse.ArgumentParser()
        add_commands(parser)
        root = corpus.path.parents[2]
        arguments = parser.parse_args([str(word) for word in ("dropped", corpus.key, *words, "--root", root)])
        arguments.command(arguments)
        return " ".join(capsys.readouterr().out.split())

    return asked


def test_reasons_are_counted_and_documents_listed(ask: Any) -> None:
    text = ask()
    assert "reason documents bytes quality: least words 3 300" in text
    for part in ("copy web de 100 exact duplicate of training text 1 first", "broken web 100 not JSON line 7"):
        assert part in text, text
    assert "more;" not in text


def test_the_first_are_shown_and_the_others_counted(ask: Any) -> None:
    text = ask("--show", 2)
    assert "short-1" in text and "short-2" not in text and "4 more; --show N shows some, --out FILE" in text


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--reason", "quality"), {"short-1", UGLY, "short-2", "lines"}),
        (("--reason", SHORT, "--language", "en"), {"short-1", UGLY}),
        (("--domain", "code"), {UGLY}),
        (("--source", "b.jsonl"), {"short-2"}),
        (("--id", "copy"), {"copy"}),
        ((), {found["id"] for found in ROWS}),
    ],
)
@pytest.mark.parametrize("ending", [".parquet", ".jsonl"])
def test_what_was_asked_for_can_be_written_out(
    ask: Any, tmp_path: Path, words: tuple[str, ...], expected: set[str], ending: str
) -> None:
    out = tmp_path / f"found{ending}"
    assert f"{len(expected)} documents in" in ask(*words, "--out", out)
    rows = pq.read_table(out).to_pylist() if ending == ".parquet" else [json.loads(x) for x in out.open()]
    assert rows == [found for found in ROWS if found["id"] in expected]
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".found")]


def test_text_from_anywhere_neither_colours_the_terminal_nor_is_markup(ask: Any) -> None:
    text = ask("--domain", "code")
    assert "\x1b" not in text and r"an \x1b[31mid\x1b[0m [bold]with[/bold] 語" in text


def test_a_document_is_told_of_wherever_it_is(ask: Any) -> None:
    assert "begin of short-1" in ask("--id", "short-1")
    assert "first is in the training text of web" in ask("--id", "first")
    assert "held is in the held-out text of web" in ask("--id", "held")
    assert "neither holds nor dropped a document 'nowhere'" in ask("--id", "nowhere")


def test_nothing_for_two_conditions_that_each_have_some(ask: Any) -> None:
    assert "no document was dropped for that" in ask("--domain", "code", "--language", "de")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("--reason", "qualty"),
            r"no dropped document has the reason 'qualty'; there are 'exact .*'quality: least words'",
        ),
        (("--language", "fr"), "language 'fr'; there are '', 'de', 'en'"),
        (("--out", "found.csv"), r"ends in \.parquet or \.jsonl"),
        (("--out", "absent/found.jsonl"), "there is no folder absent"),
    ],
)
def test_what_cannot_be_is_refused_with_what_can(ask: Any, words: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ask(*words)


def test_a_negative_number_of_documents_is_no_number(ask: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        ask("--show", "-1")
    assert "--show: -1 is less than 0" in capsys.readouterr().err
    assert "6 more; --show N shows some" in ask("--show", 0)


def test_only_a_corpus_has_dropped_documents(tmp_path: Path) -> None:
    made = publish_tokenizer(Store(tmp_path))
    done = run("stages", "dropped", made.key, "--root", tmp_path)
    assert done.returncode == 2 and "is of tokenizer" in done.stderr and "Traceback" not in done.stderr
