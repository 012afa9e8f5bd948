"""Who is resumed, and when, decided from made-up histories."""

import pytest

from flows.desk.watch.resumes import DELAYS_SECONDS, RETRY, STOPPED, Moment, Resume, in_a_row, message_of, resume_of

DAY = 86400.0


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
