"""Which runs are dead although the server believes that they work, decided from what is seen and the time alone.

A run is dead when its process on this machine is gone, or when nothing has been heard of it for long. Silence is
measured by the clock of whoever looks, from the moment at which the last sign of life was noticed: clocks of other
machines play no part, and after the server was away every run gets a full period to be heard of again. A run that has
come to its end is never judged, and one whose process lives here is only silent, not dead.
"""

from collections.abc import Sequence
from dataclasses import dataclass

GONE_SECONDS = 10.0  # a process that ends says so itself, and then its worker does: both come first
PENDING_SECONDS = 60.0  # from the reservation of a run to its process, on this machine
PENDING_SILENT_SECONDS = 300.0  # the same elsewhere: a machine may first have to be found

WORKING = ("RUNNING", "CANCELLING", "PENDING")
CRASHED, CANCELLED = "CRASHED", "CANCELLED"


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A run as one look shows it. state: type of its state, as Prefect names it. state_id: of this state, another one
    after each change. beat: which heartbeat was its last; empty for none. here: whether a worker of this machine had
    it. alive: whether a process of it lives on this machine."""

    id: str
    state: str
    state_id: str
    beat: str = ""
    here: bool = False
    alive: bool = False


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The state in which a dead run ends, and why."""

    id: str
    state: str
    message: str


@dataclass
class _Life:
    sign: tuple[str, str]
    noticed: float
    gone: float | None = None


class Detector:
    """Looks again and again. Times are seconds of any clock that only goes forward."""

    def __init__(self, crashed_after_seconds: float) -> None:
        self._silent_seconds = crashed_after_seconds
        self._lives: dict[str, _Life] = {}

    def away(self) -> None:
        """The server could not be reached: nothing could be heard, so all periods begin anew."""
        self._lives.clear()

    def look(self, runs: Sequence[Seen], now: float) -> list[Verdict]:
        """Verdicts on `runs`, which are all that the server knows to be working."""
        working = [run for run in runs if run.state in WORKING]
        self._lives = {run.id: self._noticed(run, now) for run in working}
        return [verdict for run in working if (verdict := self._judge(run, now))]

    def _noticed(self, run: Seen, now: float) -> _Life:
        life, sign = self._lives.get(run.id), (run.state_id, run.beat)
        if life is None or life.sign != sign or run.alive:
            life = _Life(sign, now)
        if run.alive or not run.here:
            life.gone = None
        elif life.gone is None:
            life.gone = now
        return life

    def _judge(self, run: Seen, now: float) -> Verdict | None:
        life, pending = self._lives[run.id], run.state == "PENDING"
        if run.alive:
            return None
        silent_seconds = max(self._silent_seconds, PENDING_SILENT_SECONDS) if pending else self._silent_seconds
        if life.gone is not None and now - life.gone >= (PENDING_SECONDS if pending else GONE_SECONDS):
            message = "its process is gone, and has not said how it ended"
        elif now - life.noticed >= silent_seconds:
            message = f"no heartbeat for {now - life.noticed:.0f} s"
        else:
            return None
        return Verdict(id=run.id, state=CANCELLED if run.state == "CANCELLING" else CRASHED, message=message)
