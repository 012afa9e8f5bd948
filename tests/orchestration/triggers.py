"""What starts by itself on a desk, carried through: evaluations that checkpoints trigger, the regression run on its
schedule with the alert that it raises, and the run that waits for the slot of one that is killed.

    Story(folder, receiver.url, database="sqlite").tell()
"""

import json
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from stages.compare.baselines import promote
from stages.journal import read_events
from stages.store import Artifact, Store
from stages.tables import read_tables
from tests.flows import made_chain
from tests.flows.receiver import Receiver
from tests.orchestration import families
from tests.orchestration.api import FINAL, Object, wait_for
from tests.orchestration.desk import REPOSITORY, TINY, Desk

WITHIN_SECONDS = 15.0  # from a checkpoint's health to the first line of its evaluation's journal
CHECKPOINTS = 3
CHECKPOINT_STEPS = 1500  # some 40 s: the evaluation of one is done before the next is healthy
STAGE_SECONDS = 900.0
RUN_SECONDS = 900.0
SETTLE_SECONDS = 30.0  # in which what should not happen would have happened
CRON_SECONDS = 240.0
ON_HEALTHY, NIGHTLY, PRETRAIN, CURATE = (
    "evaluate-checkpoint/on-healthy",
    "regression/nightly",
    "stage/pretrain",
    "stage/curate",
)
NEVER = "0 0 29 2 *"  # a schedule of somebody who is not interested in it
HEALTHY = "checkpoint.healthy"
UNKNOWN = "0123456789ab"  # no checkpoint has this key
Row = tuple[str, str, str]  # what was done, what came of it, in what time


class Story:
    """One desk, from its start to its end. `rows`: what was seen, for people; `figures`: the same for others;
    `problems`: what is not as it should be."""

    def __init__(
        self,
        folder: Path,
        receiver: Receiver,
        *,
        steps: int = CHECKPOINT_STEPS,
        variables: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> None:
        self.receiver, self.rows, self.problems = receiver, list[Row](), list[str]()
        self.figures: dict[str, float] = {}
        folder.mkdir(parents=True, exist_ok=True)
        self.made = made_chain.recipe(folder)
        self._settings = (
            "name=trial",
            f"pretrain.num_steps={CHECKPOINTS * steps}",
            f"pretrain.checkpoint_every_steps={steps}",
            f"suites.names=['{folder / 'small.toml'}']",
            "suites.last_names=[]",
        )
        recipes = {
            "made": self.made.model_dump(mode="json", exclude_defaults=True),
            "trial": read_tables(TINY, "recipe", "", self._settings),
        }
        for name, tables in recipes.items():
            (folder / f"{name}.json").write_text(json.dumps(tables))
        hook = {"type": "webhook", "name": "trial", "fields": {"url": receiver.url}}
        self.desk = Desk(
            folder,
            variables=variables,
            recipes=[str(folder / f"{name}.json") for name in recipes],
            **{"regression_cron": "* * * * *", **settings},
            blocks=[hook],
            notify=["webhook/trial"],
        )
        self.store = Store(self.desk.root)

    def tell(self, *parts: str) -> None:
        """All of it, or the parts that are named; what goes wrong stands in `problems`."""
        known: dict[str, Callable[[], None]] = {
            "schedule": self.schedule,
            "triggers": self.triggers,
            "duplicates": self.duplicates,
            "pipeline": self.pipeline,
            "slots": self.slots,
        }
        with self.desk:
            self._prepare()
            if not parts or "schedule" in parts:
                self._make_a_model()
            began = time.monotonic()
            self.desk.up()
            self._row("the desk", "is up", time.monotonic() - began)
            for name in parts or known:
                known[name]()

    def _prepare(self) -> None:
        """Make what stands before a training."""
        command = [sys.executable, "-m", "stages.preflight", str(self.desk.folder / "trial.json"), "--upstream"]
        command += ["--root", str(self.desk.root)]
        result = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=STAGE_SECONDS)
        if result.returncode:
            raise RuntimeError(f"preflight ended with {result.returncode}:\n{result.stderr[-4000:]}")

    def _make_a_model(self) -> None:
        """That of another chain, for the regression run to judge."""
        self.training = made_chain.publish_chain(self.store, self.made, made_chain.documents())
        self.model = made_chain.trained_model()
        made_chain.publish_step(self.store, self.training, self.model, 40, last=True)

    def schedule(self) -> None:
        """The regression run starts by its cron; a model that got worse is told once, through the automation."""
        good = self._next_regression(0)
        self._expect(good["auto_scheduled"], "the first regression run was not started by its schedule")
        promote(self.store, self._evaluations("made")[0], "main")
        worse = made_chain.worse_by(0.02, self.model)
        made_chain.publish_step(self.store, self.training, worse, 50, last=True)
        published = time.time()
        wait_for(self._regressions_told, CRON_SECONDS, lambda: f"told: {self.receiver.bodies}")
        run = next(
            run for run in self._runs(NIGHTLY) if seconds(run["start_time"] or run["expected_start_time"]) > published
        )
        scheduled, told = seconds(run["expected_start_time"]), time.time()
        self._row("planted regression", "told by the webhook after its scheduled time", told - scheduled)
        self.figures |= {"alert_after_schedule_seconds": round(told - scheduled, 1)}
        self._row("", "and after it was published", told - published)
        done = len(self._regressions_done())
        self._next_regression(done)
        self._next_regression(done + 1)
        count = len(self._regressions_told())
        self._expect(count == 1, f"the regression was told {count} times: {self.receiver.bodies}")
        self.desk.api.call("PATCH", f"/deployments/{self.desk.api.deployment(NIGHTLY)['id']}", {"paused": True})
        wait_for(self._no_regression_waits, RUN_SECONDS, "regression runs do not end")
        failed = [run["name"] for run in self._runs(NIGHTLY) if run["state_type"] not in ("COMPLETED", "SCHEDULED")]
        self._expect(not failed, f"regression runs that did not complete: {failed}")
        self._row("the schedule", f"{len(self._regressions_done())} runs, the regression told {count} time", 0)

    def _no_regression_waits(self) -> bool:
        """Those that were scheduled when the schedule was paused are gone, or have come to their end."""
        return all(
            run["state_type"] in FINAL or seconds(run["expected_start_time"]) > time.time()
            for run in self._runs(NIGHTLY)
        )

    def triggers(self) -> None:
        """Each checkpoint of a training from its deployment starts its evaluation, once, and soon."""
        run = self.desk.api.start(PRETRAIN, self._parameters())
        self._completes(run)
        wait_for(lambda: len(self._done(ON_HEALTHY)) >= CHECKPOINTS, RUN_SECONDS, lambda: str(self._runs(ON_HEALTHY)))
        time.sleep(SETTLE_SECONDS)
        ended = seconds(self.desk.api.run(run)["end_time"])
        first_lines = {made.manifest.inputs["model"][0].key: first_line(made) for made in self._evaluations("trial")}
        events = {event["payload"]["key"]: event["payload"] for event in self.desk.api.events(HEALTHY)}
        self._expect(len(events) == CHECKPOINTS, f"{len(events)} checkpoints became healthy")
        self._expect(
            first_lines.keys() == events.keys(), f"evaluated: {sorted(first_lines)}, healthy: {sorted(events)}"
        )
        self._counts(runs=CHECKPOINTS, evaluations=CHECKPOINTS)
        waited = []
        for key, event in sorted(events.items(), key=lambda entry: entry[1]["step"]):
            waited.append(first_lines[key] - event["time"])
            when = "while the training ran" if first_lines[key] < ended else "as it ended"
            times = f"healthy {clock(event['time'])}, first line {clock(first_lines[key])}"
            self._row(f"checkpoint {event['step']}", f"evaluated {when}: {times}", waited[-1])
        self.figures |= {f"evaluation_after_health_{n}_seconds": round(each, 1) for n, each in enumerate(waited, 1)}
        self._expect(max(waited) <= WITHIN_SECONDS, f"evaluations began after {[round(each, 1) for each in waited]} s")

    def duplicates(self) -> None:
        """Events that come twice, late, or for nothing do no harm."""
        first = next(event for event in self.desk.api.events(HEALTHY))
        told, known = len(self._regressions_told()), len(self._runs(ON_HEALTHY))
        again = {name: first[name] for name in ("id", "occurred", "event", "resource", "related", "payload")}
        late = {**again, "id": str(uuid.uuid4()), "occurred": datetime.now().astimezone().isoformat()}
        nothing = {**late, "id": str(uuid.uuid4()), "payload": {**first["payload"], "key": UNKNOWN}}
        nothing["resource"] = {**first["resource"], "prefect.resource.id": f"longhaul.checkpoint.{UNKNOWN}"}
        self.desk.api.call("POST", "/events", [again, late, nothing])
        wait_for(lambda: len(self._done(ON_HEALTHY)) >= known + 2, RUN_SECONDS, lambda: str(self._runs(ON_HEALTHY)))
        time.sleep(SETTLE_SECONDS)
        states = sorted(run["state_type"] for run in self._runs(ON_HEALTHY)[known:])
        self._expect(states in (["COMPLETED", "FAILED"], ["COMPLETED", "COMPLETED", "FAILED"]), f"ended: {states}")
        self._counts(evaluations=CHECKPOINTS)
        self._expect(len(self._regressions_told()) == told, "somebody was told of a regression")
        self._row("an event twice, late, for nothing", f"runs {', '.join(states).lower()}; no evaluation more", 0)

    def pipeline(self) -> None:
        """A pipeline evaluates its own checkpoints, and its events start nothing."""
        runs, before = len(self._runs(ON_HEALTHY)), len(self._evaluations("trial"))
        began = time.monotonic()
        short = ("pretrain.num_steps=60", "pretrain.checkpoint_every_steps=20")
        run = self.desk.api.start("pipeline/trial", self._parameters("pretrain.seed=7", *short))
        self._completes(run)
        time.sleep(SETTLE_SECONDS)
        self._counts(runs=runs, evaluations=before + CHECKPOINTS)
        self._row("a pipeline", f"{CHECKPOINTS} checkpoints, {CHECKPOINTS} evaluations", time.monotonic() - began)

    def slots(self) -> None:
        """Where one run at a time is allowed and that one is killed, the next one starts."""
        api, parameters = self.desk.api, self._parameters("pretrain.seed=8")
        first = api.start(PRETRAIN, {**parameters, "upstream": True})
        api.wait(first, ["RUNNING"], seconds=RUN_SECONDS)
        second = api.start(CURATE, parameters)
        time.sleep(SETTLE_SECONDS)
        self._expect(
            api.state(second) == "SCHEDULED", f"beside the first run, the second is {api.run(second)['state']}"
        )
        families.flow_process(first).send_signal(signal.SIGKILL)
        killed = time.time()
        api.wait(second, ["RUNNING", *FINAL], seconds=RUN_SECONDS)
        started = next(seconds(state["timestamp"]) for state in api.states(second) if state["type"] == "RUNNING")
        crashed = next(seconds(state["timestamp"]) for state in api.states(first) if state["type"] == "CRASHED")
        self._row("a run that is killed", "is crashed", crashed - killed)
        self._row("the run that waited for it", "starts", started - killed)
        self.figures |= {"crashed_seconds": round(crashed - killed, 1), "next_run_seconds": round(started - killed, 1)}
        self._completes(second)
        resumed = api.wait(first, ["RUNNING"], seconds=RUN_SECONDS)
        self._row("the run that was killed", "goes on by itself", seconds(resumed["state"]["timestamp"]) - killed)
        api.cancel(first)
        ended = api.wait(first, seconds=RUN_SECONDS)
        self._expect(ended["state_type"] == "CANCELLED", f"cancelled, it is {ended['state']}")
        self._completes(api.start(CURATE, parameters))
        self._expect(api.state(first) == "CANCELLED", "what was cancelled was resumed")

    def _next_regression(self, done: int) -> Object:
        """The regression run after so many that are done."""
        wait_for(lambda: len(self._regressions_done()) > done, CRON_SECONDS, lambda: str(self._runs(NIGHTLY)))
        return self._regressions_done()[done]

    def _regressions_done(self) -> list[Object]:
        return self._done(NIGHTLY)

    def _regressions_told(self) -> list[Object]:
        return [body for body in self.receiver.bodies if body["event"] == "alert.raised"]

    def _runs(self, deployment: str) -> list[Object]:
        chosen = {"id": {"any_": [self.desk.api.deployment(deployment)["id"]]}}
        return self.desk.api.runs(deployments=chosen)

    def _done(self, deployment: str) -> list[Object]:
        return [run for run in self._runs(deployment) if run["state_type"] in FINAL]

    def _evaluations(self, label: str) -> list[Artifact]:
        return [made for made in self.store.all("evaluate") if made.manifest.label == label]

    def _counts(self, *, evaluations: int, runs: int | None = None) -> None:
        found = len(self._evaluations("trial"))
        self._expect(found == evaluations, f"{found} evaluations instead of {evaluations}")
        started = self._runs(ON_HEALTHY)
        self._expect(runs is None or len(started) == runs, f"{len(started)} triggered runs instead of {runs}")

    def _completes(self, run: str) -> None:
        state = self.desk.api.wait(run, seconds=RUN_SECONDS)["state"]
        self._expect(state["type"] == "COMPLETED", f"a run is {state['name']}: {state['message']}")

    def _parameters(self, *settings: str) -> dict[str, Any]:
        """Of a run of the tiny recipe as the trial has it, with settings over that."""
        return {"recipe": self.desk.recipe(*self._settings, *settings), "root": str(self.desk.root)}

    def _expect(self, holds: object, otherwise: str) -> None:
        if not holds:
            self.problems.append(otherwise)

    def _row(self, what: str, came: str, after_seconds: float) -> None:
        self.rows.append((what, came, f"{after_seconds:.1f}" if after_seconds else ""))
        print(f"  {what}: {came}" + (f" ({after_seconds:.1f} s)" if after_seconds else ""), flush=True)


def first_line(made: Artifact) -> float:
    """When the first line of an artifact's journal was written, Unix seconds."""
    return float(next(read_events(made.path / "events.jsonl"))["time"])


def seconds(timestamp: str) -> float:
    """Unix seconds."""
    return datetime.fromisoformat(timestamp.replace("Z", "+00:00")).timestamp()


def clock(time: float) -> str:
    """Of a day, with tenths of a second."""
    return datetime.fromtimestamp(time).strftime("%H:%M:%S.%f")[:-5]
