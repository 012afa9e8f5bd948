"""A user relies on: what somebody may wait for arrives in Prefect as an event, warnings are seen, and no journal is so
long that it floods the server."""

import asyncio
import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flows.showing import events as of_prefect
from flows.showing import notify, progress
from flows.showing.notify import BURST, LINES_OF_A_RECORD, Notifier
from flows.stage_task import Run
from stages.recipe import load, parse
from tests.end_to_end.shell import TINY

Records = list[logging.LogRecord]
MINUTE = 60.0


class Clock:
    """Seconds, as a test sets them."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Iterator[list[dict[str, Any]]]:
    """Events that leave; records stand in caplog."""
    events: list[dict[str, Any]] = []
    caplog.set_level(logging.DEBUG, "flow")
    monkeypatch.setattr(notify, "get_run_logger", lambda: logging.getLogger("flow"))
    monkeypatch.setattr(of_prefect, "emit_event", lambda kind, **more: events.append({"kind": kind, **more}))
    yield events


def run() -> Run:
    return Run(load(TINY), Path())


def told(events: list[dict[str, Any]], clock: Clock, run: Run, seconds_between: float = 0.0) -> None:
    """Give a notifier these events of a stage, so far apart, and leave it."""

    async def main() -> None:
        async with Notifier(run, "pretrain", clock) as notifier:
            for event in events:
                notifier({"time": clock.now, "stage": "pretrain", **event})
                clock.now += seconds_between

    asyncio.run(main())


@pytest.mark.parametrize(
    ("kind", "emitted"),
    [
        ("incident", True),
        ("excluded", True),
        ("store.stalled", True),
        ("account", False),
        ("checkpoint.saved", True),
        ("export.refused", True),
        ("note", False),
    ],
)
def test_what_somebody_may_wait_for_becomes_an_event(sent: list[dict[str, Any]], kind: str, emitted: bool) -> None:
    told([{"kind": kind, "documents": {"code": ["a"]}, "text": "x"}], Clock(), run())
    assert [event["kind"] for event in sent] == ([kind] if emitted else [])
    for event in sent:
        assert event["payload"]["documents"] == {"code": ["a"]} and event["resource"]["longhaul.recipe"] == "tiny"


@pytest.mark.parametrize(("evaluates", "wanted"), [(False, "wanted"), (True, "beside")])
def test_a_healthy_checkpoint_says_all_that_its_evaluation_needs(
    sent: list[dict[str, Any]], evaluates: bool, wanted: str
) -> None:
    event = {"kind": "checkpoint.healthy", "step": 20, "key": "0123456789ab", "heldout_loss": 3.0}
    told([event], Clock(), replace(run(), evaluates=evaluates))
    (found,) = sent
    assert found["resource"] == {
        "prefect.resource.id": "longhaul.checkpoint.0123456789ab",
        "prefect.resource.name": "tiny step 20",
        "longhaul.recipe": "tiny",
        "longhaul.evaluation": wanted,
    }
    assert found["payload"]["key"] == "0123456789ab" and Path(found["payload"]["root"]).is_absolute()
    assert parse(json.loads(found["payload"]["recipe_json"])) == load(TINY)


def test_ten_thousand_lines_a_minute_are_one_record_a_second(
    sent: list[dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    lines = [{"kind": "metric", "step": step, "loss": 3.0} for step in range(9_000)]
    lines += [{"kind": "note", "text": f"note {number}"} for number in range(1_000)]
    told(lines, Clock(), run(), seconds_between=MINUTE / len(lines))
    assert MINUTE - 5 <= len(caplog.records) <= MINUTE + 1
    last = caplog.records[-1].getMessage()
    assert last.splitlines()[-1] == "pretrain note text=note 999", "the last line is told"
    assert len(last.splitlines()) <= LINES_OF_A_RECORD + 2
    notes = "\n".join(record.getMessage() for record in caplog.records).count("note text")
    left_out = [line for record in caplog.records for line in record.getMessage().splitlines() if "only in the" in line]
    assert notes + sum(int(line.split()[0].replace(",", "")) for line in left_out) == 1000, (
        "what is left out is counted"
    )


def test_a_few_lines_are_all_told_within_a_second(
    sent: list[dict[str, Any]], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where nothing comes after them, and the stage goes on."""
    monkeypatch.setattr(notify, "LOG_SECONDS", 0.05)

    async def main() -> None:
        async with Notifier(run(), "preflight") as notifier:
            for number in range(6):
                notifier({"stage": "preflight", "kind": "check", "name": f"check {number}"})
            await asyncio.sleep(0.5)
            said = "\n".join(record.getMessage() for record in caplog.records)
            assert [f"check {number}" in said for number in range(6)] == [True] * 6
            assert len(caplog.records) == 2

    asyncio.run(main())


def test_warnings_are_told_at_once_until_they_are_a_flood(
    sent: list[dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    few = [{"kind": "warning", "text": f"few {number}"} for number in range(5)]
    told(few, Clock(), run())
    assert [record.getMessage() for record in caplog.records] == [f"pretrain: few {number}" for number in range(5)]
    caplog.clear()
    many = [{"kind": "warning", "text": f"many {number}"} for number in range(10_000)]
    told(many, Clock(), run(), seconds_between=MINUTE / len(many))
    assert all(record.levelno == logging.WARNING for record in caplog.records)
    assert BURST <= len(caplog.records) <= BURST + MINUTE + 2
    assert "more warnings are in its journal" in caplog.records[-1].getMessage()


def test_an_error_is_an_error(sent: list[dict[str, Any]], caplog: pytest.LogCaptureFixture) -> None:
    told([{"kind": "error", "text": "curate failed (exit code 2): no text"}], Clock(), run())
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("ERROR", "curate failed (exit code 2): no text")
    ]


def test_events_of_one_kind_do_not_flood_the_server_and_stop_no_other(
    sent: list[dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    told([{"kind": "store.stalled"}] * 5000 + [{"kind": "incident"}], Clock(), run())
    assert len(sent) == BURST + 1 and sent[-1]["kind"] == "incident"
    assert caplog.records[-1].getMessage() == f"pretrain: {5000 - BURST} more events store.stalled are in its journal"


def test_an_event_that_cannot_be_sent_stops_nothing(
    sent: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise ConnectionError("the server is away")

    monkeypatch.setattr(of_prefect, "emit_event", refuse)
    told([{"kind": "incident", "cause": "killed"}], Clock(), run())
    assert any("the server is away" in record.getMessage() for record in caplog.records)
    assert caplog.records[-1].getMessage() == "pretrain incident cause=killed", "and it is in the log"


def test_numbers_in_a_line_are_rounded(sent: list[dict[str, Any]], caplog: pytest.LogCaptureFixture) -> None:
    event = {"kind": "metric", "step": 1234567, "loss": 5.054199457168579, "by": {"code": [1.23456789e-9]}, "ok": True}
    told([event], Clock(), run())
    said = "pretrain metric step=1234567 loss=5.0542 by={'code': [1.2346e-09]} ok=True"
    assert caplog.records[-1].getMessage() == said


class Shown:
    """What Prefect is asked to show, and how long that takes."""

    def __init__(self, seconds: float = 0.0, fails: bool = False) -> None:
        self.seconds, self.fails = seconds, fails
        self.asked: list[tuple[str, float, str]] = []
        self.created = 0

    async def create(self, percent: float, *, key: str, description: str) -> str:
        self.created += 1
        return await self._note(key, percent, description)

    async def update(self, made: str, percent: float, *, description: str) -> str:
        return await self._note(made, percent, description)

    async def _note(self, key: str, percent: float, description: str) -> str:
        await asyncio.sleep(self.seconds)
        self.asked.append((key, percent, description))
        if self.fails:
            raise ConnectionError("the server is away")
        return key


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Shown:
    found = Shown()
    monkeypatch.setattr(progress, "acreate_progress_artifact", found.create)
    monkeypatch.setattr(progress, "aupdate_progress_artifact", found.update)
    return found


async def advance(steps: int, run: Run, seconds: float = 60.0) -> None:
    bar = progress.Progress(run, "pretrain", seconds)
    for done in range(1, steps + 1):
        bar({"name": "training", "done": done, "total": steps, "unit": "steps"})
        await asyncio.sleep(0)
    await bar.close()


def test_progress_is_shown_seldom_and_exact_in_the_end(shown: Shown) -> None:
    asyncio.run(advance(1000, run()))
    first, last = shown.asked
    assert first[0] == last[0] == "progress-pretrain-tiny" and first[1] < 1
    assert last[1:] == (100.0, "training: 1,000 of 1,000 steps")


def test_progress_that_cannot_be_shown_stops_nothing(shown: Shown) -> None:
    shown.fails = True
    asyncio.run(advance(10, run()))
    assert shown.asked


def test_what_is_on_its_way_at_the_end_is_waited_for_and_made_once(shown: Shown) -> None:
    shown.seconds = 0.05

    async def main() -> None:
        bar = progress.Progress(run(), "pretrain", 60.0)
        for done in (1, 2):
            bar({"name": "training", "done": done, "total": 2, "unit": "steps"})
            await asyncio.sleep(0.02)
        await bar.close()

    asyncio.run(main())
    assert shown.created == 1 and [percent for _, percent, _ in shown.asked] == [50.0, 100.0]


def test_a_server_that_does_not_answer_stops_no_stage(
    shown: Shown, sent: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "CLOSE_SECONDS", 0.05)
    shown.seconds = 60.0
    event = {"kind": "progress", "name": "a", "done": 1, "total": 2, "unit": "steps"}
    told([event, event], Clock(), run())
    assert shown.asked == []


def test_a_flow_that_is_stopped_does_not_wait_for_what_it_shows(shown: Shown, sent: list[dict[str, Any]]) -> None:
    shown.seconds = 60.0

    async def main() -> None:
        with pytest.raises(asyncio.CancelledError):
            async with Notifier(run(), "pretrain") as notifier:
                notifier({"stage": "pretrain", "kind": "progress", "name": "a", "done": 1, "total": 2, "unit": "steps"})
                await asyncio.sleep(0)
                raise asyncio.CancelledError

    asyncio.run(asyncio.wait_for(main(), 20))
    assert shown.asked == []
