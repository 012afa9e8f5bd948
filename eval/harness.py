"""lm-eval on our scorer: an `lm_eval.api.model.LM`, our own tasks rendered for it, and its standard tasks by name.

lm-eval sees one process and gets every request at once; how they are batched is the scorer's business, so prompts,
items counted and scores do not depend on a layout. No response is cached: a cache keyed by the text of a request would
give one checkpoint's answers to the next.
"""

import functools
import logging
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import lm_eval.api.task
import numpy as np
import yaml
from lm_eval import evaluator
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.tasks import TaskManager

from data.errors import InputError
from eval.scorer import Progress, Scorer
from eval.suites import Suite, TaskDefinition, fixed_items
from eval.tasks.heldout import word_order
from eval.tasks.items import Item, write_items

FEWSHOT_SEED = 1234
OWN_TASK = Path(__file__).parent / "tasks" / "multiple_choice.yaml"

lm_eval.api.task.tqdm = functools.partial(lm_eval.api.task.tqdm, disable=True)  # progress goes to the journal


class Tokenizer(Protocol):
    """What the adapter needs of a vocabulary."""

    def encode(self, text: str) -> Sequence[int]: ...

    def decode(self, tokens: Sequence[int]) -> str: ...


def encode_pair(encode: Callable[[str], Sequence[int]], context: str, answer: str) -> tuple[list[int], list[int]]:
    """Tokens of the context and of an answer, of the text as a whole: `context + answer` is encoded once.

    White space at the end of the context moves to the answer, as in lm-eval. The answer begins at the first token that
    is not also a token of the context alone, so a token that spans both belongs to the answer, and an answer that is
    not empty has at least one token. Where the context's tokens are a prefix of the whole's, this is lm-eval's own cut.
    """
    stripped = context.rstrip()
    whole = list(encode(context + answer))
    head = list(encode(stripped)) if stripped else []
    if not answer:
        return whole, []
    cut = next((i for i, (a, b) in enumerate(zip(whole, head, strict=False)) if a != b), min(len(whole), len(head)))
    cut = min(cut, len(whole) - 1)
    return whole[:cut], whole[cut:]


class HarnessModel(LM):
    """The scorer as lm-eval knows models. `progress` is called with (done, total) scored pieces."""

    def __init__(self, scorer: Scorer, tokenizer: Tokenizer, progress: Progress | None = None) -> None:
        super().__init__()
        self._scorer = scorer
        self._tokenizer = tokenizer
        self._progress = progress

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        pairs = [encode_pair(self._tokenizer.encode, *request.args) for request in requests]
        return [(score.log_likelihood, score.is_greedy) for score in self._scorer.score(pairs, self._progress)]

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        sequences = [self._tokenizer.encode(request.args[0]) for request in requests]
        return [score.log_likelihood for score in self._scorer.rolling(sequences, self._progress)]

    def generate_until(self, requests: list[Instance]) -> list[str]:
        texts = []
        for done, request in enumerate(requests, 1):
            context, settings = request.args
            texts.append(self._generate(context, settings))
            if self._progress is not None:
                self._progress(done, len(requests))
        return texts

    def _generate(self, context: str, settings: Mapping[str, Any]) -> str:
        if settings.get("do_sample") and settings.get("temperature", 1.0) > 0:
            raise InputError(
                "a task asks for sampled generation; only greedy tasks can be scored, take it out of the suite"
            )
        until = settings.get("until") or []
        stops = [until] if isinstance(until, str) else list(until)
        max_new_tokens = min(int(settings.get("max_gen_toks", 256)), self._scorer.model.max_length - 1)
        prompt = list(self._tokenizer.encode(context))[-(self._scorer.model.max_length - max_new_tokens) :]
        decode = self._tokenizer.decode
        text = decode(
            self._scorer.greedy(
                prompt, max_new_tokens=max_new_tokens, stop=lambda new: any(stop in decode(new) for stop in stops)
            )
        )
        ends = [text.find(stop) for stop in stops if stop in text]
        return text[: min(ends)] if ends else text


@dataclass(frozen=True, kw_only=True)
class ItemResult:
    """One item of a task. `gold` and `predicted` are indices of choices, absent where a task has none."""

    item: int
    cluster: str
    prompt_hash: str
    score: float
    gold: int | None
    predicted: int | None
    log_likelihoods: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class TaskResult:
    """The score of a task. `standard_error` is over clusters of items, absent if there are fewer than two."""

    suite: str
    definition: TaskDefinition
    value: float
    standard_error: float | None
    items: tuple[ItemResult, ...]

    def facts(self) -> dict[str, Any]:
        return {
            "suite": self.suite,
            "metric": self.definition.metric,
            "value": self.value,
            "standard_error": self.standard_error,
            "num_items": len(self.items),
            "num_clusters": len({item.cluster for item in self.items}),
            "chance": self.definition.chance,
            "shots": self.definition.shots,
            "version": self.definition.version,
        }


@dataclass(frozen=True, kw_only=True)
class Results:
    """Scores of all tasks that could be built, and why the others could not."""

    tasks: tuple[TaskResult, ...]
    skipped: dict[str, str]


def run_suites(
    scorer: Scorer,
    tokenizer: Tokenizer,
    suites: Sequence[Suite],
    *,
    heldout: Callable[[], Sequence[tuple[str, str]]],
    directory: Path,
    progress: Callable[[str, int, int], None] | None = None,
    fewshot_seed: int = FEWSHOT_SEED,
) -> Results:
    """Score every task of `suites`. `heldout` gives (id, text) pairs; `directory` takes the rendered tasks and
    lm-eval's cache of them; `progress` is called with (task, done, total). The score of a group of tasks is the mean
    over all its items.

    Raises InputError for a task that does not exist or cannot be read without a network.
    """
    definitions = [(suite.name, task) for suite in suites for task in suite.tasks]
    skipped: dict[str, str] = {}
    for _, task in definitions:
        if task.source != "lm_eval":
            items = (
                fixed_items(task)
                if task.source == "template"
                else word_order(heldout(), seed=task.seed, limit=task.limit)
            )
            if items:
                render(task, items, directory)
            else:
                skipped[task.name] = "the held-out text holds no sentence for it"
    manager = TaskManager(
        include_path=str(directory), include_defaults=any(task.source == "lm_eval" for _, task in definitions)
    )
    results = []
    for suite, task in definitions:
        if task.name not in skipped:
            model = HarnessModel(scorer, tokenizer, functools.partial(progress, task.name) if progress else None)
            results.append(_run_task(model, manager, suite, task, fewshot_seed))
    return Results(tasks=tuple(results), skipped=skipped)


def render(task: TaskDefinition, items: Sequence[Item], directory: Path) -> Path:
    """Write a task as lm-eval reads it: its items as JSONL and its YAML. Returns the YAML's path."""
    directory.mkdir(parents=True, exist_ok=True)
    data = (directory / f"{task.name}.jsonl").absolute()
    write_items(data, items)
    settings = yaml.safe_load(OWN_TASK.read_text(encoding="utf-8"))
    settings |= {
        "task": task.name,
        "dataset_kwargs": {"data_files": {"test": str(data)}, "cache_dir": str(directory.absolute() / "cache")},
        "metadata": {"version": task.version},
    }
    path = directory / f"{task.name}.yaml"
    path.write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")
    return path


def load_task(manager: TaskManager, name: str) -> Any:
    """lm-eval's TaskDict of one task or group. Raises InputError if it is unknown or its data cannot be had."""
    import datasets

    datasets.disable_progress_bars()
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
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


def _run_task(
    model: HarnessModel, manager: TaskManager, suite: str, definition: TaskDefinition, fewshot_seed: int
) -> TaskResult:
    loaded = load_task(manager, definition.name)
    for task in loaded["tasks"].values():
        task.set_config("num_fewshot", definition.shots)
        task.set_fewshot_seed(seed=fewshot_seed)
    outcome = evaluator.evaluate(model, loaded, limit=definition.limit, bootstrap_iters=0, log_samples=True)
    samples = [(name, sample) for name in loaded["tasks"] for sample in outcome["samples"][name]]
    chosen = [(name, sample) for name, sample in samples if sample["filter"] == samples[0][1]["filter"]]
    if any(definition.metric not in sample for _, sample in chosen):
        known = sorted({metric for _, sample in chosen for metric in sample["metrics"]})
        raise InputError(
            f"suite {suite}: task {definition.name} has no metric {definition.metric!r}; "
            f"lm-eval gives {', '.join(known)} for it"
        )
    items = tuple(_item(name, sample, definition.metric, alone=len(loaded["tasks"]) == 1) for name, sample in chosen)
    scores = np.array([item.score for item in items], np.float64)
    error = clustered_standard_error(scores, [item.cluster for item in items])
    return TaskResult(
        suite=suite, definition=definition, value=math.fsum(scores) / len(scores), standard_error=error, items=items
    )


def _item(task: str, sample: Mapping[str, Any], metric: str, *, alone: bool) -> ItemResult:
    responses = [response for responses in sample["resps"] for response in responses]
    is_choice = (
        len(responses) > 1
        and all(isinstance(response, tuple) for response in responses)
        and isinstance(sample["target"], int)
    )
    log_likelihoods = tuple(float(response[0]) for response in responses) if is_choice else ()
    cluster = sample["doc"].get("cluster") if isinstance(sample["doc"], Mapping) else None
    return ItemResult(
        item=int(sample["doc_id"]),
        cluster=cluster if isinstance(cluster, str) else f"{'' if alone else task + '/'}{sample['doc_id']}",
        prompt_hash=sample["prompt_hash"],
        score=float(sample[metric]),
        gold=sample["target"] if is_choice else None,
        predicted=int(np.argmax(log_likelihoods)) if is_choice else None,
        log_likelihoods=log_likelihoods,
    )


def clustered_standard_error(scores: np.ndarray, clusters: Sequence[str]) -> float | None:
    """Standard error of the mean of `scores: float64[n]` when items of one cluster may be dependent (Liang and Zeger
    1986, with the factor G / (G - 1)).

    With a cluster for each item it is the usual one, sd / sqrt(n). None for fewer than two clusters.
    """
    names, index = np.unique(np.asarray(clusters), return_inverse=True)
    if len(names) < 2:
        return None
    sums = np.bincount(index, weights=scores - scores.mean(), minlength=len(names))
    return float(math.sqrt(len(names) / (len(names) - 1) * float(sums @ sums)) / len(scores))


def task_texts(name: str) -> Iterator[str]:
    """The items of one of lm-eval's own tasks or groups, each with its right answer. Raises InputError as `load_task`
    does.
    """
    loaded = load_task(TaskManager(), name)
    for task in loaded["tasks"].values():
        for doc in task.eval_docs:
            choices = task.doc_to_choice(doc) if task.config.doc_to_choice is not None else []
            question, target = (
                choices[part] if isinstance(part, int) and choices else part
                for part in (task.doc_to_text(doc), task.doc_to_target(doc))
            )
            yield f"{question}{task.config.target_delimiter}{target}"
