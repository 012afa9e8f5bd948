"""Charts of how scores go with the number of tokens."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from eval.charts.frame import (
    GREEN,
    INK,
    MARKERS,
    STACK_COLORS,
    Point,
    figure_of,
    legend,
    name_axes,
    plain,
    short,
    whiskers,
)
from eval.charts.scores import LINE_INCHES, lines_of
from eval.charts.trend import Trend

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def bits_by_tokens(series: Mapping[str, Sequence[Point]], trends: Mapping[str, Trend]) -> "Figure":
    """Bits per byte of each domain over tokens, both on logarithmic axes, with its line where there is one."""
    from matplotlib.ticker import LogLocator, NullLocator

    figure, (axes,) = figure_of(1)
    axes.set(xscale="log", yscale="log")
    for number, (domain, points) in enumerate(series.items()):
        color, marker = STACK_COLORS[number % len(STACK_COLORS)], MARKERS[number % len(MARKERS)]
        known = sorted((point for point in points if point.x > 0), key=lambda point: point.x)
        x = [point.x for point in known]
        axes.plot(
            x, [point.value for point in known], color=color, marker=marker, markersize=4.5, linestyle="none",
            label=plain(domain),
        )  # fmt: skip
        if domain in trends:
            axes.plot(x, [trends[domain].at(tokens) for tokens in x], color=color, linestyle="--", linewidth=1.1)
    name_axes(axes, "Bits per byte over tokens, on logarithmic axes", "tokens seen", "bits per byte")
    for axis, shares in ((axes.xaxis, (1, 2, 5)), (axes.yaxis, (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8))):
        axis.set_major_locator(LogLocator(subs=shares))
        axis.set_major_formatter(lambda value, position: short(value))
        axis.set_minor_locator(NullLocator())
    legend(axes)
    return figure


def gain_per_doubling(trends: Mapping[str, Trend]) -> "Figure":
    """What twice the tokens add to each score, with the 95 % interval of the line's slope."""
    figure, (axes,) = figure_of(1, row_inches=LINE_INCHES * len(trends) + 0.95)
    axes.axvline(0, color=INK, linewidth=0.9)
    for place, trend in zip(range(len(trends))[::-1], trends.values(), strict=True):
        axes.errorbar(
            [trend.per_doubling], [place], xerr=whiskers(trend.per_doubling, trend.low, trend.high), color=GREEN,
            marker="o", markersize=4.5, capsize=2.5, elinewidth=1.1, linestyle="none",
        )  # fmt: skip
    lines_of(axes, list(trends))
    name_axes(axes, "What twice the tokens add to a score", "in the metric's units, 95 % interval", "")
    return figure
