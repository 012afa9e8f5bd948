"""The charts of how a model was judged."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stages.report import view
from stages.report.evaluation import trends
from stages.store import Artifact

if TYPE_CHECKING:
    from eval.charts.reading import Task

Figures = dict[str, tuple[Any, str]]


def figures(evaluations: Sequence[Artifact], found: Mapping[str, "list[Task]"], comparison: Artifact | None) -> Figures:
    """Charts by name, each with what it shows."""
    from eval.charts.compared import differences as draw_differences
    from eval.charts.compared import drops as draw_drops
    from eval.charts.frame import Point
    from eval.charts.reading import AXES, by_metric, differences, drops
    from eval.charts.scaling import bits_by_tokens, gain_per_doubling
    from eval.charts.scores import bits_per_byte, score_lines, task_scores

    drawn: Figures = {}
    scores = {name: [Point(**point) for point in points] for name, points in view.score_series(evaluations).items()}
    if scores:
        drawn["bits"] = (
            bits_per_byte(scores, evaluations[-1].facts["baselines"]),
            "Bits per byte on held-out text over training",
        )
    series = {name: [Point(**point) for point in points] for name, points in view.task_series(evaluations).items()}
    dropped = drops(found)
    perturbed = {drop.name for rows in dropped.values() for drop in rows}
    for axis, tasks in found.items():
        moving = [task for task in tasks if len(series.get(task.name, ())) > 1]
        alone = [task for task in tasks if task not in moving and task.name not in perturbed]
        if moving:
            drawn[f"{axis}_over_training"] = (
                task_scores(
                    {task.name: series[task.name] for task in moving},
                    {task.name: task.score.marks for task in moving},
                    {task.name: task.facts["metric"] for task in moving},
                ),
                f"{AXES[axis][0]}: scores over training",
            )
        panels = by_metric(alone)
        if panels:
            drawn[f"{axis}_scores"] = score_lines(panels), f"{AXES[axis][0]}: scores of the last model"
    if dropped:
        drawn["drops"] = draw_drops(dropped), "Scores clean and perturbed"
    of_bits, of_tasks = trends(evaluations)
    if of_bits:
        drawn["scaling"] = bits_by_tokens(scores, of_bits), "Bits per byte over tokens seen, on logarithmic axes"
    if of_tasks:
        drawn["gains"] = gain_per_doubling(of_tasks), "What twice the tokens add to each score"
    if comparison:
        panels_of = differences(comparison.facts, comparison.manifest.measurements)
        if panels_of:
            drawn["differences"] = draw_differences(panels_of), "Candidate less baseline, with intervals"
    return drawn
