"""Charts of one model beside another, and of a perturbed task beside the clean one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eval.charts.frame import BLUE, GREEN, GRID, INK, ORANGE, RED, SKY, figure_of, legend_below, name_axes, whiskers
from eval.charts.scores import LINE_INCHES, from_zero_to_one, lines_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# By verdict of eval.compare: colour, marker, and how it reads.
VERDICTS = {
    "regressed": (RED, "s", "regressed"),
    "worse": (ORANGE, "v", "worse, by less than the threshold"),
    "improved": (GREEN, "^", "improved"),
    "no_difference": (BLUE, "o", "no difference shown"),
}


@dataclass(frozen=True, kw_only=True)
class Difference:
    """How much better the candidate is than the baseline, in the metric's units: negative is worse, whichever way the
    metric goes. detectable: the least difference that would be found four times in five.
    """

    name: str
    value: float
    low: float
    high: float
    verdict: str
    detectable: float | None = None


@dataclass(frozen=True, kw_only=True)
class Drop:
    """A task as it is and perturbed. low, high: of `perturbed`, given `clean`. worst_group: the score of the
    group that loses most."""

    name: str
    clean: float
    perturbed: float
    low: float
    high: float
    worst_group: float | None = None


def differences(panels: Mapping[str, Sequence[Difference]]) -> "Figure":
    """A panel for each unit: a line for each task with its 95 % interval, better on the right and worse on the left."""
    heights = [LINE_INCHES * len(found) + 0.95 for found in panels.values()]
    figure, axes_of = figure_of(len(panels), heights=heights)
    for axes, (unit, found) in zip(axes_of, panels.items(), strict=True):
        axes.axvline(0, color=INK, linewidth=0.9)
        for place, task in zip(range(len(found))[::-1], found, strict=True):
            if task.detectable is not None:
                axes.barh(
                    place, 2 * task.detectable, left=-task.detectable, height=0.6, color=GRID, edgecolor="none",
                    label="would be missed more than once in five",
                )  # fmt: skip
            color, marker, words = VERDICTS[task.verdict]
            axes.errorbar(
                [task.value], [place], xerr=whiskers(task.value, task.low, task.high), color=color, marker=marker,
                markersize=5, capsize=2.5, elinewidth=1.2, linestyle="none", label=words,
            )  # fmt: skip
        lines_of(axes, [task.name for task in found])
        reach = max(abs(end) for task in found for end in (task.low, task.high, task.detectable or 0.0))
        axes.set_xlim(-1.1 * (reach or 1), 1.1 * (reach or 1))
        name_axes(axes, unit, "worse   ←   candidate less baseline   →   better", "")
    legend_below(figure)
    return figure


def drops(panels: Mapping[str, Sequence[Drop]]) -> "Figure":
    """A panel for each unit: from the clean score of a task to that of its perturbed items."""
    heights = [LINE_INCHES * len(found) + 0.75 for found in panels.values()]
    figure, axes_of = figure_of(len(panels), heights=heights)
    for axes, (unit, found) in zip(axes_of, panels.items(), strict=True):
        for place, task in zip(range(len(found))[::-1], found, strict=True):
            axes.plot([task.clean, task.perturbed], [place, place], color=SKY, linewidth=2.5, alpha=0.7)
            axes.plot(
                [task.clean], [place], color=BLUE, marker="o", markerfacecolor="none", linestyle="none", label="clean"
            )
            axes.errorbar(
                [task.perturbed], [place], xerr=whiskers(task.perturbed, task.low, task.high), color=RED, marker="o",
                markersize=5, capsize=2.5, elinewidth=1.1, linestyle="none",
                label="perturbed, 95 % interval of the drop",
            )  # fmt: skip
            if task.worst_group is not None:
                axes.plot(
                    [task.worst_group], [place], color=INK, marker="x", markersize=6, linestyle="none",
                    label="the group that loses most",
                )  # fmt: skip
        lines_of(axes, [task.name for task in found])
        from_zero_to_one(axes, [value for task in found for value in (task.clean, task.perturbed, task.low, task.high)])
        name_axes(axes, unit, "", "")
    legend_below(figure)
    return figure
