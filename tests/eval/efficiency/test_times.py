"""Times by a clock that a model's work moves, so that they are what the test says."""

import json
import random
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from eval.compare.compare import compare
from eval.efficiency.bench import Bench, make_bench
from eval.efficiency.memory import run_model_bytes
from eval.efficiency.settings import RoundSettings
from eval.efficiency.times import first_token, throughput, token_latency
from eval.efficiency.work import continue_greedily, prompt, read
from eval.results import TaskResult
from eval.run import run_suites
from eval.scoring.scorer import Scorer
from eval.scoring.transformers_model import TransformersModel
from eval.subject import Subject
from eval.suites import Suite, load_suite
from tests.eval.compare.made import evaluation
from tests.eval.compare.made import task as scores
from tests.eval.robustness.stubs import subject, task
from tests.eval.stubs import END, BigramModel
from tests.stages.export import made

MEASURES = {"first_token": first_token, "token_latency": token_latency, "throughput": throughput}


class Machine:
    """A clock that goes on as work is done, with noise of a tenth, and slower in some rounds than in others."""

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self._rng = random.Random(seed)
        self._load = self._loads()

    def _loads(self) -> Iterator[float]:
        while True:
            load = self._rng.uniform(1, 5)
            yield from [load] * 400

    def work(self, seconds: float) -> None:
        self.now += seconds * next(self._load) * self._rng.uniform(0.95, 1.05)

    def bench(self) -> Bench:
        clock = lambda: self.now  # noqa: E731
        return Bench(
            clock=clock, wall=clock, reference=lambda: self.work(0.001), described="a machine that is not there"
        )


class TimedModel(BigramModel):
    """Takes its time for each forward pass, and some more for each row."""

    def __init__(self, machine: Machine, factor: float) -> None:
        super().__init__(30, max_length=80)
        self.machine, self.factor = machine, factor
        self.calls = 0

    def logits(self, tokens: Tensor, keep: int) -> Tensor:
        self.calls += 1
        self.machine.work(self.factor * (0.004 + 0.001 * len(tokens)))
        return super().logits(tokens, keep)


def timed(factor: float, seed: int) -> tuple[Subject, Machine]:
    machine = Machine(seed)
    return subject(Scorer(TimedModel(machine, factor), prefix_token=END)), machine


def found(factor: float, seed: int) -> dict[str, TaskResult]:
    judged, machine = timed(factor, seed)
    results = {}
    for name, measure in MEASURES.items():
        definition = task(name, {"prompt_tokens": 8}, name=name, limit=16, higher_is_better=False)
        suite = Suite(name="mine", axis="efficiency", version=1, tasks=(definition,))
        results[name] = measure(suite, definition, judged, None, machine.bench())
    return results


def test_a_model_made_slow_is_found_and_an_equal_one_is_not() -> None:
    """Twice the work for each forward pass is 1 more on the scale of the scores, whatever else the machine does."""

    def as_evaluation(results: dict[str, TaskResult]):
        tasks = {
            name: scores(
                result.items, measured=True, higher_is_better=False, per_token=True, alert_threshold=0.4, suite="mine"
            )
            for name, result in results.items()
        }
        return evaluation(tasks, suites={"mine": 1})

    baseline = as_evaluation(found(1, seed=1))
    slow, equal = compare(as_evaluation(found(2, seed=2)), baseline), compare(as_evaluation(found(1, seed=3)), baseline)
    assert slow.with_verdict("regressed", measured=True) == list(MEASURES)
    for name in MEASURES:
        assert slow.tasks[name].found.difference == pytest.approx(1, abs=0.15)
        assert equal.tasks[name].found.difference == pytest.approx(0, abs=0.15)
    assert equal.with_verdict("regressed", measured=True) == []


def test_scores_and_times_are_what_the_clock_says() -> None:
    class Even(Machine):
        def work(self, seconds: float) -> None:
            self.now += seconds

    machine = Even(0)
    judged = subject(Scorer(TimedModel(machine, 1), prefix_token=END))
    waited = []
    judged.scorer.between = lambda: waited.append(machine.work(100))
    results = {}
    for name, measure in MEASURES.items():
        definition = task(name, {"prompt_tokens": 8}, name=name, limit=3)
        suite = Suite(name="mine", axis="efficiency", version=1, tasks=(definition,))
        results[name] = measure(suite, definition, judged, None, machine.bench())
        assert results[name].measured and len(results[name].items) == 3
        assert results[name].facts()["reference_milliseconds"] == pytest.approx(1)
    for name in ("first_token", "token_latency"):
        facts = results[name].facts()
        assert results[name].value == pytest.approx(np.log2(5))
        assert [facts[f"milliseconds_p{share}"] for share in (50, 90, 99)] == pytest.approx([5, 5, 5])
    assert results["throughput"].value == pytest.approx((np.log2(5) + np.log2(12 / 8)) / 2), "batches of 1 and of 8"
    assert results["throughput"].facts()["tokens_per_second"] == pytest.approx({"batch of 1": 200, "batch of 8": 666.7})
    assert len(waited) == 3 + 3 + 3 * 2, "what a training makes an evaluation wait is not measured"


def test_other_lengths_settings_or_devices_are_other_measurements() -> None:
    def hashes(max_length: int = 80, described: str = "a", **settings: int) -> set[str]:
        machine = Machine(0)
        model = TimedModel(machine, 1)
        model.max_length = max_length
        definition = task("first_token", settings, limit=2)
        suite = Suite(name="mine", axis="efficiency", version=1, tasks=(definition,))
        judged = subject(Scorer(model, prefix_token=END))
        bench = Bench(
            clock=lambda: machine.now, wall=lambda: machine.now, reference=lambda: machine.work(1), described=described
        )
        return {item.prompt_hash for item in first_token(suite, definition, judged, None, bench).items}

    assert hashes() == hashes() and len(hashes()) == 1
    assert len(hashes() | hashes(max_length=60) | hashes(described="b") | hashes(prompt_tokens=20)) == 4


@pytest.mark.parametrize(("max_length", "lengths"), [(1000, (128, 32)), (140, (108, 32)), (40, (20, 20)), (2, (1, 1))])
def test_lengths_are_cut_to_what_a_model_can_take(max_length: int, lengths: tuple[int, int]) -> None:
    tokens, new = prompt(BigramModel(30, max_length=max_length), RoundSettings(), 3, 32)
    assert (*tokens.shape, new) == (3, *lengths)


def test_reading_again_gives_the_tokens_that_keeping_does() -> None:
    model = TransformersModel(made.model())
    assert model.takes_trees
    tokens = torch.randint(model.vocabulary_size, (3, 9), generator=torch.Generator().manual_seed(1))

    class Closed:
        max_length, vocabulary_size = model.max_length, model.vocabulary_size

        def logits(self, tokens: Tensor, keep: int) -> Tensor:
            return model.logits(tokens, keep)

    kept, again = (continue_greedily(read(each, tokens)) for each in (model, Closed()))
    for _ in range(6):
        assert next(kept).tolist() == next(again).tolist()


def test_the_shipped_suite_measures_this_machine() -> None:
    bench = make_bench("cpu")
    assert bench.reference_seconds() > 0 and "float32 matrix products" in bench.described
    suite = load_suite("efficiency")
    judged = subject(Scorer(BigramModel(30, max_length=64), prefix_token=END), model_bytes=3 * 2**20)
    assert run_model_bytes(suite, suite.tasks[-2], replace(judged, stored_bytes=2**20), None).value == 0
    short = suite.model_copy(
        update={"tasks": tuple(entry.model_copy(update={"limit": min(entry.limit, 3)}) for entry in suite.tasks)}
    )
    results = run_suites(judged, [short])
    tasks = {result.definition.name: result for result in results.tasks}
    assert {*tasks, *results.skipped} == {task.name for task in suite.tasks} and set(results.skipped) <= {"energy"}
    for name, result in tasks.items():
        facts = result.facts()
        json.dumps(facts, allow_nan=False)
        assert result.measured == (name != "model_bytes") and (
            name == "model_bytes" or "log2 of" in facts["measured_by"]
        )
        assert len(result.items) == result.definition.limit
    assert tasks["model_bytes"].value == pytest.approx(np.log2(3))
    assert tasks["peak_memory"].facts()["mebibytes"] >= 3
