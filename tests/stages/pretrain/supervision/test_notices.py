"""A user relies on: signals ask the run to stop with a last checkpoint, and only a second Ctrl-C ends it at once."""

import signal
import threading
from pathlib import Path

import pytest

from stages.pretrain.supervision import notices
from stages.pretrain.supervision.notices import NOTICES, Notices, Requests


@pytest.mark.parametrize("number", NOTICES)
def test_a_notice_is_noted_and_only_a_second_interrupt_does_what_it_did_before(number: signal.Signals) -> None:
    seen: list[int] = []
    before = signal.signal(number, lambda got, frame: seen.append(got))
    try:
        with Notices() as found:
            signal.raise_signal(number)
            assert found.received is number and not seen
            signal.raise_signal(number)
            assert seen == ([number] if number == signal.SIGINT else [])
        seen.clear()
        signal.raise_signal(number)
        assert seen == [number], "the handler from before is not there again"
    finally:
        signal.signal(number, before)


def test_a_process_that_has_lost_its_lease_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    lost, seen = threading.Event(), list[int]()
    lost.set()
    monkeypatch.setattr(notices, "LOST", lost)
    before = signal.signal(signal.SIGTERM, lambda got, frame: seen.append(got))
    try:
        with Notices() as found:
            signal.raise_signal(signal.SIGTERM)
            assert seen == [signal.SIGTERM] and found.received is None
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_run_in_the_background_of_a_script_is_not_meant_by_an_interrupt() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Notices() as found:
            signal.raise_signal(signal.SIGINT)
            assert found.received is None
    finally:
        signal.signal(signal.SIGINT, before)


def test_outside_the_main_thread_nothing_is_noted_and_nothing_fails() -> None:
    found: list[object] = []

    def within() -> None:
        with Notices() as own:
            found.append(own.received)

    thread = threading.Thread(target=within)
    thread.start()
    thread.join()
    assert found == [None]


def test_a_request_stands_until_it_is_cleared(tmp_path: Path) -> None:
    requests = Requests(tmp_path / "request.json")
    assert not requests.leave_wanted()
    requests.clear()
    requests.ask_to_leave("SIGTERM")
    assert requests.leave_wanted() and Requests(tmp_path / "request.json").leave_wanted()
    requests.clear()
    assert not requests.leave_wanted()
