"""The evaluation flows on a real server, with real models: a planted regression is told once, and so is its end; events
that come twice, late or for nothing do no harm."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import flows.environment  # noqa: F401  (first: Prefect reads its settings when it is imported)

# isort: split
import cloudpickle
import pytest
from prefect import flow
from prefect.blocks.webhook import Webhook
from prefect.events import emit_event
from prefect.settings import PREFECT_API_URL, PREFECT_FLOWS_HEARTBEAT_FREQUENCY, PREFECT_HOME, temporary_settings

from data.errors import InputError
from flows import evaluation, pipeline, single_stage, stage_task
from flows.process import StageFailed, run_stage_process
from flows.server import server_for_this_run
from flows.stage_task import Run
from flows.terminal import ignore
from stages.alerts import LEDGER, Kind, read
from stages.compare.baselines import promote
from stages.recipe import Recipe
from stages.store import Artifact, Store
from tests.end_to_end.shell import TINY, run_here
from tests.flows import made_chain
from tests.flows.receiver import Receiver, receiving

HOOK = "webhook/regressions"
LIMIT_SECONDS = 300


class Desk:
    """A store with a trained model, its recipe, and somebody who is told."""

    def __init__(self, root: Path, receiver: Receiver) -> None:
        self.store, self.receiver = Store(root), receiver
        self.recipe: Recipe = made_chain.recipe(root, alerts={"blocks": [HOOK]})
        self.training = made_chain.publish_chain(self.store, self.recipe, made_chain.documents())
        self.model = made_chain.trained_model()
        self.worse = made_chain.worse_by(0.02, self.model)
        self.started: list[str] = []

    def publish(self, model: Any, step: int, *, last: bool = True) -> Artifact:
        return made_chain.publish_step(self.store, self.training, model, step, last=last)

    def regression(self, **more: Any) -> list[Artifact]:
        """One scheduled run."""
        return [
            Artifact(Path(path))
            for path in asyncio.run(evaluation.regression(self.recipe, str(self.store.root), **more))
        ]

    def compared(self, candidate: Artifact) -> list[Artifact]:
        return [made for made in self.store.all("compare") if made.facts["candidate"]["key"] == candidate.key]

    def evaluations(self, model: Artifact) -> list[Artifact]:
        return [made for made in self.store.all("evaluate") if made.manifest.inputs["model"][0].key == model.key]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    home = tmp_path_factory.mktemp("prefect")
    changes = {PREFECT_HOME: home, PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PREFECT_HOME", str(home))
        patch.delenv("PREFECT_API_URL", raising=False)
        settings = temporary_settings(changes, restore_defaults={PREFECT_API_URL})
        with settings, server_for_this_run(), receiving() as receiver:
            Webhook(url=receiver.url).save(HOOK.partition("/")[2])
            made = Desk(tmp_path_factory.mktemp("store"), receiver)

            async def counted(stage: str, *arguments: Any, **more: Any) -> None:
                made.started.append(stage)
                await run_stage_process(stage, *arguments, **more)

            patch.setattr(stage_task, "run_stage_process", counted)
            yield made


@pytest.fixture(scope="module")
def promoted(desk: Desk) -> Artifact:
    """The good model, evaluated and promoted."""
    desk.publish(desk.model, 40)
    (good,) = desk.regression()
    promote(desk.store, good, "main")
    return good


def test_a_planted_regression_is_told_once_and_so_is_the_recovery(desk: Desk, promoted: Artifact) -> None:
    assert desk.receiver.told == [], "nothing is wrong yet"
    worse = desk.publish(desk.worse, 50)
    assert worse.key and desk.regression()
    assert desk.receiver.told == [("raised", Kind.REGRESSION)]
    body = desk.receiver.bodies[0]
    (evidence,) = (each for each in body["evidence"] if each["flips"])
    lost = evidence["candidate"] / evidence["baseline"] - 1
    assert 0.01 < lost < 0.03 and Path(evidence["artifact"]).is_dir()
    assert {row["direction"] for row in evidence["flips"]} == {"worsened"}
    assert "/runs/flow-run/" in body["link"]
    desk.regression()
    assert len(desk.receiver.bodies) == 1, "it is open, and was told"
    desk.store.remove(worse.path)  # rolled back
    desk.regression()
    desk.regression()
    assert desk.receiver.told == [("raised", Kind.REGRESSION), ("resolved", Kind.REGRESSION)]
    assert read(desk.store.root / LEDGER).opened == {}
    assert desk.evaluations(worse), "history keeps what was found"


def test_a_model_that_a_user_names_is_a_line_of_its_own(desk: Desk, promoted: Artifact) -> None:
    (judged,) = promoted.manifest.inputs["model"]
    current, named = desk.regression(models=[judged.key])
    assert current.key == named.key == promoted.key
    told, corpus = len(desk.receiver.bodies), next(desk.store.all("curate")).key
    looked = read(desk.store.root / LEDGER).looked["made"]
    with pytest.raises(InputError, match="of the stage curate"):
        asyncio.run(evaluation.evaluate_checkpoint(desk.recipe, corpus, str(desk.store.root)))
    assert len(desk.receiver.bodies) == told, "a slip of whoever types is no alert"
    with pytest.raises(InputError, match="curate"):
        desk.regression(models=[corpus])
    assert [body["label"] for body in desk.receiver.bodies[told:]] == [f"made/{corpus}"]
    assert read(desk.store.root / LEDGER).looked["made"] > looked, "the current model has been looked at all the same"


def test_a_run_that_is_cancelled_is_none(desk: Desk, promoted: Artifact, monkeypatch: pytest.MonkeyPatch) -> None:
    async def cancelled(*_: Any, **__: Any) -> list[str]:
        raise asyncio.CancelledError

    monkeypatch.setattr(evaluation, "make", cancelled)
    before = (desk.store.root / LEDGER).read_bytes()
    with pytest.raises(BaseException) as ended:  # noqa: PT011  (Prefect has one of its own)
        desk.regression()
    assert "Cancel" in type(ended.value).__name__
    assert (desk.store.root / LEDGER).read_bytes() == before


@pytest.mark.slow
def test_twenty_events_make_one_evaluation_and_a_late_one_no_alert(
    desk: Desk, promoted: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watch hears of a checkpoint twenty times, of one that is not there, and of one that was evaluated long ago;
    meanwhile a trigger asks for the same. Of the last one it never hears."""
    monkeypatch.setattr(evaluation, "LOOK_SECONDS", LIMIT_SECONDS)
    (old,) = (entry.key for entry in promoted.manifest.inputs["model"])
    new, before = desk.publish(desk.model, 20, last=False), desk.started.count("evaluate")

    async def compared(model: Artifact, watching: asyncio.Task[None]) -> None:
        while not (desk.evaluations(model) and desk.compared(desk.evaluations(model)[0])):
            assert not watching.done(), watching.result()
            await asyncio.sleep(0.2)

    async def story() -> None:
        watching = asyncio.create_task(evaluation.watch(desk.recipe, desk.store.root))
        for key in (old, "0123456789ab", *[new.key] * 20, old):
            resource = {"prefect.resource.id": f"longhaul.pretrain.{key}"}
            emit_event("checkpoint.healthy", resource=resource, payload={"key": key, "step": 20})
        asked = [evaluation.evaluate_checkpoint(desk.recipe, new.key, str(desk.store.root)) for _ in range(2)]
        await asyncio.gather(*asked)
        late = desk.publish(desk.worse, 30, last=False)
        emit_event("checkpoint.healthy", resource=resource, payload={"key": late.key, "step": 30})
        await compared(late, watching)
        monkeypatch.setattr(evaluation, "LOOK_SECONDS", 0.5)
        emit_event("checkpoint.healthy", resource=resource, payload={"key": "0123456789ab", "step": 35})
        await compared(desk.publish(desk.model, 35, last=False), watching)
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching

    told = len(desk.receiver.bodies)
    asyncio.run(asyncio.wait_for(story(), LIMIT_SECONDS))
    assert len(desk.evaluations(new)) == 1
    assert desk.started.count("evaluate") - before == 3, "one process for each of the three checkpoints"
    (late,) = (made for made in desk.store.all("compare") if made.facts["candidate"]["step"] == 30)
    assert late.facts["verdict"] == "regressed" and desk.receiver.bodies[told:] == [], "step 40 is what counts"


def test_an_evaluation_that_fails_is_told_and_stops_nothing(
    desk: Desk, promoted: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.publish(desk.model, 15, last=False)
    told, asked = len(desk.receiver.bodies), []
    run = Run(desk.recipe, desk.store.root)
    make = evaluation.make

    async def failing(name: str, *arguments: Any, **inputs: str) -> list[str]:
        asked.append(name)
        if len(asked) <= 2:
            raise StageFailed(name, 1, "error: the disk is gone")
        return await make(name, *arguments, **inputs)

    async def train(name: str, run: Run, listener: Any, *_: Any, **__: Any) -> list[str]:
        for model in desk.store.all("checkpoint"):
            listener({"kind": "checkpoint.healthy", "key": model.key, "step": model.facts["step"]})
        return ["trained"]

    monkeypatch.setattr(evaluation, "make", failing)
    monkeypatch.setattr(pipeline, "make", train)

    @flow(name="training")
    async def training() -> tuple[list[str], list[str]]:
        return await pipeline._train_and_evaluate(run, ignore)

    trained, evaluated = asyncio.run(training())
    assert trained == ["trained"] and len(evaluated) == len(list(desk.store.all("checkpoint")))
    assert desk.receiver.told[told:] == [("raised", Kind.FAILED), ("resolved", Kind.FAILED)]
    assert "the disk is gone" in desk.receiver.bodies[told]["text"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["regression", "--cron", "at three"], "--cron: 'at three' is no schedule"),
        (["regression", "--cron", "0 3 * * *"], "--cron needs a server that stays"),
        (["watch"], "watch needs a server that stays"),
        (["watch", "--set", "alerts.overdue_minutes=0"], "alerts.overdue_minutes"),
    ],
)
def test_a_command_that_cannot_be_done_says_why(arguments: list[str], words: str) -> None:
    command, *more = arguments
    with temporary_settings(restore_defaults={PREFECT_API_URL}):
        result = run_here("flows.evaluation", command, TINY, *more)
    assert result.returncode == 2 and words in result.stderr and "Traceback" not in result.stderr


FLOWS = (evaluation.regression, evaluation.evaluate_checkpoint, pipeline.pipeline, single_stage.single_stage)


@pytest.mark.parametrize("served", FLOWS, ids=lambda flow: flow.name)
def test_a_flow_can_be_served(served: Any) -> None:
    """Prefect pickles a flow that it serves for the process of each run, with all that the flow names."""
    assert cloudpickle.loads(cloudpickle.dumps(served)).name == served.name
