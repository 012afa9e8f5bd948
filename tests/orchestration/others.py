"""What belongs to the kill matrix and is no disturbed run of the desk: Ctrl-C in a terminal, and a late heartbeat."""

import os
import signal
import time
import uuid
from datetime import UTC, datetime
from pathlib import Path

from tests.orchestration import families
from tests.orchestration.api import Object, wait_for
from tests.orchestration.desk import TINY, Desk
from tests.orchestration.result import Result
from tests.orchestration.trainings import DISTURBED_STEP, SETTINGS, Training, run_stage, wall_seconds

LEAVES_SECONDS = 60.0
LATE_SECONDS = 60.0  # beyond the time after which a silent run counts as crashed
HEARTBEAT = "prefect.flow-run.heartbeat"
TRIGGERED = "prefect.automation.triggered"


def interrupted(folder: Path, upstream: Path, expected: dict[str, str]) -> Result:
    """Ctrl-C in a terminal in which the pipeline runs with a server of its own; a shell goes on with the training."""
    result, desk = Result("Ctrl-C"), Desk(folder / "terminal")
    began = time.monotonic()
    with desk:
        training = Training(desk, upstream, folder / "roots" / f"terminal-{time.time_ns():x}")
        settings = [word for setting in SETTINGS for word in ("--set", setting)]
        output = desk.folder / "output.txt"
        process = desk.start("flows.pipeline", str(TINY), "--root", str(training.root), *settings)
        training.reach(DISTURBED_STEP, lambda: "" if process.poll() is None else output.read_text()[-2000:])
        family, at = desk.processes(), time.monotonic()
        if not families.whose(family, "uvicorn"):
            result.problems.append("there is no server of its own")
        os.killpg(process.pid, signal.SIGINT)
        code = process.wait(LEAVES_SECONDS)
        result.state_seconds = time.monotonic() - at
        result.name = f"exit code {code}"
        left = families.gone(family, LEAVES_SECONDS)
        result.gone_seconds, result.orphans = time.monotonic() - at, len(left)
        result.problems += [f"outlived it: {families.command(process)}" for process in left]
        said = output.read_text(errors="replace")
        if code != 128 + signal.SIGINT or "Traceback" in said or "the same command continues" not in said:
            result.problems.append(f"{result.name}: {said[-3000:]}")
        result.checkpoint_step, result.goes_on_by = training.last_checkpoint(), "a shell"
        run_stage("pretrain", training.root)
        result.complete_seconds, result.writers = time.monotonic() - at, 1
        result.leases = len(training.leases())
        found = training.digests()
        result.digests_equal = expected.items() <= found.items()
        if not result.digests_equal or result.leases:
            result.problems.append(f"{sorted(found.items() ^ expected.items())}, {training.leases()}")
    result.seconds = time.monotonic() - began
    return result


def late_heartbeat(desk: Desk, made: Path, expected: dict[str, str]) -> Result:
    """A run completes, and only then its process says once more that it is alive, and nothing afterwards."""
    result, began = Result("late heartbeat", goes_on_by="nobody"), time.monotonic()
    training = Training(desk, made, desk.folder / f"late-{time.time_ns():x}")
    started, run = time.time(), training.start()
    state = desk.api.wait(run, seconds=LEAVES_SECONDS * 3)["state"]
    beats: list[Object] = []

    def is_heard() -> bool:
        beats[:] = [each for each in desk.api.events(HEARTBEAT) if run in each["resource"]["prefect.resource.id"]]
        return bool(beats)

    wait_for(is_heard, LEAVES_SECONDS, f"the server has no heartbeat of {run}")
    at = time.time()
    late = {
        **beats[0],
        "id": str(uuid.uuid4()),
        "occurred": datetime.now(UTC).isoformat(),
        "received": None,
        "follows": None,
    }
    desk.api.call("POST", "/events", [{name: value for name, value in late.items() if value is not None}])
    time.sleep(desk.settings["crashed_after_seconds"] + LATE_SECONDS)
    states = [each["type"] for each in desk.api.states(run)]
    result.state, result.name = state["type"], desk.api.run(run)["state"]["name"]
    result.state_seconds = result.complete_seconds = wall_seconds(state["timestamp"]) - started
    fired = [
        event
        for event in desk.api.events(TRIGGERED)
        if wall_seconds(event["occurred"]) > at and HEARTBEAT in str(event) and run in str(event)
    ]
    result.message = f"the automation fired {len(fired)} times"
    if states[-1] != "COMPLETED" or "CRASHED" in states:
        result.problems.append(f"a run that had completed went through {states}")
    if not fired:
        result.problems.append("the late heartbeat did not arm the automation: this case shows nothing")
    result.digests_equal = training.digests() == expected
    result.seconds = time.monotonic() - began
    return result
