from collections.abc import Callable
from pathlib import Path
from typing import Any

from stages.pretrain.job import RunDirectory, read_lines
from stages.pretrain.monitor.records import Records
from stages.pretrain.monitor.trackers import Trackers
from stages.pretrain.parallel.redundant_records import SharedRecords


def trackers(folder: Path) -> Callable[[int], Trackers]:
    return lambda step: Trackers((), folder, resumed_step=step, settings={})


def line(step: int, by: str) -> tuple[dict[str, Any], dict[str, Any]]:
    return {"step": step, "loss": step / 3, "by": by}, {"step": step, "seconds": 0.1, "by": by}


def test_the_records_of_a_lost_writer_are_gone_on_with_without_a_gap_and_without_a_line_twice(tmp_path: Path) -> None:
    """The writer was lost before it wrote its last line; or after it had written one, of which a part, that the others
    have not come to."""
    for last, torn in ((4, b""), (6, b'{"st')):
        run = RunDirectory(tmp_path / f"run-{last}")
        run.path.mkdir()
        with Records(run, writes=True) as first:
            for step in range(1, last + 1):
                first.step(*line(step, "first"))
        with run.metrics.open("ab") as file:
            file.write(torn)
        if torn:  # the line of the timing was not written at all
            run.timing.write_bytes(b"".join(run.timing.read_bytes().splitlines(keepends=True)[:-1]))
        with SharedRecords(run, trackers=trackers(run.path)) as second:
            for step in range(1, 6):
                second.step(*line(step, "second"))
            second.lead(5)
            second.lead(5)
            for step in range(6, 9):
                second.step(*line(step, "second"))
            second.vouch(1)
        for path, written in ((run.metrics, last), (run.timing, last - bool(torn))):
            found = read_lines(path)
            assert [entry["step"] for entry in found] == list(range(1, 9))
            assert [entry["by"] for entry in found] == ["first"] * written + ["second"] * (8 - written)


def test_a_rank_that_does_not_lead_writes_nothing(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    with SharedRecords(run, trackers=trackers(tmp_path)) as records:
        records.step(*line(1, "second"))
        records.vouch(1)
    assert not run.metrics.exists() and not run.peak_memory.exists()
