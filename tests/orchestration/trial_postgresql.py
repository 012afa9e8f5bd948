"""The desk on PostgreSQL, and two servers of it on one database with Redis between them:
`python -m tests.orchestration.trial_postgresql [PART …]`.

The parts are those of trial_triggers, on a PostgreSQL of this machine, and `servers`: what is asked of one server is
done through another, which alone has the services. Where PostgreSQL, Redis or the package prefect-redis is not
installed, what needs it is left out, and said. The last line is one JSON object.
"""

import argparse
import importlib.util
import sys
import tempfile
import time
import uuid
from datetime import datetime
from pathlib import Path

from flows.desk.settings import DATABASE_URL, REDIS_URL
from tests.benchmarks.harness import report
from tests.flows.receiver import Receiver, receiving
from tests.orchestration.api import wait_for
from tests.orchestration.desk import Desk
from tests.orchestration.triggers import NEVER, RUN_SECONDS, Row, Story
from tests.services import postgresql, redis

PARTS = ("triggers", "slots")
SERVERS = "servers"
TOLD_SECONDS = 60.0


def two_servers(folder: Path, receiver: Receiver, database: str, broker: str) -> tuple[list[Row], list[str]]:
    """(what was seen, what is not as it should be) with a server that has no services beside the whole desk."""
    variables = {DATABASE_URL: database, REDIS_URL: broker}
    shared = {"database": "postgresql", "redis": True}
    hook = {"type": "webhook", "name": "trial", "fields": {"url": receiver.url}}
    problems: list[str] = []
    with (
        Desk(folder / "whole", variables=variables, blocks=[hook], notify=["webhook/trial"], **shared) as whole,
        Desk(folder / "other", variables=variables, parts=["server"], **shared) as other,
    ):
        whole.up()
        began = time.monotonic()
        other.up()
        rows: list[Row] = [("another server", "is up", f"{time.monotonic() - began:.1f}")]
        run = other.api.start("stage/curate", {"recipe": whole.recipe(), "root": str(whole.root)})
        state = whole.api.wait(run, seconds=RUN_SECONDS)["state"]
        if state["type"] != "COMPLETED":
            problems.append(f"a run that was asked of the other server is {state['name']}: {state['message']}")
        rows.append(("a run asked of the other server", f"is {state['name'].lower()}, by the worker of the first", ""))
        event = {
            "id": str(uuid.uuid4()),
            "occurred": datetime.now().astimezone().isoformat(),
            "event": "disk.low",
            "resource": {"prefect.resource.id": "longhaul.disk.trial"},
            "payload": {"text": "of the trial"},
        }
        began = time.monotonic()
        other.api.call("POST", "/events", [event])
        wait_for(lambda: receiver.bodies, TOLD_SECONDS, "an event that the other server took has told nobody")
        rows.append(
            ("an event that the other server took", "told by the automation", f"{time.monotonic() - began:.1f}")
        )
        if len(receiver.bodies) != 1:
            problems.append(f"told {len(receiver.bodies)} times")
    return rows, problems


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=f"{', '.join((*PARTS, SERVERS))}, …; without any: these")
    parts = parser.parse_args().parts or [*PARTS, SERVERS]
    rows: list[Row] = []
    problems: list[str] = []
    figures: dict[str, float] = {}
    if reason := postgresql.reason_to_skip():
        print(f"left out: {reason}")
        parts = []
    if SERVERS in parts and (reason := _reason_against_redis()):
        print(f"left out: {SERVERS}: {reason}")
        parts.remove(SERVERS)
    with tempfile.TemporaryDirectory(prefix="longhaul-postgresql-trial-") as place:
        if told := [part for part in parts if part != SERVERS]:
            with postgresql.postgresql() as url, receiving() as receiver:
                story = Story(
                    Path(place) / "one",
                    receiver,
                    variables={DATABASE_URL: url},
                    database="postgresql",
                    regression_cron=NEVER,
                )
                story.tell(*told)
                rows += story.rows
                problems += story.problems
                figures |= story.figures
        if SERVERS in parts:
            with postgresql.postgresql() as url, redis.redis() as broker, receiving() as receiver:
                more, wrong = two_servers(Path(place) / "two", receiver, url, broker)
                rows += more
                problems += wrong
    print()
    print("".join(f"NOT AS IT SHOULD BE: {problem}\n" for problem in problems))
    headers = ("what", "came of it", "after s")
    report("postgresql", headers, rows, {**figures, "problems": len(problems)}, ["prefect"], keep=False)
    sys.exit(1 if problems else 0)


def _reason_against_redis() -> str:
    if importlib.util.find_spec("prefect_redis") is None:
        return "the package prefect-redis is not installed (pip install -e '.[redis]')"
    return redis.reason_to_skip()


if __name__ == "__main__":
    main()
