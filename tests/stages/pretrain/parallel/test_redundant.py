from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from stages.pretrain.parallel.redundant_members import RETRY_SECONDS, Membership, Roster, dealt, most_advanced
from tests.stages.pretrain.parallel.replicated import STEPS, Fault, Supervisor, alone


def of_step(lines: list[dict[str, Any]], name: str) -> list[set[Any]]:
    """The values that all ranks have seen, for each step in its order."""
    found: dict[int, set[Any]] = {}
    for line in lines:
        if "step" in line:
            found.setdefault(line["step"], set()).add(line[name])
    assert list(sorted(found)) == list(range(1, STEPS + 1))
    return [found[step] for step in sorted(found)]


def check(lines: list[dict[str, Any]], *, ranks: int, group_processes: int) -> None:
    """That the training was the undisturbed one, that each process has completed each step at most once and in order,
    and that all replicas hold the same bits and the same history at the end."""
    for seen, loss in zip(of_step(lines, "loss"), alone(), strict=True):
        assert len(seen) == 1
        assert seen.pop() == pytest.approx(loss, rel=1e-5)
    for pid in {line["pid"] for line in lines}:
        steps = [line["step"] for line in lines if line["pid"] == pid and "step" in line]
        assert steps == list(range(steps[0], steps[0] + len(steps))) if steps else True
    done = [line for line in lines if "done" in line]
    assert len(done) == ranks
    assert Counter((line["rank"], line["done"]) for line in done).keys() == {
        (rank, next(line["done"] for line in done if line["rank"] == rank)) for rank in range(group_processes)
    }
    assert {line["seen"] for line in done} == {"".join(f"{step} " for step in range(1, STEPS + 1))}


def test_groups_of_one_process_live_on_without_each_other_and_heal(tmp_path: Path) -> None:
    """One is killed in the middle of a step; the one that writes, when others have completed the step and it has not;
    one while it heals another; one while it is healed; and connections break although nobody dies."""
    faults = [
        Fault("sum", 4, group=1, rank=0, kind="kill"),
        Fault("update", 9, group=0, rank=0, kind="kill"),
        Fault("sum", 15, group=2, rank=0, kind="cut"),
        Fault("forward", 16, group=2, rank=0, kind="kill"),
        Fault("sending", -1, group=1, rank=0, kind="kill", start=1),
        Fault("receiving", -1, group=2, rank=0, kind="kill", start=1),
    ]
    supervisor = Supervisor(tmp_path, groups=3, group_processes=1, faults=faults, waits_at=(8, 14, 20))
    lines = supervisor.run()
    check(lines, ranks=3, group_processes=1)
    assert [group for group, _ in supervisor.lost] == [1, 0, 2, 1, 2]
    sizes = [max(seen) for seen in of_step(lines, "size")]
    assert sizes[0] == sizes[7] == sizes[13] == sizes[19] == sizes[-1] == 3
    assert sizes[3] == 2, "the step in which a group was lost was not made by the others alone"
    writers = [{line["group"] for line in lines if line.get("step") == step and line["writes"]} for step in (1, 14)]
    assert writers == [{0}, {2}], "who was there before the others does not write"
    assert all(len(seen) == 1 for seen in of_step(lines, "size")), "groups have not agreed on who trains"


def test_groups_that_shard_live_on_without_each_other_and_heal(tmp_path: Path) -> None:
    """One rank of a group is killed, and with it the group; then one while it is healed."""
    faults = [
        Fault("sum", 5, group=1, rank=1, kind="kill"),
        Fault("receiving", -1, group=1, rank=0, kind="kill", start=1),
        Fault("sum", 21, group=0, rank=1, kind="cut"),
    ]
    supervisor = Supervisor(tmp_path, groups=2, group_processes=2, faults=faults, waits_at=(20,))
    lines = supervisor.run()
    check(lines, ranks=4, group_processes=2)
    survivors = supervisor.pids[0]
    assert len(survivors) == 2 and {line["pid"] for line in lines if "done" in line} >= set(survivors)
    assert [group for group, _ in supervisor.lost] == [1, 1]


def test_the_roster_ends_an_epoch_when_a_group_is_lost_when_one_joins_and_when_all_have_lost_each_other(
    tmp_path: Path,
) -> None:
    now = [0.0]
    folder = tmp_path / "redundancy"
    roster = Roster(folder, num_groups=3, group_processes=2, clock=lambda: now[0])
    first = Membership(folder, group=0, rank=0)
    begun = first.newest()
    assert (begun.epoch, begun.groups, begun.writer) == (1, (0, 1, 2), 0)

    roster.lost(0)
    assert (roster.members.epoch, roster.members.groups, roster.members.writer) == (2, (1, 2), 1)
    assert first.is_over(begun) and not first.is_over(first.newest())

    roster.joins(0)
    first.announce()
    assert roster.poll() == (), "taken in with half of its ranks"
    Membership(folder, group=0, rank=1).announce()
    assert roster.poll() == (0,)
    joined = first.newest()
    assert (joined.epoch, joined.groups) == (3, (1, 2, 0))
    assert first.is_over(begun), "its group is there again, but not the one of that epoch"
    assert [dealt(joined, group=group, rank=1, group_processes=2) for group in (0, 1)] == [(5, 6), (1, 6)]

    first.report_broken(joined)
    assert roster.poll() == ()
    now[0] += RETRY_SECONDS
    roster.poll()
    assert (roster.members.epoch, roster.members.groups) == (4, (1, 2, 0))
    assert not first.is_over(joined), "all of its members are there still"

    for group in (0, 1, 2):
        roster.joins(0) if group == 2 else None
        roster.lost(group)
    assert roster.members.groups == ()
    assert roster.poll() == ()


def test_the_most_advanced_group_is_the_source_and_without_a_state_there_is_none(tmp_path: Path) -> None:
    members = Roster(tmp_path / "redundancy", num_groups=3, group_processes=1).members
    assert most_advanced(members, [4, 5, 5]) == 1
    assert most_advanced(members, [-1, 0, -1]) == 1
    assert most_advanced(members, [-1, -1, -1]) is None
