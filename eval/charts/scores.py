"""Charts of scores over a training."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from eval.charts.frame import BLUE, GREEN, INK, ORANGE, RED, Point, error_bars, figure_of, legend, name_axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BASELINE_STYLES = {"gzip-9": (ORANGE, "--"), "xz-9e": (RED, ":")}
NEXT_STYLE = (BLUE, "-.")


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
    series: Mapping[str, Sequence[Point]], chance: Mapping[str, float | None], metric: Mapping[str, str]
) -> "Figure":
    """A panel for each task: its score by tokens seen, plus and minus one standard error over clusters of items, beside
    chance.
    """
    figure, panels = figure_of(len(series), columns=3)
    for axes, (task, points) in zip(panels, series.items(), strict=True):
        error_bars(axes, points, GREEN, "model")
        guess = chance.get(task)
        if guess is not None:
            axes.axhline(guess, color=INK, linestyle=":", linewidth=1.2, label=f"chance, {guess:g}")
            axes.set_ylim(0, 1.02)
        name_axes(axes, task, "tokens seen", metric.get(task, ""))
        legend(axes, "lower right")
    return figure
