"""Which tasks of the core suite a finished training moves: `make bench-core ARGS="--root ROOT"`.

    python -m tests.benchmarks.core [--root ROOT] [--run KEY] [--seeds N]

ROOT holds the artifacts of a finished training. Every task is asked of its first and its last checkpoint and of N
untrained models of its shape. z against untrained: the last checkpoint's score less the mean of the untrained ones,
over its standard error, in which items are clustered by template or document and seeds vary (a root of two squares).
z against the first checkpoint: of the difference item by item, clustered likewise.
"""

import argparse
import math
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from eval.compare.clusters import clustered
from eval.results import TaskResult
from eval.run import run_suites
from eval.scoring.scorer import Scorer
from eval.scoring.transformers_model import TransformersModel
from eval.subject import Document, Subject
from eval.suites import load_suite
from stages.curate.artifact import heldout_texts
from stages.evaluate.judged import training_documents
from stages.pretrain.checkpoints.checkpoint import load_model
from stages.pretrain.model.build import build
from stages.pretrain.model.initialise import initialise
from stages.pretrain.model.shape import ModelConfig
from stages.store import Artifact, Store
from tests.benchmarks.harness import report

UNTRAINED_Z, FIRST_Z = 3, 2
HEADERS = (
    ["task", "chance", "token bigram", "untrained (lowest to highest)", "first", "last", "items", "clusters"]
    + ["z against untrained", "z against first"]
)  # fmt: skip

Scores = Mapping[str, TaskResult]


class Judge:
    """Asks models the core suite, with the vocabulary and the texts of a training."""

    def __init__(self, corpus: Path, tokenizer: Path) -> None:
        from data.vocabulary.vocabulary import Vocabulary

        self._corpus = corpus
        self._vocabulary = Vocabulary.load_folder(tokenizer)
        self._heldout = heldout_texts(corpus)
        self.suite = load_suite("core")

    def ask(self, model: Any, *, with_bigram: bool = False) -> tuple[Scores, float, float]:
        """Results by task, and CPU-seconds: of the suite, and of counting bigrams before it."""

        def documents(most: int, seed: int) -> Sequence[Document]:
            return training_documents(self._corpus, most, seed) if with_bigram else ()

        with tempfile.TemporaryDirectory() as scratch:
            subject = Subject(
                scorer=Scorer(TransformersModel(model), prefix_token=self._vocabulary.end_id),
                tokenizer=self._vocabulary,
                heldout=self._heldout,
                training=documents,
                canaries=None,
                chat=None,
                num_parameters=0,
                model_bytes=0,
                scratch=Path(scratch),
            )
            started = time.process_time()
            assert (subject.bigram is not None) == with_bigram
            counted = time.process_time()
            results = run_suites(subject, [self.suite])
            scores = {task.definition.name: task for task in results.tasks}
            return scores, time.process_time() - counted, counted - started


def untrained(trained: Any, shape: ModelConfig, seed: int) -> Any:
    """A model like `trained` with its first weights."""
    model = build(trained.config)
    initialise(model, shape, seed=seed)
    return model.eval()


def z(difference: np.ndarray, clusters: Sequence[str], other_error: float = 0.0) -> float:
    """The mean of an item-wise difference over its standard error: over clusters, and another that adds to it."""
    error = math.hypot(clustered(difference.tolist(), clusters).standard_error or 0.0, other_error)
    return float(difference.mean()) / error if error else math.copysign(math.inf, difference.mean())


def row(last: TaskResult, first: TaskResult, others: Sequence[TaskResult]) -> list[Any]:
    """A task's line of the table."""
    clusters = [item.cluster for item in last.items]
    scores = np.array([[item.score for item in result.items] for result in (last, first, *others)])
    means = scores[2:].mean(1)
    over_seeds = statistics.stdev(means) / math.sqrt(len(means))
    bigram = last.details["bigram"]["value"]
    return [
        last.definition.name,
        last.definition.chance,
        bigram,
        f"{means.mean():.3f} ({means.min():.3f} to {means.max():.3f})",
        first.value,
        last.value,
        len(last.items),
        len(set(clusters)),
        round(z(scores[0] - scores[2:].mean(0), clusters, over_seeds), 2),
        round(z(scores[0] - scores[1], clusters), 2),
    ]


def finished_training(store: Store, key: str) -> Artifact:
    """The artifact of `pretrain` with that key, or the only one there is."""
    found = [artifact for artifact in store.all("pretrain") if artifact.key.startswith(key)]
    if len(found) != 1:
        raise SystemExit(f"{store.artifacts_path} holds {len(found)} finished trainings {key}: name one with --run")
    return found[0]


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--root", type=Path, default=Path())
    parser.add_argument("--run", default="", help="key of the training, if there are several")
    parser.add_argument("--seeds", type=int, default=6, help="untrained models")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    store = Store(arguments.root)
    training = finished_training(store, arguments.run)
    tokens = _input(store, training, "tokens")
    judge = Judge(_input(store, tokens, "corpus").path, _input(store, tokens, "tokenizer").path)
    keys = [entry["key"] for entry in training.facts["checkpoints"]]
    first, last = (load_model(store.lookup(key).path) for key in (keys[0], keys[-1]))
    shape = ModelConfig.model_validate(training.manifest.config["model"]).resolved()
    judge.ask(first)  # imports and caches are not counted
    scores, cpu_seconds, counting_cpu_seconds = judge.ask(last, with_bigram=True)
    before = judge.ask(first)[0]
    others = [judge.ask(untrained(last, shape, seed))[0] for seed in range(arguments.seeds)]
    rows = [row(scores[name], before[name], [other[name] for other in others]) for name in scores]
    separated = [line[0] for line in rows if line[-2] > UNTRAINED_Z]
    risen = [line[0] for line in rows if line[-1] > FIRST_Z]
    figures = {
        "tasks": len(rows),
        "tasks_above_untrained": len(separated),
        "tasks_above_first": len(risen),
        "tasks_above_both": len(set(separated) & set(risen)),
        "untrained_models": arguments.seeds,
        "cpu_seconds": cpu_seconds,
        "cpu_seconds_of_counting_bigrams": counting_cpu_seconds,
    }
    report("core", HEADERS, rows, figures, ["torch", "transformers", "lm_eval"])


def _input(store: Store, artifact: Artifact, name: str) -> Artifact:
    (made,) = artifact.manifest.inputs[name]
    found = store.find(made.stage, made.key)
    assert found is not None, name
    return found


if __name__ == "__main__":
    main()
