"""What the page says of how a model was judged: each of the five axes with what was asked, what came out and how sure
it is; the comparison with a baseline; and which items changed."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stages.compare.baselines import BASELINE
from stages.evaluate.tables import ITEMS
from stages.looks import read_flips
from stages.report import view
from stages.store import Artifact, Store

if TYPE_CHECKING:
    from eval.charts.reading import Task
    from eval.charts.trend import Trend

MOST_FLIPS = 6  # of a task, in either direction
HEADLINE_TASKS = 4


def shown(store: Store, evaluations: Sequence[Artifact], compared: Sequence[Artifact]) -> dict[str, Any]:
    """Everything that the page and its charts say; empty without an evaluation. compared: comparisons of these
    evaluations. `artifact`: the comparison of the last model, or None."""
    if not evaluations:
        return {}
    from eval.charts.markdown import verdict_words

    found = {artifact.facts["candidate"]["key"]: artifact for artifact in compared}
    last = evaluations[-1]
    comparison = found.get(last.key)
    tasks = axes(evaluations, promoted(store, comparison))
    return {
        "tasks": tasks,
        "axes": axis_rows(tasks, comparison),
        "artifact": comparison,
        "comparison": comparison.facts if comparison else None,
        "verdict": verdict_words(comparison.facts, comparison.manifest.measurements) if comparison else "",
        "compared": compared_rows(comparison) if comparison else [],
        "not_compared": reasons(comparison.facts["not_compared"]) if comparison else {},
        "missing": reasons(comparison.facts["missing"]) if comparison else {},
        "verdicts": verdict_rows(evaluations, found),
        "flips": flip_rows(evaluations, comparison),
        "skipped": {**last.facts["skipped_tasks"], **last.manifest.measurements["skipped_tasks"]},
        "bit_trends": trends(evaluations)[0],
    }


def promoted(store: Store, comparison: Artifact | None) -> Mapping[str, Any] | None:
    """Facts of the evaluation that is the promoted baseline of a comparison, if it has one that is still there."""
    if comparison is None or comparison.facts["baseline"]["kind"] != BASELINE:
        return None
    baseline = store.find(BASELINE, comparison.facts["baseline"]["key"])
    return baseline.facts["of"] if baseline else None


def axes(evaluations: Sequence[Artifact], before: Mapping[str, Any] | None) -> dict[str, "list[Task]"]:
    """axis -> tasks of the last evaluation."""
    from eval.charts.reading import tasks_by_axis

    last = evaluations[-1]
    return tasks_by_axis(last.facts, last.manifest.measurements, before)


def axis_rows(found: Mapping[str, "Sequence[Task]"], comparison: Artifact | None) -> list[dict[str, Any]]:
    """A line for each of the five axes: what is asked, what came out, how sure."""
    from eval.charts.reading import AXES

    rows = []
    for axis, (title, asks) in AXES.items():
        tasks = found.get(axis, ())
        items = sum(task.facts["num_items"] for task in tasks)
        clusters = sum(task.facts["num_clusters"] for task in tasks)
        sure = f"{items:,} items in {clusters:,} clusters" if axis != "efficiency" else f"{items:,} rounds"
        rows.append(
            {
                "title": title,
                "asks": asks,
                "num_tasks": len(tasks),
                "found": _headline(axis, tasks, comparison),
                "sure": sure if tasks else "",
            }
        )
    return rows


def _headline(axis: str, tasks: "Sequence[Task]", comparison: Artifact | None) -> str:
    from eval.charts.markdown import verdict_words
    from eval.charts.scores import BIGRAM, CHANCE

    if axis == "regression" and comparison:
        return verdict_words(comparison.facts, comparison.manifest.measurements)
    if not tasks:
        return "nothing was asked"
    if axis == "capability":
        parts = []
        for mark in (CHANCE, BIGRAM):
            known = [task.score for task in tasks if mark in task.score.marks]
            above = sum(score.low > score.marks[mark] for score in known)
            parts += [f"{above} of {len(known)} tasks are above {mark}"] if known else []
        if parts:
            return "; ".join(parts) + ", with all of their interval"
    if axis == "long_tail":
        from eval.charts.reading import drops

        found = [drop for rows in drops({axis: list(tasks)}).values() for drop in rows if drop.clean]
        if found:
            worst = max(found, key=lambda drop: abs(1 - drop.perturbed / drop.clean))
            return f"{worst.name} changes most: {worst.clean:.3g} clean, {worst.perturbed:.3g} perturbed"
    if axis == "efficiency":
        from eval.charts.reading import cost

        return ", ".join(cost(task) for task in tasks)
    first = ", ".join(f"{task.name} {task.score.value:.3g} {task.facts['metric']}" for task in tasks[:HEADLINE_TASKS])
    return first + (" …" if len(tasks) > HEADLINE_TASKS else "")


def trends(evaluations: Sequence[Artifact]) -> tuple[dict[str, "Trend"], dict[str, "Trend"]]:
    """Lines over the logarithm of tokens seen: of bits per byte by domain, and of scores by task where more is better,
    so that the slopes of all go the same way."""
    from eval.charts.frame import Point
    from eval.charts.trend import fit

    found: tuple[dict[str, Trend], dict[str, Trend]] = ({}, {})
    tasks = view.task_series(evaluations)
    rising = {name for name, task in evaluations[-1].facts["tasks"].items() if task["higher_is_better"]}
    for lines, series, logarithmic in (
        (found[0], view.score_series(evaluations), True),
        (found[1], {name: points for name, points in tasks.items() if name in rising}, False),
    ):
        for name, points in series.items():
            line = fit([Point(**point) for point in points], logarithmic=logarithmic)
            if line:
                lines[name] = line
    return found


def compared_rows(comparison: Artifact) -> list[dict[str, Any]]:
    """A line for each task that was compared, regressions first."""
    from eval.charts.compared import VERDICTS
    from eval.charts.reading import compared_tasks

    return [
        {"task": name, **task, "words": VERDICTS[task["verdict"]][2], "bad": task["verdict"] == "regressed"}
        for name, task in compared_tasks(comparison.facts, comparison.manifest.measurements)
    ]


def reasons(found: Mapping[str, str]) -> dict[str, str]:
    """reason -> the tasks that it is given for."""
    tasks: dict[str, list[str]] = {}
    for task, reason in found.items():
        tasks.setdefault(reason, []).append(task)
    return {reason: ", ".join(names) for reason, names in tasks.items()}


def verdict_rows(evaluations: Sequence[Artifact], found: Mapping[str, Artifact]) -> list[dict[str, Any]]:
    """What the comparison of each checkpoint said, in the order of training."""
    from eval.charts.markdown import verdict_words

    return [
        {
            "step": artifact.facts["model"]["step"],
            "baseline": comparison.facts["baseline"],
            "words": verdict_words(comparison.facts, comparison.manifest.measurements),
            "bad": bool(comparison.facts["regressed"] or comparison.manifest.measurements.get("regressed")),
        }
        for artifact in evaluations
        if (comparison := found.get(artifact.key))
    ]


def flip_rows(evaluations: Sequence[Artifact], comparison: Artifact | None) -> list[dict[str, Any]]:
    """By task the items that changed most, in either direction: of the comparison, or without one of the first against
    the last checkpoint."""
    from eval.charts.reading import compared_tasks

    if comparison:
        rows = read_flips(comparison)
    elif len(evaluations) > 1:
        rows = changed_items(evaluations[0], evaluations[-1])
    else:
        rows = []
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for row in rows:
        found.setdefault(row["task"], {"worsened": [], "improved": []})[row["direction"]].append(row)
    counts = dict(compared_tasks(comparison.facts, comparison.manifest.measurements)) if comparison else {}
    return [
        {
            "task": task,
            "num_worsened": counts[task]["num_worsened"] if task in counts else len(moved["worsened"]),
            "num_improved": counts[task]["num_improved"] if task in counts else len(moved["improved"]),
            "rows": [*moved["worsened"][:MOST_FLIPS], *moved["improved"][:MOST_FLIPS]],
        }
        for task, moved in found.items()
    ]


def changed_items(first: Artifact, last: Artifact) -> list[dict[str, Any]]:
    """Items whose score changed, as rows of flips.parquet; both evaluations asked the same."""
    import pyarrow.parquet as parquet

    def items(artifact: Artifact) -> dict[tuple[str, str, int], dict[str, Any]]:
        rows = parquet.read_table(artifact.path / ITEMS, columns=columns).to_pylist()
        return {(row["task"], row["cluster"], row["item"]): row for row in rows}

    columns = ["task", "cluster", "item", "prompt_hash", "score", "evidence"]
    tasks = first.facts["tasks"]
    same = {
        name: 1 if task["higher_is_better"] else -1
        for name, task in last.facts["tasks"].items()
        if name in tasks and tasks[name]["version"] == task["version"]
    }
    before, found = items(first), []
    for place, row in items(last).items():
        old = before.get(place)
        if (
            not old
            or row["task"] not in same
            or old["prompt_hash"] != row["prompt_hash"]
            or old["score"] == row["score"]
        ):
            continue
        better = (row["score"] - old["score"]) * same[row["task"]] > 0
        found.append(
            {
                "task": row["task"],
                "item": row["item"],
                "cluster": row["cluster"],
                "direction": "improved" if better else "worsened",
                "baseline_score": old["score"],
                "candidate_score": row["score"],
                "baseline_evidence": old["evidence"],
                "candidate_evidence": row["evidence"],
            }
        )
    return sorted(
        found,
        key=lambda row: (
            row["task"],
            row["direction"] == "improved",
            -abs(row["candidate_score"] - row["baseline_score"]),
            row["item"],
        ),
    )
