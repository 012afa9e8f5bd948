"""The curate stage: what a user hears whose sources are bad, and that nothing finished is lost."""

import gzip
import json
import re
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from data.errors import InputError
from stages.cli import main
from stages.curate import STAGE, CurateConfig, Source
from stages.store import Store
from tests.stages.curate.curated import corpus, curate, source, write_jsonl


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "jsonl", "path": "a"}, "kind jsonl needs domain"),
        ({"kind": "text", "domain": "a"}, "kind text needs path"),
        ({"kind": "huggingface", "domain": "a"}, "kind huggingface needs name"),
        (
            {"kind": "jsonl", "path": "a", "domain": "a", "packages": ["numpy"]},
            "packages has no effect on a source of kind jsonl",
        ),
        ({"kind": "python-environment", "path": "a"}, "path has no effect on a source of kind python-environment"),
        ({"kind": "jsonl", "path": "a", "domain": "a/b"}, "'a/b' cannot name a domain"),
        ({"kind": "pdf", "path": "a"}, "Input should be 'jsonl', 'parquet'"),
    ],
)
def test_sources_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(ValidationError, match=message):
        Source(**settings)


def test_a_recipe_names_what_is_wrong_and_nothing_else():
    with pytest.raises(ValidationError, match="sources is empty; name at least one source"):
        CurateConfig(sources=())
    with pytest.raises(ValidationError) as caught:
        CurateConfig(sources=({"kind": "pdf", "path": "a"},), languages=("english",))
    assert [error["loc"] for error in caught.value.errors()] == [("sources", 0, "kind"), ("languages",)]


def no_such_field() -> None:
    write_jsonl("a.jsonl", [{"txt": 1, "url": "u"}] * 3)


def parquet_by_another_name() -> None:
    pq.write_table(pa.Table.from_pylist(corpus(20)), "a.jsonl")


def gzip_by_another_name() -> None:
    Path("a.jsonl").write_bytes(gzip.compress("".join(json.dumps(record) for record in corpus(20)).encode()))


def only_numbers() -> None:
    write_jsonl("a.jsonl", [{"text": 1}])


def one_document() -> None:
    write_jsonl("a.jsonl", corpus(1))


def cut_off_archive() -> None:
    Path("a.jsonl").write_bytes(b"")
    Path("a.jsonl.gz").write_bytes(gzip.compress(json.dumps(corpus(1)[0]).encode())[:-9])


@pytest.mark.parametrize(
    ("prepare", "path", "message"),
    [
        (lambda: None, "a.jsonl", "a.jsonl: there is no such file .*correct the source"),
        (lambda: None, "none*.jsonl", r"none\*.jsonl: no file matches this pattern .*correct the source"),
        (lambda: write_jsonl("a.jsonl", []), "a.jsonl", "source jsonl a.jsonl is empty: not a single record"),
        (
            no_such_field,
            "a.jsonl",
            r"source jsonl a.jsonl has no text: 3 records read, 3 of them set aside as 'text missing'; "
            r"check its text_field \('text'\): the first record has 'txt', 'url'",
        ),
        (parquet_by_another_name, "a.jsonl", r"check its kind \(jsonl\): its first file is a Parquet file"),
        (gzip_by_another_name, "a.jsonl", r"check its kind \(jsonl\): its first file is compressed by gzip"),
        (only_numbers, "a.jsonl", "set aside as 'text not a string'; check its text_field"),
        (one_document, "a.jsonl", "domain 'web' has all its text in one group .*at least two groups"),
        (cut_off_archive, "a.jsonl.gz", "a.jsonl.gz: the file is cut off or damaged .*write it again"),
    ],
)  # fmt: skip
def test_bad_sources_end_with_a_message_and_leave_what_was_finished(prepare, path, message, monkeypatch, capsys):
    write_jsonl("good.jsonl", corpus(20))
    finished = curate(CurateConfig(sources=(source("good.jsonl"),)))
    prepare()
    Path("r.toml").write_text(f'name = "t"\n[[curate.sources]]\nkind = "jsonl"\npath = "{path}"\ndomain = "web"\n')
    monkeypatch.setattr(sys, "argv", ["curate", "r.toml"])
    with pytest.raises(SystemExit) as left:
        main(STAGE)
    errors = " ".join(capsys.readouterr().err.split())
    assert left.value.code == 2 and "Traceback" not in errors
    assert re.search(message, errors), errors
    assert [a.digest for a in Store(Path()).all("curate")] == [finished.digest]


def test_a_named_package_that_is_not_installed_is_named_with_the_fix(monkeypatch, capsys):
    Path("r.toml").write_text(
        'name = "t"\n[[curate.sources]]\nkind = "python-environment"\npackages = ["numpy", "no-such-1", "no_such_2"]\n'
    )
    monkeypatch.setattr(sys, "argv", ["curate", "r.toml"])
    with pytest.raises(SystemExit) as left:
        main(STAGE)
    errors = " ".join(capsys.readouterr().err.split())
    assert left.value.code == 2 and "Traceback" not in errors
    assert "no-such-1, no_such_2 are not installed here: `pip install no-such-1 no_such_2`" in errors


def test_a_source_without_a_text_fails_whatever_may_be_lost_and_beside_a_good_one():
    write_jsonl("good.jsonl", corpus(20))
    no_such_field()
    with pytest.raises(InputError, match="source jsonl a.jsonl has no text"):
        curate(CurateConfig(sources=(source("good.jsonl"), source()), most_lost_share=1, lost_share_documents=10_000))
    pq.write_table(pa.table({"text": pa.nulls(3, pa.string()), "body": ["x"] * 3}), "a.parquet")
    with pytest.raises(InputError, match=r"check its text_field \('text'\): the first record has 'text', 'body'"):
        curate(CurateConfig(sources=(source("good.jsonl"), source("a.parquet", kind="parquet", id_field=None))))


def test_a_folder_is_answered_with_a_pattern_of_the_kind():
    Path("pages").mkdir()
    with pytest.raises(InputError, match=r"pages: this is a folder; name its files, such as pages/\*.html"):
        curate(CurateConfig(sources=(source("pages", kind="html", id_field=None),)))


def test_damaged_records_of_an_archive_are_warned_of():
    write_jsonl("a.jsonl", corpus(20))
    members = [gzip.compress(page(number)) for number in range(4)]
    members[1] = members[1][:40] + b"damage" + members[1][46:]
    Path("w.warc.gz").write_bytes(b"".join(members))
    warnings = []
    curate(
        CurateConfig(sources=(source(), Source(kind="warc", path="w.warc.gz", domain="web", quality="none"))),
        listeners=(lambda event: warnings.append(event["text"]) if event["kind"] == "warning" else None,),
    )
    assert len(warnings) == 1
    assert re.fullmatch(r"w.warc.gz: damaged records left out: 1 \(\d+ bytes\); .*", warnings[0])


def page(number: int) -> bytes:
    """A record of a web archive."""
    text = corpus(1, seed=number)[0]["text"]
    http = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<body><p>{text}</p></body>"
    return (
        "WARC/1.0\r\nWARC-Type: response\r\nWARC-Date: 2020-01-01T00:00:00Z\r\nWARC-Record-ID: <urn:x:1>\r\n"
        f"WARC-Target-URI: http://a/{number}\r\nContent-Type: application/http; msgtype=response\r\n"
        f"Content-Length: {len(http)}\r\n\r\n{http}\r\n\r\n"
    ).encode()


def test_records_of_invalid_utf8_cost_only_themselves(monkeypatch, capsys):
    write_jsonl("a.jsonl", corpus(20))
    with open("a.jsonl", "ab") as file:
        file.write(b'{"text": "\xff\xfe"}\n')
    Path("r.toml").write_text('name = "t"\n[[curate.sources]]\nkind = "jsonl"\npath = "a.jsonl"\ndomain = "web"\n')
    monkeypatch.setattr(sys, "argv", ["curate", "r.toml"])
    with pytest.raises(SystemExit) as left:
        main(STAGE)
    assert left.value.code == 0
    (made,) = Store(Path()).all("curate")
    assert made.facts["sources"][0]["rejected"] == {"invalid UTF-8": 1}
    assert made.facts["domains"]["web"]["documents_in"] == 21
