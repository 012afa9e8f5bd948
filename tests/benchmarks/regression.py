"""How often a comparison raises a false alarm, and which regressions it finds: `make bench-regression`.

    python -m tests.benchmarks.regression --root ROOT [--resamplings N]

ROOT holds a finished run of the demo recipe. The suites that every checkpoint is asked, core and regression, are run on
its last checkpoint, on the one before it, and on copies of the last one whose weights carry seeded noise. Then
clusters of items (documents, templates) are drawn anew with replacement, N times, and each draw is compared as the
stage `compare` does it.

Equal models, two ways. Exchanged: the last two checkpoints, of which chance decides cluster by cluster which is the
candidate, so that the two are equal whatever they answer. Noise: the last checkpoint against itself with noise of a
ten-thousandth of each tensor's standard deviation. A false alarm is a comparison with any regression. Power: the share
of draws, N / 5 of them, in which a regression is found, against noise that makes the regression suite's bits per byte
worse by 2 % (1 %, 0.5 %).
"""

import argparse
import dataclasses
import random
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from eval.compare.compare import LEVEL, Comparison, compare
from eval.compare.evaluation import Evaluation, TaskScores
from eval.results import ItemResult, TaskResult
from stages.store import Artifact, Store
from tests.benchmarks.harness import report

SUITES = ("core", "regression")
BITS = "regression_bits_per_byte"
DROPS = (0.02, 0.01, 0.005)
TINY = 1e-4
Clusters = Mapping[str, list[list[tuple[ItemResult, ItemResult]]]]


class Judge:
    """Evaluates models of one run."""

    def __init__(self, store: Store, checkpoint: Artifact) -> None:
        from data.vocabulary.vocabulary import Vocabulary
        from stages.curate.artifact import heldout_texts
        from stages.resolve import lineage

        made_from = {stage: found for _, stage, _, found in lineage(checkpoint, store) if found is not None}
        self.corpus = made_from["curate"].path
        self.heldout = heldout_texts(self.corpus)
        self.vocabulary = Vocabulary.load_folder(made_from["tokenizer"].path)

    def results(self, model: Any, names: tuple[str, ...], only: str = "") -> tuple[TaskResult, ...]:
        """All tasks of the suites, or one of them."""
        from eval.run import run_suites
        from eval.subject import Subject
        from eval.suites import load_suites
        from stages.evaluate.judged import training_documents
        from stages.scored_model import make_scorer

        suites = load_suites(names)
        if only:
            tasks = tuple(task for suite in suites for task in suite.tasks if task.name == only)
            suites = (suites[0].model_copy(update={"tasks": tasks}),)
        with tempfile.TemporaryDirectory() as scratch:
            subject = Subject(
                scorer=make_scorer(model, self.vocabulary.end_id, 2048),
                tokenizer=self.vocabulary,
                heldout=self.heldout,
                training=lambda most, seed: training_documents(self.corpus, most, seed),
                canaries=None,
                chat=None,
                num_parameters=0,
                model_bytes=0,
                scratch=Path(scratch),
            )
            return run_suites(subject, suites).tasks

    def bits_per_byte(self, model: Any) -> float:
        (found,) = self.results(model, ("regression",), BITS)
        return found.value


def with_noise(load: Callable[[], Any], scale: float) -> Any:
    """A fresh copy of the model, each tensor with normal noise of so many of its standard deviations."""
    import torch

    model, generator = load(), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            spread = parameter.std() if parameter.numel() > 1 else parameter.abs()
            parameter += scale * spread * torch.randn(parameter.shape, generator=generator)
    return model


def worse_by(share: float, load: Callable[[], Any], judge: Judge) -> tuple[Any, float]:
    """The model with noise that makes its bits per byte worse by about `share`, and by how much it does."""
    right, scale = judge.bits_per_byte(load()), 0.05
    drop = judge.bits_per_byte(with_noise(load, scale)) / right - 1
    for _ in range(3):
        scale *= (share / drop) ** 0.5  # what noise costs grows with its square
        drop = judge.bits_per_byte(with_noise(load, scale)) / right - 1
    return with_noise(load, scale), drop


def scores(results: tuple[TaskResult, ...]) -> dict[str, TaskScores]:
    return {
        found.definition.name: TaskScores(
            suite=found.suite,
            axis=found.axis,
            metric=found.definition.metric,
            higher_is_better=found.definition.higher_is_better,
            alert_threshold=found.definition.alert_threshold,
            version=found.definition.version,
            shots=found.definition.shots,
            items=found.items,
        )
        for found in results
    }


def clusters(candidate: Mapping[str, TaskScores], baseline: Mapping[str, TaskScores]) -> Clusters:
    """Pairs of items by task and cluster."""
    found: dict[str, list[list[tuple[ItemResult, ItemResult]]]] = {}
    for name, task in candidate.items():
        by_name: dict[str, list[tuple[ItemResult, ItemResult]]] = {}
        for ours, theirs in zip(task.items, baseline[name].items, strict=True):
            assert ours.item == theirs.item and ours.prompt_hash == theirs.prompt_hash
            by_name.setdefault(ours.cluster, []).append((ours, theirs))
        found[name] = list(by_name.values())
    return found


def drawn(tasks: Mapping[str, TaskScores], pairs: Clusters, rng: random.Random, *, exchange: bool) -> Comparison:
    """The comparison of as many clusters, drawn with replacement. `exchange`: chance decides which side is which."""
    sides: tuple[dict[str, TaskScores], dict[str, TaskScores]] = ({}, {})
    for name, task in tasks.items():
        items: tuple[list[ItemResult], list[ItemResult]] = ([], [])
        for number, cluster in enumerate(rng.choices(pairs[name], k=len(pairs[name]))):
            swap = exchange and rng.random() < 0.5
            for pair in cluster:
                for side, item in zip(items, reversed(pair) if swap else pair, strict=True):
                    side.append(_renamed(item, len(side), number))
        for side, found in zip(sides, items, strict=True):
            side[name] = dataclasses.replace(task, items=tuple(found))
    return compare(*(_evaluation(side) for side in sides))


def _renamed(item: ItemResult, number: int, cluster: int) -> ItemResult:
    return ItemResult(item=number, cluster=str(cluster), prompt_hash="", score=item.score, weight=item.weight)


def _evaluation(tasks: Mapping[str, TaskScores]) -> Evaluation:
    return Evaluation(tokenizer="", corpus="", machine="", suites={}, tasks=tasks, skipped={})


def counted(number: int, of: int) -> dict[str, float]:
    """A share with its exact 95 % interval (Clopper and Pearson 1934)."""
    from scipy.stats import binomtest

    interval = binomtest(number, of).proportion_ci(0.95)
    return {"median": number / of, "low": float(interval.low), "high": float(interval.high)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--resamplings", type=int, default=1000)
    parser.add_argument("--no-record", action="store_true")
    arguments = parser.parse_args()
    import torch

    from stages.pretrain.checkpoints.checkpoint import load_model

    torch.set_num_threads(1)
    store = Store(arguments.root)
    *_, before, last = sorted(store.all("checkpoint"), key=lambda found: found.facts["step"])
    judge = Judge(store, last)

    def load() -> Any:
        return load_model(last.path)

    right = scores(judge.results(load(), SUITES))
    rows: list[list[Any]] = []
    figures: dict[str, Any] = {"level": LEVEL, "num_tasks": len(right)}

    def tried(
        name: str, candidate: Mapping[str, TaskScores], draws: int, *, exchange: bool = False
    ) -> dict[str, float]:
        """The share of draws with a regression."""
        pairs, rng = clusters(candidate, right), random.Random(f"regression/{name}")
        found = [_verdicts(drawn(right, pairs, rng, exchange=exchange)) for _ in range(draws)]
        regressed = counted(sum("regressed" in verdicts for verdicts in found), draws)
        differs = counted(sum(verdicts != {"no_difference"} for verdicts in found), draws)
        rows.append([name, draws, _shown(regressed), _shown(differs)])
        return regressed

    figures["false_alarms_exchanged"] = tried(
        "equal: exchanged",
        scores(judge.results(load_model(before.path), SUITES)),
        arguments.resamplings,
        exchange=True,
    )
    figures["false_alarms_noise"] = tried(
        "equal: noise", scores(judge.results(with_noise(load, TINY), SUITES)), arguments.resamplings
    )
    for share in DROPS:
        model, drop = worse_by(share, load, judge)
        name = f"bits per byte {drop:+.2%}"
        power = tried(name, scores(judge.results(model, SUITES)), arguments.resamplings // 5)
        figures[f"power_at_{100 * share:g}_percent"] = power
    itself = compare(_evaluation(right), _evaluation(scores(judge.results(load_model(before.path), SUITES))))
    detectable = itself.tasks[BITS].minimal_detectable_difference
    figures["detectable_bits_per_byte_percent"] = 100 * (detectable or 0) / itself.tasks[BITS].found.baseline
    report(
        "regression",
        ["candidate", "draws", "a regression is found, share of draws", "any difference is found"],
        rows,
        figures,
        ["numpy", "scipy", "torch"],
        keep=not arguments.no_record,
    )


def _verdicts(found: Comparison) -> set[str]:
    return {task.verdict for task in found.tasks.values()}


def _shown(share: Mapping[str, float]) -> str:
    return f"{share['median']:.3f} ({share['low']:.3f} to {share['high']:.3f})"


if __name__ == "__main__":
    main()
