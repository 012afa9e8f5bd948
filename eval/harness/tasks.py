"""Our own tasks rendered for lm-eval, and its standard tasks by name, run on our scorer."""

import functools
import hashlib
import logging
import os
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import lm_eval.api.task
import numpy as np
import yaml
from lm_eval import evaluator
from lm_eval.tasks import TaskManager

from data.errors import InputError
from eval.harness.model import HarnessModel
from eval.results import ItemResult, TaskResult
from eval.scoring.scorer import Progress
from eval.subject import Subject
from eval.suites import Suite, TaskDefinition
from eval.tasks.items import Item, write_items

FEWSHOT_SEED = 1234
EVIDENCE_CHARACTERS = 240
OWN_TASK = Path(__file__).parents[1] / "tasks" / "multiple_choice.yaml"

lm_eval.api.task.tqdm = functools.partial(lm_eval.api.task.tqdm, disable=True)  # progress goes to the journal


def run_task(suite: Suite, task: TaskDefinition, subject: Subject, progress: Progress | None) -> TaskResult:
    """Score one of lm-eval's tasks by its name; the score of a group of tasks is the mean over all its items.

    Raises InputError for a task that does not exist or cannot be read without a network.
    """
    model = HarnessModel(subject.scorer, subject.tokenizer, progress)
    return _run_task(model, lm_eval_tasks(), task.made_by, suite, task)


def run_items(
    suite: Suite, task: TaskDefinition, items: Sequence[Item], subject: Subject, progress: Progress | None
) -> TaskResult:
    """Score one of our own tasks on its items."""
    directory = subject.scratch / task.name
    render(task, items, directory)
    manager = TaskManager(include_path=str(directory), include_defaults=False)
    return _run_task(HarnessModel(subject.scorer, subject.tokenizer, progress), manager, task.name, suite, task)


@functools.cache
def lm_eval_tasks() -> TaskManager:
    """The index of all of lm-eval's own tasks, which takes seconds to make."""
    return TaskManager()


def render(task: TaskDefinition, items: Sequence[Item], directory: Path) -> None:
    """Write a task as lm-eval reads it: its items as JSONL and its YAML."""
    directory.mkdir(parents=True, exist_ok=True)
    data = (directory / f"{task.name}.jsonl").absolute()
    write_items(data, items)
    settings = yaml.safe_load(OWN_TASK.read_text(encoding="utf-8"))
    settings |= {
        "task": task.name,
        "dataset_kwargs": {"data_files": {"test": str(data)}, "cache_dir": str(directory.absolute() / "cache")},
        "metadata": {"version": task.version},
    }
    (directory / f"{task.name}.yaml").write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")


def load_task(manager: TaskManager, name: str) -> Any:
    """lm-eval's TaskDict of one task or group. Raises InputError if it is unknown or its data cannot be had."""
    import datasets

    datasets.disable_progress_bars()
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    entry = manager.task_index.get(name)
    if entry is not None and (entry.cfg or {}).get("unsafe_code") and not _may_run_code():
        raise InputError(
            f"lm-eval's task {name!r} runs the programs that the model writes: set HF_ALLOW_CODE_EVAL=1 where they can "
            "do no harm, or take the task out of the suite"
        )
    try:
        return manager.load([name])
    except KeyError:
        raise InputError(f"lm-eval knows no task {name!r}; `lm_eval ls tasks` prints those that it knows") from None
    except (ConnectionError, OSError) as error:
        offline = " (HF_HUB_OFFLINE is set)" if os.environ.get("HF_HUB_OFFLINE") else ""
        raise InputError(
            f"the data set of lm-eval's task {name!r} is neither in the local cache nor reachable{offline}: "
            f"connect to the network once, or take the task out of the suite. {type(error).__name__}: {error}"
        ) from None


def _may_run_code() -> bool:
    return os.environ.get("HF_ALLOW_CODE_EVAL") == "1"


def _run_task(
    model: HarnessModel, manager: TaskManager, name: str, suite: Suite, definition: TaskDefinition
) -> TaskResult:
    """`name`: of a task or group that `manager` knows."""
    loaded = load_task(manager, name)
    for task in loaded["tasks"].values():
        task.set_config("num_fewshot", definition.shots)
        task.set_fewshot_seed(seed=FEWSHOT_SEED)
    outcome = evaluator.evaluate(
        model,
        loaded,
        limit=definition.limit,
        bootstrap_iters=0,
        log_samples=True,
        confirm_run_unsafe_code=_may_run_code(),
    )
    samples = [(name, sample) for name in loaded["tasks"] for sample in outcome["samples"][name]]
    chosen = [(name, sample) for name, sample in samples if sample["filter"] == samples[0][1]["filter"]]
    if any(definition.metric not in sample for _, sample in chosen):
        known = sorted({metric for _, sample in chosen for metric in sample["metrics"]})
        raise InputError(
            f"suite {suite.name}: task {definition.name} has no metric {definition.metric!r}; "
            f"lm-eval gives {', '.join(known)} for it"
        )
    items = tuple(_item(name, sample, definition.metric, alone=len(loaded["tasks"]) == 1) for name, sample in chosen)
    return TaskResult(suite=suite.name, axis=suite.axis, definition=definition, items=items)


def _item(task: str, sample: Mapping[str, Any], metric: str, *, alone: bool) -> ItemResult:
    responses = [response for responses in sample["resps"] for response in responses]
    is_choice = (
        len(responses) > 1
        and all(isinstance(response, tuple) for response in responses)
        and isinstance(sample["target"], int)
    )
    log_likelihoods = tuple(float(response[0]) for response in responses) if is_choice else ()
    cluster = sample["doc"].get("cluster") if isinstance(sample["doc"], Mapping) else None
    predicted = int(np.argmax(log_likelihoods)) if is_choice else None
    return ItemResult(
        item=int(sample["doc_id"]),
        cluster=cluster if isinstance(cluster, str) else f"{'' if alone else task + '/'}{sample['doc_id']}",
        prompt_hash=_hash(sample),
        score=float(sample[metric]),
        gold=sample["target"] if is_choice else None,
        predicted=predicted,
        log_likelihoods=log_likelihoods,
        evidence=_evidence(sample, predicted),
    )


def _hash(sample: Mapping[str, Any]) -> str:
    """Of all that was asked: the prompt with its solved examples, and the document, which has the choices."""
    parts = (sample["doc_hash"], sample["prompt_hash"], sample["target_hash"])
    return hashlib.sha256("".join(parts).encode()).hexdigest()


def _evidence(sample: Mapping[str, Any], predicted: int | None) -> str:
    """What the model made of an item: of choices the right one and, if it is another, the one it chose; else its own
    words. The end of the prompt stands before it.
    """
    asked = list(sample["arguments"])
    if predicted is None:
        words = [response for responses in sample["resps"] for response in responses if isinstance(response, str)]
        return textwrap.shorten(f"{_end(str(asked[0][0]))} {' | '.join(words)}", EVIDENCE_CHARACTERS)
    choices = [f"{_end(str(asked[number][0]))}{asked[number][1]}" for number in {sample["target"]: 0, predicted: 0}]
    return " | ".join(textwrap.shorten(choice, EVIDENCE_CHARACTERS // 2, placeholder="…") for choice in choices)


def _end(prompt: str) -> str:
    return prompt[-EVIDENCE_CHARACTERS // 4 :]


def task_texts(name: str) -> Iterator[str]:
    """The items of one of lm-eval's own tasks or groups, each with its right answer. Raises InputError as `load_task`
    does.
    """
    loaded = load_task(lm_eval_tasks(), name)
    for task in loaded["tasks"].values():
        for doc in task.eval_docs:
            choices = task.doc_to_choice(doc) if task.config.doc_to_choice is not None else []
            question, target = (
                choices[part] if isinstance(part, int) and choices else part
                for part in (task.doc_to_text(doc), task.doc_to_target(doc))
            )
            yield f"{question}{task.config.target_delimiter}{target}"
