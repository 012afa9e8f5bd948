"""A run that falls silent is told once."""

from flows.desk.watch.stalls import Active, Stalls


def test_a_stall_is_told_once_and_the_next_one_again() -> None:
    stalls = Stalls(60.0)

    def look(last: float, now: float) -> list[str]:
        return [run.id for run in stalls.look([Active(id="a", name="a", last=last)], now)]

    assert look(0, 59) == []
    assert look(0, 60) == ["a"] and look(0, 90) == [] and look(0, 1e6) == []
    assert look(1e6, 1e6 + 59) == [] and look(1e6, 1e6 + 60) == ["a"]


def test_a_run_that_ended_is_forgotten() -> None:
    stalls, run = Stalls(60.0), Active(id="a", name="a", last=0.0)
    assert stalls.look([run], 100) == [run]
    assert stalls.look([], 200) == []
    assert stalls.look([run], 300) == [run]
