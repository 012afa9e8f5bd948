"""Charts of scores: over a training, by the number of tokens, and all of one model beside what they are compared with.

Bars are 95 % intervals.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eval.charts.frame import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    PINK,
    RED,
    Point,
    error_bars,
    figure_of,
    legend,
    legend_below,
    name_axes,
    plain,
    whiskers,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BASELINE_STYLES = {"gzip-9": (ORANGE, "--"), "xz-9e": (RED, ":")}
NEXT_STYLE = (BLUE, "-.")
CHANCE, BIGRAM, PROMOTED = "chance", "token bigrams", "promoted baseline"
MARKS = {CHANCE: (INK, ":", "|"), BIGRAM: (ORANGE, "--", "^"), PROMOTED: (PINK, "-.", "D")}
PANEL_INCHES, LINE_INCHES = 2.0, 0.24


@dataclass(frozen=True, kw_only=True)
class Score:
    """A task's score with its 95 % interval. marks: what it is compared with, by the names in MARKS."""

    name: str
    value: float
    low: float
    high: float
    marks: Mapping[str, float] = field(default_factory=dict)


def bits_per_byte(series: Mapping[str, Sequence[Point]], baselines: Mapping[str, Mapping[str, float]]) -> "Figure":
    """A panel for each domain: bits per byte by tokens seen with 95 % intervals over documents, beside what compressors
    need.
    """
    figure, panels = figure_of(len(series), columns=2)
    for axes, (domain, points) in zip(panels, series.items(), strict=True):
        error_bars(axes, points, BLUE, "model")
        for name, value in baselines.get(domain, {}).items():
            color, style = BASELINE_STYLES.get(name, NEXT_STYLE)
            axes.axhline(value, color=color, linestyle=style, linewidth=1.3, label=name)
        name_axes(axes, domain, "tokens seen", "bits per byte")
        legend(axes)
    return figure


def task_scores(
    series: Mapping[str, Sequence[Point]],
    marks: Mapping[str, Mapping[str, float]],
    metric: Mapping[str, str],
) -> "Figure":
    """A panel for each task: its score by tokens seen with its interval, beside the marks of the task (MARKS). A task
    that has a chance level is drawn from 0 to 1.
    """
    figure, panels = figure_of(len(series), columns=3, row_inches=PANEL_INCHES)
    for axes, (task, points) in zip(panels, series.items(), strict=True):
        error_bars(axes, points, GREEN, "model, 95 % interval")
        for name, value in marks.get(task, {}).items():
            color, style, _ = MARKS[name]
            axes.axhline(value, color=color, linestyle=style, linewidth=1.2, label=name)
        if CHANCE in marks.get(task, {}):
            axes.set_ylim(0, 1.02)
        name_axes(axes, task, "tokens seen", metric.get(task, ""))
        axes.locator_params(axis="x", nbins=3)
        axes.locator_params(axis="y", nbins=5)
    legend_below(figure)
    return figure


def score_lines(panels: Mapping[str, Sequence[Score]]) -> "Figure":
    """A panel for each title, one below the other: a line for each score with its interval and marks, the first on
    top. The scores of a panel are of one unit.
    """
    heights = [LINE_INCHES * len(scores) + 0.75 for scores in panels.values()]
    figure, found = figure_of(len(panels), heights=heights)
    for axes, (title, scores) in zip(found, panels.items(), strict=True):
        places = range(len(scores))[::-1]
        for place, score in zip(places, scores, strict=True):
            axes.errorbar(
                [score.value], [place], xerr=whiskers(score.value, score.low, score.high), color=GREEN, marker="o",
                markersize=4.5, capsize=2.5, elinewidth=1.1, linestyle="none", label="model, 95 % interval",
            )  # fmt: skip
            for name, value in score.marks.items():
                color, _, marker = MARKS[name]
                axes.plot([value], [place], color=color, marker=marker, markersize=6, linestyle="none", label=name)
        lines_of(axes, [score.name for score in scores])
        from_zero_to_one(
            axes, [value for score in scores for value in (score.value, score.low, score.high, *score.marks.values())]
        )
        name_axes(axes, title, "", "")
    legend_below(figure)
    return figure


def from_zero_to_one(axes: "Axes", values: Iterable[float]) -> None:
    """The whole x axis of shares, if `values` can be shares; a little more, so that no marker is cut."""
    if all(0 <= value <= 1 for value in values):
        axes.set_xlim(-0.02, 1.02)


def lines_of(axes: "Axes", names: Sequence[str]) -> None:
    """A line of the y axis for each name, the first on top."""
    axes.set_yticks(range(len(names))[::-1], [plain(name) for name in names])
    axes.set_ylim(-0.6, len(names) - 0.4)
