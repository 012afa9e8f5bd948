"""One stage of a recipe as a flow: `python -m flows.single_stage STAGE RECIPE [--upstream] [--input NAME=ARTIFACT]`.

It does what `python -m stages.STAGE` does, with retries, and can be started from a form.
"""

import argparse
from pathlib import Path
from typing import Literal

import flows.environment  # noqa: F401  (first: Prefect reads its settings when it is imported)
from stages.cli import add_input_argument, add_recipe_arguments, named_inputs, run_and_exit
from stages.recipe import STAGES, Recipe, load

# isort: split
from prefect import flow

from flows.parameters import checked, require_inputs
from flows.run_names import named
from flows.showing.artifacts import show_comparison, show_evaluation, show_pipeline
from flows.stage_task import Run, make
from flows.terminal import in_terminal, watching
from stages.resolve import Resolver, lineage
from stages.store import Artifact

StageName = Literal[
    "curate", "tokenizer", "pretokenize", "plan", "preflight", "pretrain", "adopt", "evaluate", "compare", "export",
    "report",
]  # fmt: skip


@flow(name="stage", flow_run_name=named("{recipe} {stage}"), validate_parameters=False, persist_result=False)
@checked
async def single_stage(
    stage: StageName,
    recipe: Recipe,
    upstream: bool = False,
    inputs: dict[str, str] = {},  # noqa: B006  (a literal default, which the form of the flow shows; nothing changes it)
    root: str = ".",
) -> list[str]:
    """Make the artifacts of one stage, unless they are there. Returns their paths.

    Args:
        stage: The stage.
        recipe: Everything that the stage depends on.
        upstream: First make whatever the stage needs and is not there, but for what `inputs` names.
        inputs: Artifacts to take instead of those of the recipe, as {"model": "KEY"}; key, name or path.
        root: Folder that holds artifacts/ and runs/.
    """
    require_inputs(stage, inputs)
    run, listener = Run(recipe, Path(root)), watching()
    chosen = {name: run.store.lookup(artifact) for name, artifact in inputs.items()}
    if upstream:
        resolver = Resolver(recipe, run.store, STAGES)
        for name in Resolver(recipe, run.store, STAGES, chosen).order(stage)[:-1]:
            if resolver.jobs(name):  # a comparison has none where there is no baseline
                await make(name, run, listener)
    paths = await make(stage, run, listener, **inputs)
    await _show(run, stage, [Artifact(Path(path)) for path in paths])
    return paths


async def _show(run: Run, stage: str, made: list[Artifact]) -> None:
    """The pages of what was asked for, whether it has been made or found."""
    for artifact in made:
        if stage == "evaluate":
            await show_evaluation(run, artifact)
        elif stage == "compare":
            await show_comparison(artifact)
        elif stage == "report":
            await show_pipeline(run, _made_from(run, artifact))


def _made_from(run: Run, artifact: Artifact) -> dict[str, list[str]]:
    """Paths of an artifact and of all that it was made from, by stage."""
    paths: dict[str, list[str]] = {name: [] for name in STAGES}
    for _, stage, _, found in lineage(artifact, run.store):
        if found is not None:
            paths.setdefault(stage, []).append(str(found.path))
    return paths


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m flows.single_stage", description=__doc__)
    parser.add_argument("stage", choices=list(STAGES))
    add_recipe_arguments(parser)
    parser.add_argument("--upstream", action="store_true", help="first make whatever the stage needs and is not there")
    add_input_argument(parser)
    arguments = parser.parse_args()

    def command() -> None:
        recipe = load(arguments.recipe, arguments.settings)
        inputs = named_inputs(arguments.inputs)
        require_inputs(arguments.stage, inputs)
        for path in in_terminal(
            lambda: single_stage(arguments.stage, recipe, arguments.upstream, inputs, str(arguments.root))
        ):
            print(path)

    run_and_exit(command)


if __name__ == "__main__":
    main()
