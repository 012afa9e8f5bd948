"""Small stages that use every part of the contract: an external file, a resumable stage, derived artifacts, and each
kind of input."""

import os
import shutil
from pathlib import Path
from typing import Any

from pydantic import Field

from stages.base import Facts, Inputs, Many, One, OneOf, Optional, Stage, derive, execute
from stages.config import StageConfig, runtime, shared
from stages.files import sha256_file, write_atomic, write_json
from stages.journal import Journal
from stages.resolve import Resolver
from stages.store import Artifact, Store

NUM_PARTS = 3


class Words(StageConfig):
    names: tuple[str, ...] = ("core",)


class GatherConfig(StageConfig):
    source: Path = Field(default=Path("source.txt"))
    upper: bool = False
    words: Words = shared(Words)
    workers: int = runtime(1)


class PartsConfig(StageConfig):
    copies: int = 1
    threads: int = runtime(1, rounding=True)


class TrainConfig(StageConfig):
    steps: int = 4
    every: int = 2
    verbose: bool = runtime(False)


class Empty(StageConfig):
    pass


def gather(config: GatherConfig, inputs: Inputs, out: Path, journal: Journal) -> Facts:
    text = config.source.read_text()
    text = text.upper() if config.upper else text
    (out / "folder").mkdir()
    descriptor = os.open(out / "folder" / "text.txt", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    for half in (text[: len(text) // 2], text[len(text) // 2 :]):
        os.write(descriptor, half.encode())
        journal.progress("read", 1, 2)
    os.close(descriptor)
    return Facts(facts={"num_bytes": len(text)}, measurements={"seconds": 0.1})


def gather_externals(config: GatherConfig, store: Store) -> dict[str, Any]:
    return {"source": {"path": config.source.name, "sha256": sha256_file(config.source)}}


def parts(config: PartsConfig, inputs: Inputs, out: Path, journal: Journal) -> Facts:
    text = (inputs["text"].path / "folder" / "text.txt").read_text()
    for index in range(NUM_PARTS):
        path = out / f"part-{index}.txt"
        if not path.exists():
            write_atomic(path, text[index::NUM_PARTS] * config.copies)
        journal.progress("parts", index + 1, NUM_PARTS, "parts")
    return Facts(facts={"num_parts": NUM_PARTS})


def train(config: TrainConfig, inputs: Inputs, out: Path, journal: Journal) -> Facts:
    run = inputs.store.runs_path(inputs.key)
    made = []
    for step in range(config.every, config.steps + 1, config.every):
        checkpoint = run / f"step-{step}"
        shutil.rmtree(checkpoint, ignore_errors=True)
        checkpoint.mkdir(parents=True)
        write_atomic(checkpoint / "weights.bin", bytes([step]) * 10)
        facts = Facts(facts={"step": step})
        artifact = derive(
            inputs, stage="checkpoint", revision=1, identity={"step": step}, directory=checkpoint, facts=facts
        )
        made.append({"step": step, "digest": artifact.digest})
    write_json(out / "timing.json", {"pid": os.getpid()})
    return Facts(facts={"checkpoints": made}, measured_files=("timing.json",))


def judge(config: Empty, inputs: Inputs, out: Path, journal: Journal) -> Facts:
    weights = (inputs["model"].path / "weights.bin").read_bytes()
    write_json(out / "score.json", {"score": weights[0]})
    return Facts(facts={"score": weights[0], "step": inputs["model"].facts["step"]})


def collect(config: Empty, inputs: Inputs, out: Path, journal: Journal) -> Facts:
    scores = [artifact.facts["score"] for artifact in inputs.many("scores")]
    extra = inputs.get("extra")
    write_json(out / "scores.json", scores)
    return Facts(facts={"scores": scores, "extra": extra is not None})


STAGES = {
    stage.name: stage
    for stage in (
        Stage(name="gather", revision=1, config=GatherConfig, inputs={}, run=gather, externals=gather_externals),
        Stage(name="parts", revision=1, config=PartsConfig, inputs={"text": One("gather")}, run=parts, resumes=True),
        Stage(
            name="train",
            revision=1,
            config=TrainConfig,
            inputs={"parts": One("parts"), "plan": Optional("plan", runtime=True)},
            run=train,
            derives=("checkpoint",),
        ),
        Stage(name="judge", revision=1, config=Empty, inputs={"model": OneOf("checkpoint", default="each")}, run=judge),
        Stage(
            name="collect",
            revision=1,
            config=Empty,
            inputs={"scores": Many("judge"), "extra": Optional("plan"), "last": OneOf("checkpoint")},
            run=collect,
        ),
        Stage(name="plan", revision=1, config=Empty, inputs={}, run=lambda *_: Facts(facts={"planned": True})),
    )
}
CHAIN = ("gather", "parts", "train", "judge", "collect")


class FakeRecipe:
    """Just enough of a recipe."""

    name = "fake"

    def __init__(self, **configs: StageConfig) -> None:
        self.configs = configs

    def config_for(self, stage: str) -> StageConfig:
        return self.configs.get(stage) or STAGES[stage].config()


def recipe(root: Path, **configs: StageConfig) -> FakeRecipe:
    return FakeRecipe(**{"gather": GatherConfig(source=root / "source.txt"), **configs})


def resolver(root: Path, **configs: StageConfig) -> Resolver:
    return Resolver(recipe(root, **configs), Store(root), STAGES)


def write_source(root: Path, text: str = "abcdefghij" * 20) -> None:
    root.mkdir(exist_ok=True)
    (root / "source.txt").write_text(text)


def run_chain(resolver: Resolver, stages: tuple[str, ...] = CHAIN) -> dict[str, list[Artifact]]:
    return {name: [execute(job, resolver.store) for job in resolver.jobs(name)] for name in stages}


def digests(made: dict[str, list[Artifact]]) -> dict[str, list[str]]:
    return {name: [artifact.digest for artifact in artifacts] for name, artifacts in made.items()}
