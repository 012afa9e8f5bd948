"""What a user relies on: the ledger tells a sample that was lost or trained on twice, whatever was killed when."""

import json
from pathlib import Path

import pytest

from tests.chaos.ledger import Ledger, lost_and_doubled

EXPECTED = {step: [(0, 2 * step), (1, 2 * step + 1)] for step in range(1, 7)}


def write(folder: Path, rank: int, process: str, resume: int, first: int, last: int, *, ended: int) -> None:
    """A process that begins the steps `first` to `last` and ends those up to `ended`."""
    with open(folder / f"rank-{rank}.jsonl", "a") as file:
        for step in range(first, last + 1):
            line = {"process": process, "pid": 7, "resume": resume, "step": step, "point": "begin", "at": float(step)}
            file.write(json.dumps(line) + "\n")
            if step <= ended:
                file.write(json.dumps({**line, "point": "end", "samples": [EXPECTED[step][rank]]}) + "\n")


def judged(folder: Path) -> tuple[int, int]:
    ledger = Ledger(folder)
    ledger.poll()
    return lost_and_doubled(ledger, EXPECTED)


@pytest.mark.parametrize(
    ("resume", "first", "found"),
    [
        (2, 3, (0, 0)),  # step 3 was done twice, once in vain
        (3, 4, (0, 0)),
        (3, 5, (2, 0)),  # step 4 was skipped
        (4, 5, (1, 0)),  # a checkpoint of a step that rank 1 had not ended
    ],
)
def test_steps_count_once_from_the_checkpoint_that_was_loaded(
    tmp_path: Path, resume: int, first: int, found: tuple[int, int]
) -> None:
    for rank, ended in ((0, 4), (1, 3)):
        write(tmp_path, rank, "a", 0, 1, 4, ended=ended)
        write(tmp_path, rank, "b", resume, first, 6, ended=6)
    assert judged(tmp_path) == found


def test_a_sample_on_two_ranks_is_doubled(tmp_path: Path) -> None:
    for rank in (0, 1):
        write(tmp_path, rank, "a", 0, 1, 6, ended=6)
    assert judged(tmp_path) == (0, 0)
    write(tmp_path, 2, "c", 4, 5, 4, ended=0)
    with open(tmp_path / "rank-1.jsonl", "a") as file:
        line = {"process": "a", "pid": 7, "resume": 0, "step": 6, "point": "end", "at": 6.0}
        file.write(json.dumps({**line, "samples": [EXPECTED[6][0]]}) + "\n")
    assert judged(tmp_path) == (1, 1)


def test_it_is_read_as_it_grows(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.poll()
    assert ledger.step == 0 and ledger.began_after(0.0) is None
    write(tmp_path, 0, "a", 0, 1, 2, ended=1)
    with open(tmp_path / "rank-0.jsonl", "a") as file:
        file.write('{"process": "a"')  # a line on its way
    ledger.poll()
    assert ledger.step == 2 and ledger.age == 1 and ledger.began_after(0.5) == 1.0 and ledger.began_after(1.0) is None
