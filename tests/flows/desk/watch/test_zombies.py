"""Who is judged dead, by a clock that the tests turn."""

import itertools

import pytest

from flows.desk.watch.zombies import CANCELLED, CRASHED, GONE_SECONDS, PENDING_SECONDS, Detector, Seen, Verdict

T = 90.0


class Runs:
    """One run on one machine, looked at every ten seconds."""

    def __init__(self) -> None:
        self.detector, self.now, self.beats = Detector(T), 1000.0, itertools.count()
        self.state, self.state_id, self.beat = "RUNNING", "first", ""
        self.here = self.alive = False

    def heartbeat(self) -> None:
        self.beat = f"beat {next(self.beats)}"

    def enter(self, state: str) -> None:
        self.state, self.state_id = state, f"{state} at {self.now}"

    def look(self, seconds: float = 0.0) -> list[Verdict]:
        """After so many seconds."""
        self.now += seconds
        seen = Seen(
            id="run", state=self.state, state_id=self.state_id, beat=self.beat, here=self.here, alive=self.alive
        )
        return self.detector.look([seen], self.now)

    def looks(self, seconds: float) -> list[Verdict]:
        """What a look every ten seconds says, for so long, up to the first verdict."""
        for _ in range(int(seconds // 10)):
            if found := self.look(10):
                return found
        return []


@pytest.fixture
def runs() -> Runs:
    return Runs()


def test_a_run_that_has_completed_is_left_alone_whatever_is_heard_after_it(runs: Runs) -> None:
    runs.look()
    runs.heartbeat()
    runs.look(10)
    runs.enter("COMPLETED")
    runs.heartbeat()  # from between its end and that of its process
    assert runs.looks(100 * T) == []


def test_a_run_whose_heartbeats_are_slow_but_come_is_left_alone(runs: Runs) -> None:
    for _ in range(50):
        runs.heartbeat()
        assert runs.look() == [] and runs.look(0.5 * T) == []
        runs.now += 0.4 * T
    runs.heartbeat()
    assert runs.look() == [] and runs.looks(T - 10) == [], "not before a whole period is over"
    assert runs.looks(10) != [], "negative control: without any, it is dead"


def test_silence_is_death_after_a_period_and_says_so(runs: Runs) -> None:
    runs.look()
    runs.heartbeat()
    assert runs.looks(T) == []
    assert runs.look(10) == [Verdict(id="run", state=CRASHED, message="no heartbeat for 90 s")]


def test_a_run_that_never_beat_is_dead_after_the_same_period(runs: Runs) -> None:
    runs.look()
    assert runs.looks(T - 10) == [] and len(runs.look(10)) == 1


def test_after_the_server_was_away_each_run_has_a_full_period(runs: Runs) -> None:
    runs.look()
    assert runs.look(T - 1) == []
    runs.detector.away()
    runs.now += 3600
    assert runs.look() == [] and runs.look(T - 1) == []
    assert len(runs.look(1)) == 1


def test_a_process_that_is_gone_here_is_death_at_once_but_not_at_first_sight(runs: Runs) -> None:
    runs.here = runs.alive = True
    assert runs.looks(10 * T) == [], "it lives: silence means nothing"
    runs.alive = False
    assert runs.look(1) == [] and runs.look(GONE_SECONDS - 1) == [], "its worker may be about to say how it ended"
    (verdict,) = runs.look(1)
    assert verdict.state == CRASHED and "gone" in verdict.message


def test_a_process_that_comes_back_was_not_gone(runs: Runs) -> None:
    """A run that is started again: for a moment there is none."""
    runs.here = True
    runs.look()
    runs.alive = True
    runs.look(GONE_SECONDS - 1)
    runs.alive = False
    assert runs.look(1) == [] and runs.look(GONE_SECONDS - 1) == []


def test_a_change_of_state_begins_all_periods_anew(runs: Runs) -> None:
    runs.here = True
    runs.look()
    runs.enter("RUNNING")
    assert runs.look(GONE_SECONDS) == []
    assert len(runs.look(GONE_SECONDS)) == 1


def test_a_run_that_is_cancelled_and_gone_is_cancelled(runs: Runs) -> None:
    runs.here = True
    runs.enter("CANCELLING")
    runs.look()
    (verdict,) = runs.look(GONE_SECONDS)
    assert verdict.state == CANCELLED


def test_a_reservation_without_a_process_has_longer(runs: Runs) -> None:
    runs.enter("PENDING")
    runs.here = True
    runs.look()
    assert runs.look(PENDING_SECONDS - 1) == [] and len(runs.look(1)) == 1
    elsewhere = Runs()
    elsewhere.enter("PENDING")
    elsewhere.look()
    assert elsewhere.looks(290) == [] and len(elsewhere.look(10)) == 1


def test_a_run_that_waits_is_not_judged(runs: Runs) -> None:
    for state in ("SCHEDULED", "PAUSED", "FAILED", "CANCELLED", "CRASHED"):
        runs.enter(state)
        assert runs.looks(10 * T) == []
