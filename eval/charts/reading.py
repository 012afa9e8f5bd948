"""What pages and charts show, out of the facts of an evaluation and of a comparison: plain values, in the order of the
five axes.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from eval.charts.compared import VERDICTS, Difference, Drop
from eval.charts.scores import BIGRAM, CHANCE, PROMOTED, Score

Facts = Mapping[str, Any]

# By axis: how it is called, and what it asks.
AXES = {
    "capability": (
        "Capability",
        "Has it learnt what its text could teach: held-out text, and questions with a right answer?",
    ),
    "long_tail": (
        "Long tail",
        "Does it still answer when a question looks otherwise: typos, case, spacing, other words, a long context?",
    ),
    "efficiency": ("Efficiency", "What does an answer cost: time to the first token, time per token, memory, energy?"),
    "safety": (
        "Safety",
        "Does it do harm: toxic text, prejudice, leaks of personal data, training text learnt by heart?",
    ),
    "regression": ("Regression", "Is it worse than before, on items that stay the same?"),
}
# What the names of metrics mean, where that is not plain from the name.
METRICS = {
    "acc": "accuracy",
    "log2_time": "time over that of a reference product of matrices, as a power of 2",
    "log2_mebibytes": "memory, as a power of 2 of MiB",
    "log2_joules": "energy, as a power of 2 of joules",
}
# Facts of a task that have a place of their own; whatever else there is, is shown as it stands.
PLACED = frozenset(
    {
        "suite", "axis", "source", "metric", "higher_is_better", "value", "standard_error", "low", "high", "num_items",
        "num_clusters", "chance", "shots", "version", "alert_threshold", "description", "moves_at", "bigram", "clean",
        "drop",
    }
)  # fmt: skip

GROUPS = "groups"


@dataclass(frozen=True, kw_only=True)
class Task:
    """A task as a line of a table. others: whatever its facts hold besides, as text by name."""

    name: str
    facts: Facts
    score: Score
    others: Mapping[str, str]


def tasks_by_axis(facts: Facts, measurements: Facts, promoted: Facts | None = None) -> dict[str, list[Task]]:
    """axis -> its tasks; an axis without a task is left out. `measurements`: of the same evaluation, of which measured
    tasks are part. promoted: facts of the evaluation that is the baseline.
    """
    tasks: dict[str, Facts] = {**facts["tasks"], **measurements.get("tasks", {})}
    before: Facts = promoted["tasks"] if promoted else {}
    found: dict[str, list[Task]] = {}
    for axis in AXES:
        for name, task in tasks.items():
            if task["axis"] == axis:
                found.setdefault(axis, []).append(
                    Task(name=name, facts=task, score=score(name, task, before.get(name)), others=_others(task))
                )
    return found


def metric_words(metric: str, *, higher_is_better: bool) -> str:
    """How a metric is called above a chart."""
    words = METRICS.get(metric, metric.replace("_", " "))
    return words if higher_is_better else f"{words}: less is better"


def _words(task: Facts) -> str:
    return metric_words(task["metric"], higher_is_better=task["higher_is_better"])


def by_metric(tasks: Iterable[Task]) -> dict[str, list[Score]]:
    """What a metric is called -> scores in it."""
    found: dict[str, list[Score]] = {}
    for task in tasks:
        found.setdefault(_words(task.facts), []).append(task.score)
    return found


def cost(task: Task) -> str:
    """A measured task in the units that people use, as far as its facts tell them."""
    facts = task.facts
    quantile = f"milliseconds_{task.name.rpartition('_')[2]}"
    milliseconds = facts.get(quantile, facts.get("milliseconds_p50"))
    if milliseconds is not None:
        return f"{task.name} {milliseconds:.3g} ms"
    if facts.get("tokens_per_second"):
        batch, most = max(facts["tokens_per_second"].items(), key=lambda entry: entry[1])
        return f"{task.name} {most:,.0f} tokens a second ({batch})"
    if facts.get("mebibytes") is not None:
        return f"{task.name} {facts['mebibytes']:.3g} MiB"
    if facts.get("bytes") is not None:
        return f"{task.name} {facts['bytes'] / 2**20:.3g} MiB"
    return f"{task.name} {task.score.value:.3g} {METRICS.get(facts['metric'], facts['metric'])}"


def score(name: str, task: Facts, before: Facts | None = None) -> Score:
    """With its marks: chance, token bigrams, and the promoted baseline if it is of the same version."""
    marks = {CHANCE: task["chance"], BIGRAM: _number(task.get("bigram"))}
    if before and before["version"] == task["version"]:
        marks[PROMOTED] = before["value"]
    low, high = interval(task)
    return Score(
        name=name,
        value=task["value"],
        low=low,
        high=high,
        marks={mark: value for mark, value in marks.items() if value is not None},
    )


def interval(task: Facts) -> tuple[float, float]:
    """95 %, or the value alone where too few items were asked."""
    if task["low"] is None:
        return task["value"], task["value"]
    return task["low"], task["high"]


def drops(tasks: Mapping[str, list[Task]]) -> dict[str, list[Drop]]:
    """What a metric is called -> tasks that were asked clean too, the largest change first. The interval is that of the
    paired drop, laid at the clean score.
    """
    found: dict[str, list[Drop]] = {}
    for task in (task for axis in tasks.values() for task in axis):
        clean = _number(task.facts.get("clean"))
        if clean is None:
            continue
        lost, worse = task.facts["drop"], -1 if task.facts["higher_is_better"] else 1
        ends = [task.score.value if lost[end] is None else clean + worse * lost[end] for end in ("low", "high")]
        found.setdefault(_words(task.facts), []).append(
            Drop(
                name=task.name,
                clean=clean,
                perturbed=task.score.value,
                low=min(ends),
                high=max(ends),
                worst_group=_number(task.facts.get("worst_group")),
            )
        )
    return {metric: sorted(rows, key=lambda row: -abs(row.clean - row.perturbed)) for metric, rows in found.items()}


def differences(comparison: Facts, measurements: Facts) -> dict[str, list[Difference]]:
    """What a metric is called -> how much better the candidate is, the worst first; metrics in which a task regressed
    before others."""
    found: dict[str, list[Difference]] = {}
    for name, task in compared_tasks(comparison, measurements):
        sign = 1 if task["higher_is_better"] else -1
        ends = [sign * (task["difference"] if task[end] is None else task[end]) for end in ("low", "high")]
        found.setdefault(METRICS.get(task["metric"], task["metric"].replace("_", " ")), []).append(
            Difference(
                name=name,
                value=sign * task["difference"],
                low=min(ends),
                high=max(ends),
                verdict=task["verdict"],
                detectable=task["minimal_detectable_difference"],
            )
        )
    ordered = {metric: sorted(rows, key=lambda row: row.value) for metric, rows in found.items()}
    return dict(sorted(ordered.items(), key=lambda entry: min(_severity(row) for row in entry[1])))


def compared_tasks(comparison: Facts, measurements: Facts) -> Iterator[tuple[str, Facts]]:
    """Every task that was compared, measured ones too: what regressed first."""
    every = {**comparison["tasks"], **measurements.get("tasks", {})}
    order = list(VERDICTS)
    yield from sorted(every.items(), key=lambda entry: order.index(entry[1]["verdict"]))


def _severity(row: Difference) -> int:
    return list(VERDICTS).index(row.verdict)


def _number(value: Any) -> float | None:
    """A number that stands by itself or as the `value` of an object."""
    if isinstance(value, Mapping):
        value = value.get("value")
    return float(value) if isinstance(value, int | float) else None


def _others(task: Facts) -> dict[str, str]:
    placed = PLACED | {GROUPS} | ({"worst_group"} if "clean" in task else set())
    found = {name: _text(value, depth=2) for name, value in task.items() if name not in placed}
    if isinstance(groups := task.get(GROUPS), Mapping):
        found[GROUPS] = ", ".join(f"{name} {_group(value)}" for name, value in groups.items())
    return {name: text for name, text in found.items() if text}


def _group(value: Any) -> str:
    if not isinstance(value, Mapping):
        return _text(value, depth=0)
    known = {name: _text(value.get(name), depth=0) for name in ("value", "clean", "num_items")}
    more = [
        words
        for name, words in (("clean", f"clean {known['clean']}"), ("num_items", f"{known['num_items']} items"))
        if known[name]
    ]
    return known["value"] + (f" ({', '.join(more)})" if more else "")


def _text(value: Any, depth: int) -> str:
    if value is None or (isinstance(value, list | tuple) and (len(value) > 6 or not depth)):
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        parts = ((name, _text(entry, depth - 1)) for name, entry in value.items()) if depth else ()
        return ", ".join(f"{name} {text}" for name, text in parts if text)
    if isinstance(value, list | tuple):
        return ", ".join(text for entry in value if (text := _text(entry, depth - 1)))
    return str(value)
