"""The desk as its user meets it: `python -m tests.orchestration.trial_browser [--recipe RECIPE]`.

A real desk, and its own UI in headless Chromium. Everything is started, changed and ended through pages; what a page
says is compared with what the API holds. A step that fails leaves a picture in the trial's folder; with
`--screenshots docs/desk` those of the documentation are taken.
"""

import argparse
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stages.recipe import STAGES, Recipe, load
from stages.store import Store
from tests.benchmarks.harness import report
from tests.orchestration import families
from tests.orchestration.api import wait_for
from tests.orchestration.browser import Browser, browser
from tests.orchestration.desk import REPOSITORY, TINY, Desk
from tests.orchestration.form import Answer, Form

PIPELINE_SECONDS = 1800.0
STAGE_SECONDS = 600.0
CANCEL_SECONDS = 90.0
ENDS_SECONDS = 5.0
SAVE_SECONDS = 20.0
FEWEST_DONE_PIXELS = 2000  # a bar has hundreds or thousands
CRON = "30 2 * * 1"
CRON_IN_WORDS = "At 02:30 AM"

NOWHERE = "http://127.0.0.1:9/"  # who is told is looked at here, not what
TOLD = {
    "notify": ["webhook/ops"],
    "blocks": [{"type": "webhook", "name": "ops", "fields": {"method": "POST"}, "secrets": {"url": "TRIAL_URL"}}],
}


class Visit:
    """The steps, in their order; each relies on those before it."""

    def __init__(self, desk: Desk, window: Browser, recipe: Recipe) -> None:
        self._desk, self._window, self._recipe = desk, window, recipe
        self._label = recipe.name
        self._pipeline = f"pipeline/{recipe.name}"
        self._rate = recipe.pretrain.learning_rate / 2
        self._run = ""

    def steps(self) -> tuple[Callable[[], Any], ...]:
        return (
            self.see_what_is_there,
            self.be_refused_for_a_field,
            self.be_refused_for_two_fields,
            self.run_the_pipeline,
            self.see_the_run_graph,
            self.read_the_report,
            self.read_the_evaluations,
            self.run_one_stage,
            self.run_an_evaluation,
            self.pause_and_edit_the_schedule,
            self.keep_that_over_another_up,
            self.cancel_a_training,
            self.see_automations_blocks_and_events,
        )

    def see_what_is_there(self) -> None:
        """The deployments, each with a description, and the pool with its queues."""
        names = [self._label, *STAGES, "on-healthy", "nightly"]
        self._window.open("/deployments", f"{len(names)} Deployments")
        for deployment in self._desk.api.post("/deployments/filter"):
            assert deployment["name"] in names, deployment["name"]
            assert deployment["description"], f"{deployment['name']} has no description"
        self._window.open("/work-pools/work-pool/longhaul?tab=Work+Queues", "training", "evaluation")

    def be_refused_for_a_field(self) -> None:
        """The form is prefilled and described; a value out of bounds is told of at once, and nothing starts."""
        form = self._form(self._pipeline)
        fields = form.fields()
        assert len(fields) > 100, f"{len(fields)} fields"
        bare = [" > ".join(labels) for labels, description in fields.items() if not description and len(labels) > 1]
        assert not bare, f"fields without a description: {bare}"
        assert form.value("recipe", "pretrain", "num_steps") == str(self._recipe.pretrain.num_steps)
        form.fill("0", "recipe", "pretrain", "num_steps")
        answer = form.submit()
        said = self._window.message("num_steps")
        assert answer.status >= 400 and "1" in said, (answer, said)
        assert not self._made_by_hand()

    def be_refused_for_two_fields(self) -> None:
        """Values that do not go together too: in words, and at once."""
        form = self._form(self._pipeline)
        form.fill(str(2 * self._recipe.pretrain.batch_sequences), "recipe", "pretrain", "num_processes")
        answer = form.submit()
        said = self._window.message("num_processes", picture="error")
        assert answer.status >= 400 and "batch_sequences" in said, (answer, said)
        assert "Traceback" not in said and "pydantic" not in said, said
        assert not self._made_by_hand()

    def run_the_pipeline(self) -> dict[str, float]:
        """From its form, with one changed value, to its end. What was refused in the same form is accepted when it is
        mended."""
        form = self._form(self._pipeline)
        form.fill("0", "recipe", "pretrain", "num_steps")
        assert form.submit().status >= 400
        self._window.message("num_steps")
        form.fill(str(self._recipe.pretrain.num_steps), "recipe", "pretrain", "num_steps")
        form.fill(str(self._rate), "recipe", "pretrain", "learning_rate")
        self._window.picture("form")
        self._run = self._started(form.submit(), "pretrain", learning_rate=self._rate)
        self._window.wait_for_state("Running", STAGE_SECONDS)
        self._window.open("/deployments")  # a graph that grows keeps half a core busy, without a GPU
        self._desk.api.wait(self._run, seconds=PIPELINE_SECONDS)
        self._window.open(f"/runs/flow-run/{self._run}")
        self._window.wait_for_state("Completed", STAGE_SECONDS)
        (trained,) = Store(self._desk.root).all("pretrain")
        assert trained.manifest.config["learning_rate"] == self._rate
        return {"pipeline_seconds": self._desk.api.run(self._run)["total_run_time"]}

    def see_the_run_graph(self) -> None:
        """It has drawn what there is."""
        self._window.open(f"/runs/flow-run/{self._run}", "Task runs")
        pixels = self._window.done_pixels()
        assert pixels > FEWEST_DONE_PIXELS, f"{pixels} pixels of tasks that are done"
        self._window.picture("graph")
        self._window.page.get_by_role("listitem").filter(has_text="Artifacts").click()
        self._window.shows(f"evaluation-{self._label}")

    def read_the_report(self) -> None:
        """Its pictures are there, and are drawn."""
        self._open_newest(f"pipeline-{self._label}")
        self._window.picture("report", tall=True)

    def read_the_evaluations(self) -> None:
        """One version for each checkpoint, the newest with its chart; and the history, with its own."""
        assert self._evaluations() >= 2
        self._open_newest(f"evaluation-{self._label}")
        self._window.picture("evaluation", tall=True)
        self._open_newest(f"evaluation-history-{self._label}")
        self._window.picture("history")

    def run_one_stage(self) -> None:
        """A report with another title, from the stage's own form."""
        form = self._form("stage/report")
        form.fill("Browser trial", "recipe", "report", "title")
        form.fill(str(self._rate), "recipe", "pretrain", "learning_rate")
        self._started(form.submit(), "report", title="Browser trial")
        self._window.wait_for_state("Completed", STAGE_SECONDS)
        pages = [made.path / "report.html" for made in Store(self._desk.root).all("report")]
        assert any("Browser trial" in page.read_text() for page in pages), pages

    def run_an_evaluation(self) -> None:
        """Of one checkpoint, with one changed value, from its form; it joins the history."""
        before = self._evaluations()
        form = self._form("evaluate-checkpoint/on-healthy")
        (checkpoint,) = (made for made in Store(self._desk.root).all("checkpoint") if made.facts["last"])
        form.fill(checkpoint.key, "checkpoint")
        form.fill("6000", "recipe", "evaluate", "domain_bytes")
        self._started(form.submit(), "evaluate", domain_bytes=6000)
        self._window.wait_for_state("Completed", STAGE_SECONDS)
        assert self._evaluations() == before + 1

    def pause_and_edit_the_schedule(self) -> None:
        """Of the regression run."""
        deployment = self._id("regression/nightly")
        card = self._window.schedule(deployment, "nightly")
        card.get_by_role("switch").click()
        self._window.message("inactive")
        assert not self._schedule()["active"]
        card.get_by_role("button").last.click()
        self._window.click("Edit")
        dialog = self._window.page.get_by_role("dialog")
        (value,) = (box for box in dialog.get_by_role("textbox").all() if box.input_value().count("*") >= 2)
        value.fill(CRON)
        self._window.shows(CRON_IN_WORDS)
        self._window.picture("schedule")
        self._window.click("Save", dialog)
        dialog.wait_for(state="hidden")
        wait_for(lambda: self._schedule()["schedule"]["cron"] == CRON, SAVE_SECONDS, lambda: str(self._schedule()))
        assert not self._schedule()["active"]

    def keep_that_over_another_up(self) -> dict[str, float]:
        """What a user has changed in the UI is his."""
        began = time.monotonic()
        self._desk.up()
        schedule = self._schedule()
        assert schedule["schedule"]["cron"] == CRON and not schedule["active"], schedule
        return {"second_up_seconds": time.monotonic() - began}

    def cancel_a_training(self) -> dict[str, float]:
        """From the menu of its run; no process of it is left."""
        form = self._form("stage/pretrain")
        form.fill("100000", "recipe", "pretrain", "num_steps")
        form.switch("upstream")  # the plan and the checks of so many steps are other ones
        run = self._started(form.submit(), "pretrain", num_steps=100000)
        self._window.wait_for_state("Running", STAGE_SECONDS)
        wait_for(lambda: families.ranks(families.of_run(run)), STAGE_SECONDS, "no rank of the training was seen")
        self._window.click("Cancel")
        dialog = self._window.page.get_by_role("dialog")
        dialog.wait_for()
        began = time.monotonic()
        self._window.click("Confirm", dialog)
        self._window.wait_for_state("Cancelled", CANCEL_SECONDS)
        took = time.monotonic() - began
        assert not families.gone(families.of_run(run), ENDS_SECONDS)
        return {"cancel_seconds": took}

    def see_automations_blocks_and_events(self) -> None:
        """Each automation by its name; the feed tells of a checkpoint."""
        names = [automation["name"] for automation in self._desk.api.automations()]
        assert len(names) >= 8, names
        self._window.open("/automations", *names)
        self._window.picture("automations", tall=True)
        self._window.open("/blocks", "ops")
        assert self._desk.api.events("checkpoint.healthy")
        self._window.open("/events?events=checkpoint.healthy", "longhaul.checkpoint")
        self._window.open("/dashboard", "Flow Runs", "longhaul")
        self._window.picture("overview")

    def _id(self, deployment: str) -> str:
        return str(self._desk.api.deployment(deployment)["id"])

    def _form(self, deployment: str) -> Form:
        return Form(self._window, self._id(deployment))

    def _started(self, answer: Answer, table: str, **fields: Any) -> str:
        """The id of the run that a form made, which is opened; its parameters hold what was changed."""
        assert answer.status < 400, answer
        tables = self._desk.api.run(answer.flow_run)["parameters"]["recipe"]
        assert {name: tables[table][name] for name in fields} == fields
        self._window.page.locator(f'a[href="/runs/flow-run/{answer.flow_run}"]').filter(visible=True).first.click()
        return answer.flow_run

    def _made_by_hand(self) -> list[dict[str, Any]]:
        """Flow runs that no schedule has made."""
        return [run for run in self._desk.api.runs() if not run["auto_scheduled"]]

    def _schedule(self) -> dict[str, Any]:
        (schedule,) = self._desk.api.deployment("regression/nightly")["schedules"]
        found: dict[str, Any] = schedule
        return found

    def _evaluations(self) -> int:
        """How many versions the page of the evaluations shows: as many as the API has."""
        key = f"evaluation-{self._label}"
        kept = self._desk.api.post("/artifacts/filter", {"artifacts": {"key": {"any_": [key]}}})
        self._window.open(f"/artifacts/key/{key}", f"Created {key}")
        shown = self._window.page.locator(".artifact-timeline__content a[href^='/artifacts/artifact/']")
        shown.nth(len(kept) - 1).wait_for()
        assert shown.count() == len(kept), (shown.count(), len(kept))
        return len(kept)

    def _open_newest(self, key: str) -> None:
        """The page of an artifact, on which every picture has loaded."""
        body = {"artifacts": {"key": {"any_": [key]}}, "sort": "CREATED_DESC", "limit": 1}
        (newest,) = self._desk.api.post("/artifacts/filter", body)
        self._window.open(f"/artifacts/artifact/{newest['id']}")
        pictures = self._window.page.locator(".markdown-renderer img")
        pictures.first.wait_for()
        for picture in pictures.all():
            assert picture.evaluate("image => image.complete && image.naturalWidth") > 0


def visit(desk: Desk, recipe: Path, pictures: Path | None) -> tuple[list[list[Any]], dict[str, float]]:
    """A row for each step, and figures. A step that fails is told of, and the next one is tried."""
    rows: list[list[Any]] = []
    figures: dict[str, float] = {}
    with browser(desk.url, pictures) as window:
        for step in Visit(desk, window, load(recipe)).steps():
            began = time.monotonic()
            try:
                figures |= step() or {}
                failure = ""
            except Exception as error:
                traceback.print_exc()
                window.page.screenshot(path=desk.folder / f"{step.__name__}.png")
                failure = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
            told = "; ".join(filter(None, [failure, *dict.fromkeys(window.complaints)]))
            rows.append([step.__name__.replace("_", " "), time.monotonic() - began, told or "well"])
            window.complaints.clear()
    return rows, figures


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.orchestration.trial_browser", description=__doc__)
    parser.add_argument("--recipe", type=Path, default=TINY, help="whose pipeline is run")
    parser.add_argument("--screenshots", type=Path, help="folder for the pictures of the documentation")
    parser.add_argument("--folder", type=Path, help="keep everything there; by default it is deleted")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        recipe = arguments.recipe.resolve().relative_to(REPOSITORY)
        with Desk(folder, variables={"TRIAL_URL": NOWHERE}, recipes=[str(recipe)], **TOLD) as desk:
            began = time.monotonic()
            desk.up()
            up_seconds = time.monotonic() - began
            rows, figures = visit(desk, recipe, arguments.screenshots)
            desk.down()
            left = desk.wait_until_empty(ENDS_SECONDS)
            rows.append(["processes after down", 0.0, "; ".join(left) or "none"])
    figures = {"up_seconds": up_seconds, **figures}
    report("browser", ("step", "seconds", "result"), rows, figures, ("prefect", "playwright"), keep=False)
    return 0 if all(row[-1] in ("well", "none") for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
