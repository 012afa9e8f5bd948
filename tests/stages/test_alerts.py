"""A user relies on: told once that something got worse and once that it is well again, whoever is killed in between."""

import itertools
import threading
from pathlib import Path

import pytest

from stages.alerts import LEDGER, Finding, Kind, Ledger, Look, State, Topic, decide, read

HOOK, MAIL = "webhook/ops", "email/team"


def topic(task: str = "bracket", label: str = "demo", kind: Kind = Kind.REGRESSION) -> Topic:
    return Topic(label=label, kind=kind, suite="core", task=task)


def finding(each: Topic) -> Finding:
    return Finding(topic=each, text=f"{each.task} got worse", evidence={"baseline": 0.9, "candidate": 0.5})


def look(*tasks: str, label: str = "demo", kind: Kind = Kind.REGRESSION, unknown: tuple[str, ...] = ()) -> Look:
    found = tuple(finding(topic(task, label, kind)) for task in tasks)
    return Look(label=label, kind=kind, found=found, unknown=frozenset(unknown))


def ledger(root: Path) -> Ledger:
    ticks = itertools.count(1000)
    return Ledger(root, clock=lambda: float(next(ticks)))


def test_everything_that_one_look_changes_is_one_notice() -> None:
    opened = {topic("word"): finding(topic("word")), topic("indent"): finding(topic("indent"))}
    (raised,), (resolved,) = decide(opened, look("bracket", "indent", "agreement"), 5.0)
    assert raised.topics == (("core", "agreement"), ("core", "bracket")) and raised.state is State.RAISED
    assert resolved.topics == (("core", "word"),) and resolved.text == "no longer so: word got worse"
    assert raised.title == "demo: regression (agreement, bracket)" and "recovered" in resolved.title


def test_what_is_open_is_not_raised_again_and_a_recovery_is_told_once(tmp_path: Path) -> None:
    book = ledger(tmp_path)
    told = [len(book.record([look(*tasks)])) for tasks in (["a"], ["a"], [], [], ["a"], ["a", "b"])]
    assert told == [1, 0, 1, 0, 1, 1]
    assert set(book.known().opened) == {topic("a"), topic("b")}
    assert book.known().opened[topic("a")].evidence == {"baseline": 0.9, "candidate": 0.5}


def test_a_look_says_nothing_of_what_it_did_not_look_at(tmp_path: Path) -> None:
    book = ledger(tmp_path)
    book.record([look("a", "b", "c"), look("a", label="other"), look("a", kind=Kind.MISSING)])
    book.record([look("a", unknown=("b",))])
    left = {topic("a"), topic("b"), topic("a", label="other"), topic("a", kind=Kind.MISSING)}
    assert set(book.known().opened) == left


@pytest.mark.parametrize("cut", [1, 20, 100])
def test_a_line_that_a_kill_has_torn_was_never_told(tmp_path: Path, cut: int) -> None:
    book = ledger(tmp_path)
    book.record([look("a")])
    whole = (tmp_path / LEDGER).read_bytes()
    book.record([look("a", "b")])
    second = (tmp_path / LEDGER).read_bytes()[len(whole) :]
    (tmp_path / LEDGER).write_bytes(whole + second[: -1 - cut])
    assert set(read(tmp_path / LEDGER).opened) == {topic("a")}
    assert [notice.topics for notice in book.record([look("a", "b")])] == [(("core", "b"),)]
    assert set(read(tmp_path / LEDGER).opened) == {topic("a"), topic("b")}


def test_a_notice_is_pending_until_each_channel_has_it(tmp_path: Path) -> None:
    book = ledger(tmp_path)
    (notice,) = book.record([look("a")], channels=[HOOK, MAIL])
    assert book.known().pending([HOOK, MAIL]) == [(notice, HOOK), (notice, MAIL)]
    book.delivered(notice, HOOK)
    again = ledger(tmp_path)
    assert again.known().pending([HOOK, MAIL]) == [(notice, MAIL)]
    assert again.known().pending([HOOK]) == []


def test_a_channel_that_is_new_hears_of_what_is_open_alone(tmp_path: Path) -> None:
    book = ledger(tmp_path)
    book.record([look("a"), look("a", kind=Kind.MISSING)])
    book.record([look()])
    assert [notice.kind for notice, _ in book.known().pending([HOOK])] == [Kind.MISSING]


def test_two_that_look_at_once_raise_one_alert(tmp_path: Path) -> None:
    book, made = ledger(tmp_path), []
    threads = [threading.Thread(target=lambda: made.extend(book.record([look("a", "b")]))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1 and len(read(tmp_path / LEDGER).notices) == 1


def test_the_last_scheduled_look_is_known(tmp_path: Path) -> None:
    book = ledger(tmp_path)
    assert read(tmp_path / LEDGER).looked == {}
    book.looked("demo")
    book.looked("demo")
    assert book.known().looked == {"demo": 1001.0}
