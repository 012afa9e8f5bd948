"""Time to the first token, time of each token after it, and throughput by batch size.

A score is the binary logarithm of a time over the reference's, which is run before and after: a model twice as slow
scores 1 more, whatever it scored. Items are rounds; what is measured is warmed up once.
"""

import itertools
import math
from typing import TYPE_CHECKING

from eval.efficiency.bench import Bench, make_bench
from eval.efficiency.rounds import (
    device_type,
    item,
    measured,
    over_reference,
    percentile,
    percentiles,
    told,
)
from eval.efficiency.settings import LatencySettings, RoundSettings, ThroughputSettings
from eval.efficiency.work import continue_greedily, prompt, read
from eval.results import TaskResult
from eval.suites import Suite, TaskDefinition

if TYPE_CHECKING:
    from eval.scoring.scorer import Progress
    from eval.subject import Subject


def run_first_token(suite: Suite, task: TaskDefinition, subject: "Subject", progress: "Progress | None") -> TaskResult:
    """From a prompt to its first new token."""
    return first_token(suite, task, subject, progress, make_bench(device_type(subject)))


def run_token_latency(
    suite: Suite, task: TaskDefinition, subject: "Subject", progress: "Progress | None"
) -> TaskResult:
    """A percentile of the times of tokens after the first, of one text."""
    return token_latency(suite, task, subject, progress, make_bench(device_type(subject)))


def run_throughput(suite: Suite, task: TaskDefinition, subject: "Subject", progress: "Progress | None") -> TaskResult:
    """Time for each token after the first when several texts are continued together."""
    return throughput(suite, task, subject, progress, make_bench(device_type(subject)))


def first_token(
    suite: Suite, task: TaskDefinition, subject: "Subject", progress: "Progress | None", bench: Bench
) -> TaskResult:
    settings = task.chosen(RoundSettings)
    model = subject.scorer.model
    tokens, _ = prompt(model, settings, 1, 1)
    wall: list[float] = []

    def once() -> float:
        began, began_wall = bench.clock(), bench.wall()
        next(continue_greedily(read(model, tokens)))
        wall.append(bench.wall() - began_wall)
        return bench.clock() - began

    scores, references = over_reference(task.limit, subject, bench, once, progress)
    items = [item(i, score, task, bench.described, tokens.shape) for i, score in enumerate(scores)]
    return measured(suite, task, items, {**percentiles(wall[1:]), **told(bench, references)})


def token_latency(
    suite: Suite, task: TaskDefinition, subject: "Subject", progress: "Progress | None", bench: Bench
) -> TaskResult:
    settings = task.chosen(LatencySettings)
    model = subject.scorer.model
    tokens, num_new = prompt(model, settings, 1, settings.new_tokens)
    wall: list[float] = []

    def once() -> float:
        new = continue_greedily(read(model, tokens))
        next(new)
        times = []
        for _ in range(num_new):
            began, began_wall = bench.clock(), bench.wall()
            next(new)
            wall.append(bench.wall() - began_wall)
            times.append(bench.clock() - began)
        return percentile(times, settings.percentile)

    scores, references = over_reference(task.limit, subject, bench, once, progress)
    items = [item(i, score, task, bench.described, tokens.shape, num_new) for i, score in enumerate(scores)]
    return measured(suite, task, items, {**percentiles(wall[num_new:]), **told(bench, references)})


def throughput(
    suite: Suite, task: TaskDefinition, subject: "Subject", progress: "Progress | None", bench: Bench
) -> TaskResult:
    """A round is the mean over the batch sizes, of which each is measured once."""
    settings = task.chosen(ThroughputSettings)
    model = subject.scorer.model
    sizes = settings.batch_sizes
    wall: dict[int, list[float]] = {size: [] for size in sizes}
    asked = [prompt(model, settings, size, settings.new_tokens) for size in sizes]
    steps = itertools.cycle(zip(sizes, asked, strict=True))

    def once() -> float:
        size, (tokens, num_new) = next(steps)
        new = continue_greedily(read(model, tokens))
        next(new)
        began, began_wall = bench.clock(), bench.wall()
        for _ in range(num_new):
            next(new)
        wall[size].append((bench.wall() - began_wall) / num_new / size)
        return (bench.clock() - began) / num_new / size

    num = len(sizes)
    scores, references = over_reference(task.limit * num, subject, bench, once, progress, warm_up=num)
    shapes = [(*tokens.shape, num_new) for tokens, num_new in asked]
    items = [
        item(i, math.fsum(scores[i * num : (i + 1) * num]) / num, task, bench.described, shapes)
        for i in range(task.limit)
    ]
    rates = {f"batch of {size}": round(1 / percentile(wall[size][1:], 50), 1) for size in sizes}
    return measured(suite, task, items, {"tokens_per_second": rates, **told(bench, references)})
