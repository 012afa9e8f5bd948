"""Every layout makes the steps of one process: gradient of the first step, loss of all, learning rates and norms.

    make test-parallel

Sizes break symmetry: 6 heads over 2 key-value heads, 5 layers, a vocabulary of 1,003, batches of 7 rows that no number
of processes from 2 to 4 divides, so that some ranks get micro-batches without rows. Documents are packed, several to a
sequence. All cases of one number of processes run in one launch. Prints one line a case and, last, one JSON object;
exits with 1 if a case is out of its bounds.
"""

import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from data.shards.files import ShardHeader
from stages.pretrain.checkpoints.checkpoint import TENSORS, fill, read_state, step_name
from stages.pretrain.checkpoints.tensors import model_tensors, state_digest
from stages.pretrain.config import ModelConfig, PretrainConfig
from stages.pretrain.job import Job, read_lines
from stages.pretrain.model.build import build, huggingface_config
from stages.pretrain.optimise.optimizer import build_optimizer
from stages.pretrain.parallel.layout import layout_of
from tests.stages.pretrain import micro
from tests.stages.pretrain.forked import run_ranks
from tests.stages.pretrain.parallel.on_ranks import OTHER, before_digest, run_all

HEADER = ShardHeader(vocabulary_size=1003, padded_vocabulary_size=1003, end_id=2, vocabulary_digest="equality")
MODEL = ModelConfig(hidden_size=48, num_layers=5, num_heads=6, num_kv_heads=2, intermediate_size=88, context_tokens=32)
STEPS = 20
GRADIENT_BOUND = 1e-5  # relative norm of the difference, for each tensor
LOSS_BOUND = 1e-4  # relative, each of the steps
NORM_BOUND = 1e-3  # relative, of the whole gradient's norm, each of the steps


@dataclass(frozen=True)
class Case:
    """One training. `against`: settings that the one process it is compared with has as well."""

    processes: int
    settings: dict[str, Any] = field(default_factory=dict)
    against: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        words = [f"{name}={value}" for name, value in {**self.against, **self.settings}.items()]
        return " ".join([f"{self.processes} processes", *words])

    @property
    def config(self) -> PretrainConfig:
        return config(num_processes=self.processes, **self.against, **self.settings)


def config(**changes: Any) -> PretrainConfig:
    """A training of this module's model, on one process if nothing else is said."""
    return micro.config(
        **{
            "model": MODEL.model_dump(),
            "sequence_tokens": 32,
            "batch_sequences": 7,
            "micro_batch_sequences": 2,
            "num_steps": STEPS,
            "checkpoint_every_steps": STEPS,
            "warmup_ratio": 0.5,
            "learning_rate": 3e-3,
            **changes,
        }
    )


RECOMPUTED = ("none", "full", "operators", "budget")
SHORT = (
    Case(2, {"sharding": "none"}),
    Case(2, {"sharding": "optimizer", "recompute": "operators"}),
    Case(2, {"sharding": "gradients", "recompute": "full"}),
    Case(3, {"sharding": "full", "micro_batch_sequences": 1}),
    Case(4, {"sharding": "hybrid", "shard_processes": 2, "layers_per_unit": 2}),
)


def whole() -> tuple[Case, ...]:
    """The matrix: each layout on each number of processes, with and without recomputation and in micro-batches of one
    row, some of which no rank has a row for; and everything else on two processes, or on four in groups."""
    cases = [Case(1, {"recompute": recompute}) for recompute in RECOMPUTED[1:]]
    for processes in (2, 3, 4):
        layouts = [{"sharding": name} for name in ("none", "optimizer", "gradients", "full")]
        layouts += [HYBRID] if processes == 4 else []
        for layout in layouts:
            cases += [Case(processes, {**layout, "recompute": recompute}) for recompute in RECOMPUTED[:2]]
            cases.append(Case(processes, {**layout, "micro_batch_sequences": 1}))
    for layout in ({"sharding": name} for name in ("none", "optimizer", "gradients", "full")):
        cases += [Case(2, {**layout, "recompute": recompute}) for recompute in RECOMPUTED[2:]]
        cases.append(Case(2, {**layout, "overlap": False}))
        cases += [Case(2, layout, against) for against in ALSO]
    cases += [Case(4, {**HYBRID, "recompute": recompute}) for recompute in RECOMPUTED[2:]]
    cases += [Case(4, HYBRID, against) for against in ALSO]
    cases += [
        Case(4, {"sharding": sharding, "layers_per_unit": 2, "prefetch_layers": 2})
        for sharding in ("gradients", "full")
    ]
    return tuple(cases)


HYBRID: dict[str, Any] = {"sharding": "hybrid", "shard_processes": 2}

# What is another training, and so is compared with one process that has it too.
ALSO: tuple[dict[str, Any], ...] = (
    {"packing": "best-fit"},
    {"packing": "length-buckets"},
    {"cross_document_attention": True},
    {"optimizer": "muon"},
    {"optimizer_states": "8bit"},
    {"ema_decay": 0.9, "z_loss": 1e-3, "schedule": "wsd"},
    {"batch_ramp": ({"from_step": 8, "batch_sequences": 11},), "schedule_unit": "tokens"},
)


@dataclass(frozen=True)
class Seen:
    """What a training left: whole gradients of the first step, its lines of metrics, and what `on_ranks` has seen."""

    gradients: dict[str, np.ndarray]
    lines: list[dict[str, Any]]
    facts: dict[str, Any]

    @classmethod
    def read(cls, directory: Path) -> "Seen":
        with np.load(directory / "gradients.npz") as stored:
            facts = json.loads((directory / "seen.json").read_text())
            return cls(dict(stored), read_lines(directory / "metrics.jsonl"), facts)


@dataclass(frozen=True)
class Difference:
    """gradient: largest relative norm over the tensors; loss, norm: largest relative difference over the steps;
    heldout: relative, after the last; same_rates: whether all learning rates and numbers of tokens are equal;
    same_start: whether the states at step 0 are, bit by bit; reloads: whether each loads what the other has saved, bit
    by bit."""

    gradient: float
    loss: float
    norm: float
    heldout: float
    same_rates: bool
    same_start: bool
    reloads: bool

    @property
    def is_small(self) -> bool:
        close = (
            self.gradient <= GRADIENT_BOUND and max(self.loss, self.heldout) <= LOSS_BOUND and self.norm <= NORM_BOUND
        )
        return close and self.same_rates and self.same_start and self.reloads


def difference(one: Seen, other: Seen, *, loads_on_one: bool) -> Difference:
    assert one.gradients.keys() == other.gradients.keys()
    assert len(one.lines) == len(other.lines) == STEPS

    def largest(name: str) -> float:
        return max(abs(b[name] / a[name] - 1) for a, b in zip(one.lines, other.lines, strict=True))

    rates = [[(line["learning_rate"], line["tokens"]) for line in seen.lines] for seen in (one, other)]
    return Difference(
        gradient=max(
            float(np.linalg.norm(other.gradients[name] - gradient) / np.linalg.norm(gradient))
            for name, gradient in one.gradients.items()
        ),
        loss=largest("loss"),
        norm=largest("gradient_norm"),
        heldout=abs(other.facts["heldout"] / one.facts["heldout"] - 1),
        same_rates=rates[0] == rates[1],
        same_start=one.facts["digest"] == other.facts["digest"],
        reloads=other.facts["reloads"] and loads_on_one,
    )


def run(cases: Sequence[Case], folder: Path) -> tuple[list[Difference], list[Seen]]:
    """Of each case, its difference from one process with the same meaning, and what it left. `folder` is empty."""
    tokens = folder / "tokens"
    micro.write_tokens(tokens, header=HEADER, num_tokens=20_000)
    ones: dict[str, Case] = {}
    for case in cases:
        ones.setdefault(json.dumps(case.against), Case(1, {}, case.against))
    every = [*ones.values(), *cases]
    jobs = [_job(case.config, tokens, folder / f"run-{number:03}") for number, case in enumerate(every)]
    last = [job.run.checkpoints / step_name(STEPS) for job in jobs]
    for case, job in zip(cases, jobs[len(ones) :], strict=True):
        (job.run.path / OTHER).write_text(str(last[list(ones).index(json.dumps(case.against))]), encoding="utf-8")
    for processes in sorted({case.processes for case in every}):
        _launch([job for job, case in zip(jobs, every, strict=True) if case.processes == processes], processes)
    seen = [Seen.read(job.run.path) for job in jobs]
    references = dict(zip(ones, seen, strict=False))
    found = seen[len(ones) :]
    differences = [
        difference(references[json.dumps(case.against)], left, loads_on_one=loads_on_one(case, directory))
        for case, left, directory in zip(cases, found, last[len(ones) :], strict=True)
    ]
    return differences, found


def loads_on_one(case: Case, directory: Path) -> bool:
    """Whether the checkpoint that `case` has left is the same bits where one process, this one, loads it."""
    config = Case(1, {}, case.against).config
    shape = huggingface_config(MODEL, vocabulary_size=HEADER.padded_vocabulary_size, eos_id=HEADER.end_id)
    model = build(shape)
    optimizer = build_optimizer(config, MODEL, model, layout_of(config))
    optimizer.create_state()
    tensors = model_tensors(model) | optimizer.tensors()
    fill(directory / TENSORS, tensors)
    state = read_state(directory)
    return state_digest(tensors, before_digest(state)) == state.state_digest


def _job(config: PretrainConfig, tokens: Path, folder: Path) -> Job:
    made = micro.worker_job(config, tokens, folder)
    return made.model_copy(
        update={"vocabulary_size": HEADER.vocabulary_size, "padded_vocabulary_size": HEADER.padded_vocabulary_size}
    )


def _launch(jobs: Sequence[Job], processes: int) -> None:
    log = jobs[0].run.path.parent / f"{processes}-processes.log"
    run_ranks(run_all, [str(_written(job)) for job in jobs], size=processes, log=log)


def _written(job: Job) -> Path:
    job.write()
    return job.run.job


def main() -> int:
    cases = whole()
    folder = Path(tempfile.mkdtemp())
    try:
        found, _ = run(cases, folder)
    finally:
        shutil.rmtree(folder)
    for case, how in zip(cases, found, strict=True):
        mark = "ok  " if how.is_small else "FAIL"
        print(f"{mark} gradient {how.gradient:.1e} loss {how.loss:.1e} norm {how.norm:.1e}  {case.name}")
    outside = sum(not how.is_small for how in found)
    figures = {name: max(getattr(how, name) for how in found) for name in ("gradient", "loss", "norm", "heldout")}
    print(json.dumps({"cases": len(cases), "outside": outside, **figures}))
    return int(outside > 0)


if __name__ == "__main__":
    sys.exit(main())
