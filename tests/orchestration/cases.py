"""The cases of the kill matrix: what is done to a training or to the desk, and in which state its run ends then."""

import signal
from collections.abc import Callable, Sequence

import psutil

from stages.pretrain.supervision.moments import Kind
from tests.orchestration import families
from tests.orchestration.trial import Case, Disturbed

COMPLETED, CRASHED, CANCELLED = "COMPLETED", "CRASHED", "CANCELLED"


def kill(chosen: Callable[[Disturbed], Sequence[psutil.Process]], number: signal.Signals) -> Callable[..., None]:
    """A signal to those that are chosen, of which there must be some."""

    def disturb(disturbed: Disturbed) -> None:
        found = chosen(disturbed)
        assert found, "there is nothing to kill"
        families.send(found, number)

    return disturb


def all_at_once(disturbed: Disturbed) -> None:
    """As if the machine had lost its power; then the desk is started again."""
    disturbed.desk.end()
    disturbed.desk.up()


def keeper_kill(disturbed: Disturbed) -> None:
    """The server and the worker stay, and the next keeper finds them."""
    before = [disturbed.desk.servers(), disturbed.desk.workers()]
    families.send(disturbed.desk.keepers(), signal.SIGKILL)
    disturbed.desk.up()
    assert [disturbed.desk.servers(), disturbed.desk.workers()] == before, "they were started again"


def cancel(disturbed: Disturbed) -> None:
    """As the button of the UI does it."""
    assert disturbed.desk.api.cancel(disturbed.run) == "ACCEPT"


def cancel_and_start(disturbed: Disturbed) -> None:
    """The same training is asked for again while the ranks of the first are still leaving."""
    cancel(disturbed)
    disturbed.others.append(disturbed.training.start())


def stop_desk(disturbed: Disturbed) -> None:
    disturbed.desk.down()
    left = disturbed.desk.processes()
    assert not left, f"`down` has left {[families.command(process) for process in left]}"
    disturbed.desk.up()


def lost_steps(disturbed: Disturbed) -> list[str]:
    """The training was asked to leave and took a last checkpoint, unless it is said here."""
    ends = [end for end in disturbed.training.ends() if end["kind"] == Kind.REQUEST]
    if not ends:
        return [f"the training did not leave as one that is asked to: {disturbed.training.ends()}"]
    lost = ends[0]["step"] - disturbed.training.last_checkpoint()
    return [f"{lost} steps behind its last checkpoint are lost: {ends[0]}"] if lost > 0 else []


CASES = (
    Case(name="rank SIGKILL", disturb=kill(lambda d: families.ranks(d.family)[1:], signal.SIGKILL), state=COMPLETED),
    Case(
        name="launcher SIGKILL", disturb=kill(lambda d: families.launchers(d.family), signal.SIGKILL), state=COMPLETED
    ),
    Case(
        name="flow SIGKILL",
        disturb=kill(lambda d: [families.flow_process(d.run)], signal.SIGKILL),
        state=CRASHED,
        look=lost_steps,
    ),
    Case(name="worker SIGKILL", disturb=kill(lambda d: d.desk.workers(), signal.SIGKILL), state=COMPLETED),
    Case(name="worker SIGTERM", disturb=kill(lambda d: d.desk.workers(), signal.SIGTERM), state=CRASHED),
    Case(name="server SIGKILL", disturb=kill(lambda d: d.desk.servers(), signal.SIGKILL), state=COMPLETED),
    Case(name="keeper SIGKILL", disturb=keeper_kill, state=COMPLETED),
    Case(name="all SIGKILL", disturb=all_at_once, state=CRASHED),
    Case(name="cancel", disturb=cancel, state=CANCELLED, look=lost_steps, leaves_seconds=30.0),
    Case(name="cancel, next", disturb=cancel_and_start, state=CANCELLED, look=lost_steps, leaves_seconds=30.0),
    Case(name="desk stopped", disturb=stop_desk, state=CRASHED, look=lost_steps),
)
