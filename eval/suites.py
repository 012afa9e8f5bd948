"""Suites as data: which tasks make up a suite, and which texts they hold.

A suite is a TOML file: `core` names eval/suites/core.toml, a name that ends in `.toml` is a path to a user's own.
Where a task's items come from is its `source`: a seeded template generator (`template`), the held-out text of the
corpus (`heldout`), one of lm-eval's own tasks (`lm_eval`), which needs a network unless its data set is in the local
cache, or what another axis measures (eval/sources.py has them all).
"""

import hashlib
import importlib.util
import json
import tomllib
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import Field, ValidationError, model_validator

from data.errors import InputError
from data.heldout.judged_item import JudgedItem
from eval.robustness.settings import LM_EVAL, BaseSettings
from eval.settings import Definition, Settings
from eval.sources import SOURCES
from eval.tasks.heldout import GENERATORS as HELDOUT_GENERATORS
from eval.tasks.templates import GENERATORS as TEMPLATE_GENERATORS

GENERATORS: dict[str, Collection[str]] = {"template": TEMPLATE_GENERATORS, "heldout": HELDOUT_GENERATORS}
Chosen = TypeVar("Chosen", bound=Settings)

SUITES_DIRECTORY = Path(__file__).parent / "suites"
NO_HARNESS = (
    "suites.names: tasks are read and scored with lm-eval, which is not installed here: `pip install lm-eval`, or set "
    "suites.names to [] to measure bits per byte alone"
)


class TaskDefinition(Definition):
    """One task of a suite."""

    name: str = Field(description="Name of the task, once in all suites of a recipe")
    source: str = Field(description="Where its items come from: eval/sources.py")
    generator: str = Field(
        default="",
        description="What makes the items; for lm_eval, lm-eval's own name of a task or group. Empty: the task's name",
    )
    version: int = Field(
        ge=1, description="Raised when the meaning of the score changes; scores of two versions are not compared"
    )
    limit: int = Field(ge=1, description="Items at most; of what is measured in rounds, the rounds")
    metric: str = Field(default="acc", description="Name of the primary metric; for lm_eval, lm-eval's own")
    higher_is_better: bool = Field(default=True, description="Whether a model is better for a larger value")
    alert_threshold: float = Field(
        default=0.0, ge=0, description="Least worsening of the metric that is a regression, if it is significant too"
    )
    shots: int = Field(default=0, ge=0, description="Solved examples before each item")
    chance: float | None = Field(
        default=None, ge=0, le=1, description="What guessing scores; absent where that has no meaning"
    )
    seed: int = Field(default=0, description="By which items or samples are drawn")
    settings: dict[str, Any] = Field(default={}, description="What the source lets a task choose besides")
    moves_at: str = Field(default="", description="Model size and tokens from which it is expected to leave chance")
    description: str = Field(default="", description="What the task asks of the model")

    @model_validator(mode="after")
    def _fits_its_source(self) -> "TaskDefinition":
        if self.source not in SOURCES:
            raise ValueError(f"task {self.name}: no source is named {self.source!r}; there are {', '.join(SOURCES)}")
        source = SOURCES[self.source]
        idle = [name for name in source.idle if getattr(self, name)]
        if idle:
            raise ValueError(
                f"task {self.name}: {', '.join(idle)} has no effect on the source {self.source}; leave it out"
            )
        try:
            source.settings.model_validate(self.settings)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, ("settings", *first["loc"])))
            raise ValueError(f"task {self.name}: {where}: {first['msg']}") from None
        return self

    @property
    def made_by(self) -> str:
        """The generator's name, or lm-eval's name of the task."""
        return self.generator or self.name

    @property
    def of_lm_eval(self) -> tuple[str, ...]:
        """lm-eval's names of its own tasks and groups whose items are asked."""
        if self.source == "lm_eval":
            return (self.made_by,)
        settings = self.chosen(Settings)
        bases = settings.bases if isinstance(settings, BaseSettings) else ()
        return tuple(base.removeprefix(LM_EVAL) for base in bases if base.startswith(LM_EVAL))

    def chosen(self, kind: type[Chosen]) -> Chosen:
        """`settings`, as the model of the source, which is a `kind`."""
        settings = SOURCES[self.source].settings.model_validate(self.settings)
        assert isinstance(settings, kind)
        return settings


class Suite(Definition):
    """A named set of tasks on one axis."""

    name: str
    axis: Literal["capability", "long_tail", "efficiency", "safety", "regression"]
    version: int = Field(ge=1)
    tasks: tuple[TaskDefinition, ...] = Field(min_length=1)


def load_suite(name: str) -> Suite:
    """Read one suite. Raises InputError if it does not exist or does not say what a suite must."""
    path = Path(name) if name.endswith(".toml") else SUITES_DIRECTORY / f"{name}.toml"
    try:
        suite = Suite.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        known = ", ".join(sorted(entry.stem for entry in SUITES_DIRECTORY.glob("*.toml")))
        raise InputError(
            f"suites.names: there is no suite {name!r}; shipped: {known}; or give the path of a .toml file"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"suite {path}: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(f"suite {path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    for task in suite.tasks:
        generators = GENERATORS.get(task.source)
        if generators is not None and task.made_by not in generators:
            raise InputError(
                f"suite {path}: no {task.source} generator is named {task.made_by!r}; there are "
                + ", ".join(sorted(generators))
            )
    return suite


def load_suites(names: Sequence[str]) -> tuple[Suite, ...]:
    """All suites, in the order given. Raises InputError for a task that two of them define."""
    suites = tuple(load_suite(name) for name in names)
    seen: dict[str, str] = {}
    for suite in suites:
        for task in suite.tasks:
            if task.name in seen:
                raise InputError(
                    f"suites.names: {task.name} stands twice, in {seen[task.name]} and in {suite.name}; leave one out"
                )
            seen[task.name] = suite.name
    return suites


def harness_version() -> str:
    """The version of lm-eval, which asks most tasks and holds the items of its own. Raises InputError if it is not
    installed.
    """
    try:
        return metadata.version("lm_eval")
    except metadata.PackageNotFoundError:
        raise InputError(NO_HARNESS) from None


def require_harness() -> None:
    """Raise InputError if lm-eval cannot be imported; cheap, since it is only looked for."""
    try:
        found = importlib.util.find_spec("lm_eval") is not None
    except ModuleNotFoundError:
        found = False
    if not found:
        raise InputError(NO_HARNESS)


def read_through_harness(names: Sequence[str], waived: Sequence[str] = ()) -> bool:
    """Whether `fixed_texts` takes items from lm-eval's tasks, whose content `digest` does not see."""
    tasks = (task for suite in load_suites(names) for task in suite.tasks)
    return any(task.of_lm_eval and task.name not in waived for task in tasks)


def digest(names: Sequence[str]) -> str:
    """sha256, in hex, of what the suites ask: their definitions and the very items of their templates."""
    state = hashlib.sha256()
    for suite in load_suites(names):
        state.update(json.dumps(suite.model_dump(), sort_keys=True).encode())
        for task in suite.tasks:
            state.update(_fixed_texts(task.model_dump_json()))
    return state.hexdigest()


@cache
def _fixed_texts(task: str) -> bytes:
    """Those of a task, given as JSON: they cost a second for the shipped suites, and every look-up of a key takes
    them.
    """
    definition = TaskDefinition.model_validate_json(task)
    return b"".join(json.dumps(text).encode() for text in SOURCES[definition.source].fixed_texts(definition))


def fixed_texts(names: Sequence[str], waived: Sequence[str] = ()) -> Iterator[JudgedItem]:
    """Every item that does not come from held-out text, with its right answer: what training text must not hold.

    Template items are short (mostly under 8 words), so that decontamination counts them and passes over them; items of
    lm-eval's tasks are read through lm-eval. Raises InputError for a task that cannot be read (no network, not in the
    cache), unless it stands in `waived`, and for a waiver that names no task.
    """
    suites = load_suites(names)
    tasks = [task for suite in suites for task in suite.tasks]
    unknown = sorted(set(waived) - {task.name for task in tasks if task.of_lm_eval})
    if unknown:
        raise InputError(
            f"suites.waived_tasks: {', '.join(unknown)}: no such lm-eval task in the suites {', '.join(names)}"
        )
    for task in tasks:
        for number, text in enumerate(_texts(task, waived)):
            yield JudgedItem(task.name, str(number), text)


def _texts(task: TaskDefinition, waived: Sequence[str]) -> Iterator[str]:
    yield from SOURCES[task.source].fixed_texts(task)
    if not task.of_lm_eval or task.name in waived:
        return
    require_harness()
    from eval.harness import task_texts

    try:
        for name in task.of_lm_eval:
            yield from task_texts(name)
    except InputError as error:
        raise InputError(
            f"{error}; or name {task.name} in suites.waived_tasks, to train on text that may hold its items"
        ) from None
