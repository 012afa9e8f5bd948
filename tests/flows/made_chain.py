"""A store as the chain leaves it, in seconds: each stage's artifact stands under the key that the recipe resolves to,
and holds what an evaluation reads."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from stages.base import Facts, Inputs, derive, execute
from stages.curate.artifact import file_path
from stages.journal import Journal
from stages.pretrain.checkpoints.publish import REVISION
from stages.recipe import STAGES, Recipe, parse
from stages.resolve import Resolver
from stages.store import Artifact, Store
from tests.data import texts
from tests.stages.export.made import ODD_SIZE, publish_checkpoint, tokenizer_model, trained

DOMAIN = "prose"
SUITE = """
name = "small"
axis = "regression"
version = 1

[[tasks]]
name = "text"
source = "bits_per_byte"
version = 1
limit = 60
metric = "bits_per_byte"
higher_is_better = false
alert_threshold = 0.01
settings = { document_bytes = 200 }
"""


def recipe(folder: Path, **tables: Any) -> Recipe:
    """Judges by one task, which is cheap."""
    (folder / "small.toml").write_text(SUITE)
    (folder / "source.txt").write_text("not read by anything\n")
    sources = [{"kind": "text", "path": str(folder / "source.txt"), "domain": DOMAIN}]
    return parse(
        {
            "name": "made",
            "suites": {"names": [str(folder / "small.toml")], "last_names": []},
            "curate": {"sources": sources},
            "evaluate": {"domain_bytes": 2000},
            **tables,
        }
    )


def publish_chain(store: Store, wanted: Recipe, documents: Sequence[str]) -> Artifact:
    """Everything before the checkpoints; returns the training."""

    def corpus(out: Path) -> None:
        schema = pa.schema([("id", pa.string()), ("text", pa.large_string())])
        for part in ("heldout", "train"):
            (out / part).mkdir()
            rows = [{"id": f"{part}/{number}", "text": text} for number, text in enumerate(documents)]
            pq.write_table(pa.Table.from_pylist(rows, schema), file_path(out, part, DOMAIN, 0))

    fill: dict[str, Callable[[Path], object]] = {"curate": corpus, "tokenizer": tokenizer_model}
    for name in ("curate", "tokenizer", "pretokenize", "plan", "preflight", "pretrain"):
        (job,) = Resolver(wanted, store, STAGES).jobs(name)
        made = execute(replace(job, stage=replace(job.stage, run=_filling(fill.get(name, id)))), store)
    return made


def _filling(fill: Callable[[Path], object]) -> Callable[[Any, Inputs, Path, Journal], Facts]:
    def run(config: Any, inputs: Inputs, out: Path, journal: Journal) -> Facts:
        fill(out)
        return Facts(facts={"eos_id": 2, "vocabulary_size": ODD_SIZE})

    return run


def publish_step(store: Store, training: Artifact, model: Any, step: int, *, last: bool) -> Artifact:
    """A healthy checkpoint of a training."""
    scratch = Store(store.root / "scratch")
    saved = publish_checkpoint(scratch, model, step, last=last)
    (saved.path / "manifest.json").unlink()
    place = Inputs(
        artifacts={},
        entries=dict(training.manifest.inputs),
        externals={},
        rounding={},
        store=store,
        key=training.key,
        label=training.manifest.label,
    )
    facts = Facts(facts={"step": step, "tokens_seen": 100 * step, "heldout_loss": 2.5, "last": last})
    return derive(
        place, stage="checkpoint", revision=REVISION, identity={"step": step}, directory=saved.path, facts=facts
    )


def documents() -> list[str]:
    """Held-out text of which a small model can learn something."""
    return [text for text in texts.prose() if len(text) >= 200][:60]


def trained_model() -> Any:
    return trained(documents(), steps=15)


def bits_per_byte(model: Any) -> float:
    """Over the beginnings of the documents."""
    from eval.scoring.scorer import Scorer, bits
    from eval.scoring.transformers_model import TransformersModel

    vocabulary = texts.vocabulary(ODD_SIZE)
    found = [text[:200] for text in documents()]
    scores = Scorer(TransformersModel(model), prefix_token=2).rolling([vocabulary.encode(text) for text in found])
    return sum(bits(score.log_likelihood) for score in scores) / sum(len(text.encode()) for text in found)


def worse_by(share: float, model: Any) -> Any:
    """The model with noise on its weights, as much as makes its bits per byte worse by `share`."""
    before, scale = bits_per_byte(model), 0.02
    for _ in range(4):  # what noise costs grows about with its square
        worse = perturbed(model, scale)
        lost = bits_per_byte(worse) / before - 1
        if abs(lost / share - 1) < 0.02:
            break
        scale *= (share / lost) ** 0.5
    return worse


def perturbed(model: Any, scale: float) -> Any:
    import torch

    changed, generator = copy.deepcopy(model), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in changed.parameters():
            parameter.add_(scale * parameter.std() * torch.randn(parameter.shape, generator=generator))
    return changed
