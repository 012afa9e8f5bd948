"""What the Prefect UI shows of what was made: a table of each stage, evaluations and how they went over a training,
comparisons, the loss, and a page for a whole pipeline with its charts as pictures.

Drawing happens in a thread: it takes seconds, in which the flow has to go on listening.
"""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flows.showing import pages
from flows.showing.stage_rows import stage_rows
from flows.showing.ui import show, show_table, tolerant
from stages.looks import read_flips
from stages.store import Artifact

if TYPE_CHECKING:
    from flows.stage_task import Run

MOST_TABLES = 10


async def show_stage(run: "Run", made: Sequence[Artifact]) -> None:
    """What went into each artifact, what came out, and what that took."""
    with tolerant():
        for artifact in made[:MOST_TABLES]:
            name = run.recipe.name
            await show_table(
                f"{artifact.stage}-{name}", stage_rows(artifact), f"{artifact.stage} of {name}: {artifact.path}"
            )


async def show_loss(run: "Run", directory: Path, heldout: Sequence[tuple[int, float]]) -> None:
    """The loss of a training that goes on in a run directory. heldout: (step, loss)."""
    text = await asyncio.to_thread(pages.loss_page, directory, heldout)
    if text:
        await show(f"loss-{run.recipe.name}", text, f"Loss of {run.recipe.name}", renew=True)


async def show_evaluation(run: "Run", made: Artifact) -> None:
    """Scores and pictures of an evaluation, one version after another under one key; and of a checkpoint, how its
    training has gone so far."""
    from eval.charts.markdown import evaluation_markdown

    label, model = made.manifest.label, made.facts["model"]
    with tolerant():
        text = await asyncio.to_thread(evaluation_markdown, made.facts, made.manifest.measurements)
        await show(f"evaluation-{label}", text, f"Evaluation of {model['stage']} {model['key']}")
        text = await asyncio.to_thread(pages.history_page, run.store, made)
        if text:
            await show(f"evaluation-history-{label}", text, f"Scores of {label} over its training", renew=True)


async def show_comparison(made: Artifact) -> None:
    """What a comparison has found, with the items that flipped."""
    from eval.charts.markdown import comparison_markdown

    with tolerant():
        text = await asyncio.to_thread(comparison_markdown, made.facts, made.manifest.measurements, read_flips(made))
        await show(f"comparison-{made.manifest.label}", text, f"Comparison of {made.facts['candidate']['key']}")


async def show_pipeline(run: "Run", made: Mapping[str, Sequence[str]]) -> None:
    """The page of a whole run. made: paths of the artifacts of each stage."""
    with tolerant():
        artifacts = {stage: [Artifact(Path(path)) for path in paths] for stage, paths in made.items()}
        text = await asyncio.to_thread(pages.kept_pipeline_page, run.store, artifacts)
        await show(f"pipeline-{run.recipe.name}", text, f"Report of {run.recipe.name}")
