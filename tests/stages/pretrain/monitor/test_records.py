import json
from pathlib import Path
from typing import Any

import pytest

from stages.journal import Journal
from stages.pretrain.job import RunDirectory, read_lines
from stages.pretrain.monitor.records import Records, cut_back
from stages.pretrain.monitor.summary import summary
from stages.pretrain.monitor.tail import MetricsTail
from stages.pretrain.supervision.supervise import Action, Decision, Ending
from stages.pretrain.supervision.supervisor import record_incident
from tests.stages.pretrain import micro


def steps(run: RunDirectory, first: int, last: int) -> None:
    with Records(run, writes=True) as records:
        for step in range(first, last + 1):
            timing = {"step": step, "seconds": 0.1, "data_wait_seconds": step / 100}
            records.step({"step": step, "loss": 1 / step, "tokens": step * 90}, timing)
        records.vouch(1)


def numbers(path: Path) -> list[int]:
    return [line["step"] for line in read_lines(path)]


def test_one_line_a_step_after_any_number_of_cuts(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    steps(run, 1, 10)
    whole = run.metrics.read_bytes()
    for at in (7, 3, 0):
        with open(run.metrics, "ab") as file:
            file.write(b'{"step": 11, "lo')
        cut_back(run, at)
        assert numbers(run.metrics) == numbers(run.timing) == list(range(1, at + 1))
        steps(run, at + 1, 10)
        assert run.metrics.read_bytes() == whole


def test_a_line_that_a_full_disk_cut_off_is_passed_over_and_the_next_incident_stands_by_itself(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    journal = Journal(tmp_path / "events.jsonl", stage="pretrain")
    ending = Ending(exit_code=-9, cause="why", step=7, checkpoint_step=5)
    decision = Decision(action=Action.RELAUNCH, reason="why")
    for attempt in (1, 2):
        record_incident(run, journal, ending, decision, attempt_number=attempt, resumed_step=0)
        with open(run.incidents, "ab") as file:
            file.write(b'{"attempt": 9, "cau')
    assert [line["attempt"] for line in read_lines(run.incidents)] == [1, 2]
    journal.close()


def test_the_peak_of_memory_is_that_of_all_attempts(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    for now, expected in ((700, 700), (900, 900), (300, 900)):
        with Records(run, writes=True) as records:
            assert records.peak_memory(now) == expected
    with Records(RunDirectory(tmp_path / "other"), writes=False) as records:
        records.peak_memory(1)
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("damage", ["missing", "short", "gap"])
def test_records_that_a_checkpoint_vouches_for_and_that_are_not_there_are_an_error(tmp_path: Path, damage: str) -> None:
    run = RunDirectory(tmp_path)
    steps(run, 1, 5)
    lines = run.metrics.read_bytes().splitlines(keepends=True)
    if damage == "missing":
        run.metrics.unlink()
    else:
        run.metrics.write_bytes(b"".join(lines[:3] if damage == "short" else lines[:2] + lines[3:]))
    with pytest.raises(RuntimeError, match="metrics.jsonl does not have one line for each of the first 5 steps"):
        cut_back(run, 5)


def test_only_the_main_rank_writes(tmp_path: Path) -> None:
    with Records(RunDirectory(tmp_path), writes=False) as records:
        records.step({"step": 1}, {"step": 1})
        records.vouch(1)
    assert not list(tmp_path.iterdir())


def test_the_tail_tells_of_progress_and_at_most_once_a_second_of_metrics(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    steps(run, 1, 1)
    now = [100.0]
    events: list[dict[str, Any]] = []
    journal = Journal(tmp_path / "events.jsonl", stage="pretrain", listeners=(events.append,), clock=lambda: now[0])
    tail = MetricsTail(run, micro.config(num_steps=10), journal, resumed_step=1, clock=lambda: now[0])

    def metrics() -> list[tuple[int, float | None]]:
        return [(event["step"], event["tokens_per_second"]) for event in events if event["kind"] == "metric"]

    assert tail.poll() == 1
    assert events == []
    steps(run, 2, 2)
    assert tail.poll() == 2
    now[0] += 0.5
    steps(run, 3, 3)
    assert tail.poll() == 3
    assert metrics() == [(2, None)]
    now[0] += 1.5
    steps(run, 4, 6)
    with open(run.metrics, "ab") as file:
        file.write(b'{"step": 7')
        file.flush()
        assert tail.poll() == 6
        file.write(b', "loss": 0.5, "tokens": 672}\n')
    assert tail.poll() == 7
    assert metrics() == [(2, None), (6, 4 * 90 / 2)]
    steps(run, 8, 10)
    assert tail.poll() == 10
    assert metrics()[-1][0] == 10
    waits = [event["data_wait_ratio"] for event in events if event["kind"] == "metric"]
    assert waits == [0.2, pytest.approx((3 + 4 + 5 + 6) / 40), pytest.approx((8 + 9 + 10) / 30)]
    progress = [event for event in events if event["kind"] == "progress"]
    assert (progress[-1]["done"], progress[-1]["total"], progress[-1]["unit"]) == (10, 10, "steps")
    assert json.loads((tmp_path / "events.jsonl").read_text().splitlines()[-1]) == events[-1]
    journal.close()


def test_a_summary_is_of_the_steps_that_were_measured(tmp_path: Path) -> None:
    line = {"seconds": 0.5, "mfu": 0.25, "monitor_seconds": 0.01}
    lines = [line, {**line, "mfu": 0.75, "communication": {"exposed_share": 0.125}}, {**line, "monitor_seconds": 0.04}]
    assert summary(lines) == {"mfu": 0.25, "monitor_ratio": pytest.approx(0.04), "exposed_share": 0.125}
    assert summary([{"seconds": 0.5}]) == {}


def test_the_tail_hands_on_warnings_and_how_the_machine_is_used(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    journal = Journal(tmp_path / "events.jsonl", stage="pretrain")
    tail = MetricsTail(run, micro.config(num_steps=2), journal, resumed_step=0)
    with Records(run, writes=True) as records:
        timing = {"seconds": 0.1, "data_wait_seconds": 0.0, "mfu": 0.5}
        linked = {**timing, "communication": {"exposed_share": 0.25}, "warnings": ["the link is slow"]}
        records.step({"step": 1, "tokens": 9, "activation_max": [1.0]}, {"step": 1, **linked})
        records.step({"step": 2, "tokens": 18, "gradient_norms": {"head": 1.0}}, {"step": 2, **timing, "mfu": 0.75})
    assert tail.poll() == 2
    journal.close()
    events = read_lines(tmp_path / "events.jsonl")
    assert [event["text"] for event in events if event["kind"] == "warning"] == ["step 1: the link is slow"]
    (metric,) = [event for event in events if event["kind"] == "metric"]
    assert (metric["step"], metric["mfu"], metric["exposed_share"]) == (2, 0.75, 0.25)
    assert "gradient_norms" not in metric


def test_what_writing_took_counts_as_monitoring(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    with Records(run, writes=True) as records:
        for step in range(1, 4):
            records.step({"step": step}, {"step": step, "monitor_seconds": 1.0})
    first, *others = [line["monitor_seconds"] for line in read_lines(run.timing)]
    assert first == 1.0 and all(1.0 < spent < 1.5 for spent in others)
