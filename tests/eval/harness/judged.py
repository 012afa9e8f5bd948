"""Tasks on small models."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eval.results import Results
from eval.run import run_suites
from eval.scoring.scorer import Scorer
from eval.subject import Subject
from eval.suites import Suite, TaskDefinition
from tests.eval.stubs import END, BigramModel, PieceTokenizer, characters

__all__ = ["ask", "characters", "run", "scorer", "task"]


def task(name: str = "indent", **fields: Any) -> TaskDefinition:
    return TaskDefinition(**{"name": name, "source": "template", "version": 1, "limit": 7, "chance": 0.5, **fields})


def scorer(*, batch_tokens: int = 4096) -> Scorer:
    return Scorer(BigramModel(characters().size, max_length=512), prefix_token=END, batch_tokens=batch_tokens)


def run(
    model: Scorer,
    tasks: Sequence[TaskDefinition],
    directory: Path,
    heldout: Mapping[str, Sequence[tuple[str, str]]] | None = None,
    tokenizer: PieceTokenizer | None = None,
) -> Results:
    judged = Subject(
        scorer=model,
        tokenizer=tokenizer or characters(),
        heldout=heldout or {},
        training=lambda most, seed: [],
        canaries=None,
        chat=None,
        num_parameters=1,
        model_bytes=1,
        scratch=directory,
    )
    return run_suites(judged, [Suite(name="mine", axis="capability", version=1, tasks=tuple(tasks))])


def ask(model: Scorer, directory: Path) -> dict[str, Any]:
    """Seven items of four choices, through lm-eval."""
    (result,) = run(model, [task("keyword_4way", chance=0.25)], directory).tasks
    return {
        "scores": [item.score for item in result.items],
        "items": [item.item for item in result.items],
        "predicted": [item.predicted for item in result.items],
        "prompts": [item.prompt_hash for item in result.items],
    }
