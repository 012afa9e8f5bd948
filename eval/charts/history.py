"""Charts of scores over days: of many trainings, in one picture."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from eval.charts.frame import (
    MARKERS,
    PINK,
    REST,
    REST_COLOR,
    STACK_COLORS,
    Point,
    figure_of,
    legend_below,
    name_axes,
    plain,
)
from eval.charts.scores import PANEL_INCHES, PROMOTED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEAST_MARGIN_SECONDS = 3600.0
FEW_DAYS = 3
MANY_POINTS = 40  # of a series: with a marker and a bar each, a page of some hundred models would be of 15 MB


def over_time(
    panels: Mapping[str, Mapping[str, Sequence[Point]]], promoted: Sequence[float], labels: Sequence[str]
) -> "Figure":
    """A panel for each score: its values by date, a series for each label. x and `promoted`, the times at which a
    baseline was promoted: seconds since 1970. labels: the order in which they have colours; those beyond the colours
    share one.
    """
    from matplotlib.dates import AutoDateLocator, DateFormatter

    every = [point.x for series in panels.values() for points in series.values() for point in points]
    first, last = min([*every, *promoted]), max([*every, *promoted])
    margin = max((last - first) * 0.05, LEAST_MARGIN_SECONDS)
    ends = [_days(end) for end in (first - margin, last + margin)]
    figure, found = figure_of(len(panels), columns=3, row_inches=PANEL_INCHES)
    for axes, (title, series) in zip(found, panels.items(), strict=True):
        for number, label in enumerate(labels):
            points = sorted(series.get(label, ()), key=lambda point: point.x)
            if not points:
                continue
            own = number < len(STACK_COLORS)
            color, marker = (STACK_COLORS[number], MARKERS[number]) if own else (REST_COLOR, ".")
            _draw(axes, points, color, marker, plain(label) if own else REST)
        for time in promoted:
            axes.axvline(_days(time), color=PINK, linestyle="-.", linewidth=1.1, label=PROMOTED)
        axes.xaxis_date()
        axes.set_xlim(*ends)
        axes.xaxis.set_major_locator(AutoDateLocator(minticks=2, maxticks=4))
        hours = "\n%H:%M" if ends[1] - ends[0] < FEW_DAYS else ""
        axes.xaxis.set_major_formatter(DateFormatter(f"%Y-%m-%d{hours}"))
        name_axes(axes, title, "", "")
        axes.ticklabel_format(axis="y", useOffset=False)
        axes.locator_params(axis="y", nbins=5)
    legend_below(figure)
    return figure


def _draw(axes: "Axes", points: Sequence[Point], color: str, marker: str, label: str) -> None:
    """A line with 95 % intervals: a bar for each point or, of many, a band."""
    days, values = [_days(point.x) for point in points], [point.value for point in points]
    if len(points) > MANY_POINTS:
        axes.plot(days, values, color=color, linewidth=1.1, label=label)
        lows, highs = [point.low for point in points], [point.high for point in points]
        axes.fill_between(days, lows, highs, color=color, alpha=0.2, linewidth=0)
        return
    whiskers = [
        [max(point.value - point.low, 0.0) for point in points],
        [max(point.high - point.value, 0.0) for point in points],
    ]
    drawn = axes.errorbar(
        days, values, yerr=whiskers, color=color, marker=marker, markersize=4, linewidth=1.1, capsize=2,
        elinewidth=0.8, label=label,
    )  # fmt: skip
    for part in (*drawn.lines[1], *drawn.lines[2]):
        part.set_alpha(0.4)


def _days(seconds: float) -> float:
    """As matplotlib counts dates."""
    from matplotlib.dates import date2num

    return float(date2num(datetime.fromtimestamp(seconds, UTC)))
