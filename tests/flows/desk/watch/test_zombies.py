"""Who is judged dead, by a clock that the tests turn; and who is resumed."""

import itertools

import pytest

from flows.desk.watch.resumes import DELAYS_SECONDS, RETRY, STOPPED, Moment, Resume, in_a_row, message_of, resume_of
from flows.desk.watch.zombies import CANCELLED, CRASHED, GONE_SECONDS, PENDING_SECONDS, Detector, Seen, Verdict

T = 90.0
DAY = 86400.0


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


class History:
    """The states of a run, as they come."""

    def __init__(self) -> None:
        self.moments, self.now = [Moment(type="SCHEDULED", name="Scheduled", message="", time=0.0)], 0.0

    def enter(self, type: str, name: str = "", message: str = "", after: float = 1.0) -> None:
        self.now += after
        self.moments.append(Moment(type=type, name=name or type.title(), message=message, time=self.now))

    def work(self, seconds: float, message: str = "killed") -> None:
        self.enter("PENDING")
        self.enter("RUNNING")
        self.enter("CRASHED", message=message, after=seconds)

    def resume(self, most: int = 3) -> Resume | None:
        """What is decided, and done."""
        found = resume_of(self.moments, self.now, most)
        if found:
            self.enter("SCHEDULED", RETRY, message_of(found, most))
            self.enter("SCHEDULED", "Late")  # Prefect's own, where the worker takes its time
        return found


def test_a_crash_is_resumed_so_many_times_in_a_row_each_time_later() -> None:
    history, delays = History(), []
    for _ in range(3):
        history.work(30)
        crashed = history.now
        found = history.resume()
        assert found
        delays.append(found.time - crashed)
    assert tuple(delays) == DELAYS_SECONDS[:3] == tuple(sorted(delays))
    assert [found.number, found.reason] == [3, "killed"]
    history.work(30)
    assert history.resume() is None
    assert in_a_row(history.moments) == 3


def test_an_hour_of_work_begins_the_count_anew() -> None:
    history = History()
    for expected in (1, 2, 3, 1, 2):
        history.work(3700 if expected == 1 else 30)
        found = history.resume()
        assert found and found.number == expected


def test_whoever_retries_by_hand_begins_it_too() -> None:
    history = History()
    for _ in range(3):
        history.work(30)
        history.resume()
    history.work(30)
    assert history.resume() is None
    history.enter("SCHEDULED", RETRY, "Retry from the UI")
    history.work(30)
    found = history.resume()
    assert found and found.number == 1


@pytest.mark.parametrize("state", ["FAILED", "CANCELLED", "COMPLETED", "RUNNING", "CANCELLING", "SCHEDULED"])
def test_only_a_crash_is_resumed(state: str) -> None:
    history = History()
    history.enter("RUNNING")
    history.enter(state)
    assert history.resume() is None


def test_what_somebody_cancelled_is_not_resumed_however_it_ended() -> None:
    history = History()
    history.enter("RUNNING")
    history.enter("CANCELLING")
    history.enter("CRASHED")
    assert history.resume() is None


def test_none_where_none_is_wanted_and_not_after_a_day() -> None:
    history = History()
    history.work(30)
    assert resume_of(history.moments, history.now, 0) is None
    assert resume_of(history.moments, history.now + DAY - 1, 3) is not None
    assert resume_of(history.moments, history.now + DAY + 1, 3) is None


def test_a_desk_that_was_stopped_goes_on_whenever_and_how_often_it_is_started() -> None:
    history = History()
    for _ in range(10):
        history.work(30, STOPPED)
        history.now += 100 * DAY
        found = history.resume()
        assert found == Resume(time=history.now - 2, number=0, reason=STOPPED)
    history.work(30, STOPPED)
    history.enter("CRASHED", message="aborted by a termination signal")
    found = history.resume()
    assert found and found.reason == STOPPED and found.number == 0, "what the run itself says of it changes nothing"
    history.work(30)
    found = history.resume()
    assert found and found.number == 1
