"""What all charts share: colours, axes, labels of numbers, and a figure as inline SVG or as PNG.

Colours are those of Okabe and Ito (2008), which the common kinds of colour blindness keep apart; series differ by
marker too. In SVG, ink and grid take the CSS variables --chart-ink and --chart-grid of the page around them, so that
one figure suits a light and a dark page.
"""

import base64
import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, RED, PINK, SKY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9"
INK, GRID = "#333334", "#d9d9da"  # stand in for the page's variables; no other colour is equal to them
WIDTH_INCHES, ROW_INCHES = 7.6, 2.7
PNG_DPI = 90
MOST_POINTS = 400  # of a curve; more cannot be told apart on the page
MARKERS = ("o", "s", "^", "D", "v", "P")
STACK_COLORS = (BLUE, ORANGE, GREEN, PINK, SKY, RED)
REST, REST_COLOR = "others", "#8b9398"


@dataclass(frozen=True, kw_only=True)
class Point:
    """A value with its interval at a place on the x axis."""

    x: float
    value: float
    low: float
    high: float


def as_svg(figure: "Figure", label: str) -> str:
    """Inline SVG that scales with its column; the same text for the same figure. `label` is read out to those who do
    not see it.
    """
    import matplotlib

    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "longhaul"}):
        figure.savefig(
            buffer,
            format="svg",
            transparent=True,
            metadata={"Date": None, "Creator": None, "Format": None, "Type": None},
        )
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    head, body = text.split(">", 1)
    view_box = re.search(r'viewBox="[^"]*"', head)
    assert view_box is not None
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = body.replace(INK, "var(--chart-ink, #333334)").replace(GRID, "var(--chart-grid, #d9d9da)")
    escaped = label.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    namespace = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    return f'<svg {namespace} {view_box.group()} role="img" aria-label="{escaped}" class="chart">{body}'


def as_data_uri(figure: "Figure") -> str:
    """A PNG on white paper as a `data:` URI, for Markdown that may hold no SVG."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=PNG_DPI, facecolor="white", metadata={"Software": None})
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def figure_of(
    num_panels: int, columns: int = 1, row_inches: float = ROW_INCHES, heights: Sequence[float] = ()
) -> tuple["Figure", list["Axes"]]:
    """A figure on no window, so that it works in any thread and without a display. Panels fill rows of `columns`, so
    that a single one of several columns is as wide as it would be among others. heights: of rows that differ, in
    inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.gridspec import GridSpec

    rows = max(1, math.ceil(num_panels / columns))
    ratios = list(heights) or [row_inches] * rows
    figure = Figure(figsize=(WIDTH_INCHES, sum(ratios)), layout="constrained")
    FigureCanvasAgg(figure)
    grid = GridSpec(rows, columns, figure=figure, height_ratios=ratios)
    panels = [figure.add_subplot(grid[number]) for number in range(num_panels)]
    for axes in panels:
        axes.tick_params(which="both", colors=INK, labelsize=8)
        axes.grid(color=GRID, linewidth=0.6)
        axes.set_axisbelow(True)
        for side, spine in axes.spines.items():
            spine.set_visible(side in ("left", "bottom"))
            spine.set_color(INK)
    return figure, panels


def name_axes(axes: "Axes", title: str, x: str, y: str) -> None:
    """`title` may be a name that a user gave."""
    axes.set_title(plain(title), fontsize=10, color=INK, loc="left")
    axes.set_xlabel(x, fontsize=8.5, color=INK)
    axes.set_ylabel(y, fontsize=8.5, color=INK)
    if x == "tokens seen":
        axes.xaxis.set_major_formatter(lambda value, position: short(value))
        if axes.get_xscale() == "linear":
            axes.locator_params(axis="x", nbins=5)


def legend_below(figure: "Figure") -> None:
    """One legend under all panels: of each label its first handle, in the order in which they come up."""
    found: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(name, handle)
    if found:
        figure.legend(
            found.values(), found.keys(), loc="outside lower center", ncols=min(len(found), 4), frameon=False,
            fontsize=8, labelcolor=INK,
        )  # fmt: skip


def legend(axes: "Axes") -> None:
    axes.legend(frameon=False, fontsize=8, labelcolor=INK, loc="best")


def error_bars(axes: "Axes", points: Sequence[Point], color: str, label: str) -> None:
    ordered = sorted(points, key=lambda point: point.x)
    values = np.array([point.value for point in ordered])
    errors = np.abs(np.array([[point.low for point in ordered], [point.high for point in ordered]]) - values)
    axes.errorbar(
        [point.x for point in ordered],
        values,
        yerr=errors,
        color=color,
        marker="o",
        markersize=4,
        linewidth=1.4,
        capsize=2.5,
        elinewidth=0.9,
        label=label,
    )


def whiskers(value: float, low: float, high: float) -> list[list[float]]:
    """An interval as matplotlib takes it: how far it reaches below and above."""
    return [[max(value - low, 0.0)], [max(high - value, 0.0)]]


def plain(name: str) -> str:
    """A name in which a dollar sign begins no formula."""
    return name.replace("$", r"\$")


def percent(share: float) -> str:
    """100 % only for all, and 0 % only for nothing."""
    if 0.995 <= share < 1:
        return f"{min(share, 0.9999):.2%}"
    return f"{share:.2%}" if 0 < share < 0.01 else f"{share:.0%}"


def smooth(values: np.ndarray) -> np.ndarray:
    """Mean over a centred window of 2 % of the curve, at least 5 steps; shorter at the ends, so that nothing is
    shifted.
    """
    half = max(2, len(values) // 100)
    sums = np.concatenate([[0.0], np.cumsum(values)])
    places = np.arange(len(values))
    first, last = np.maximum(places - half, 0), np.minimum(places + half + 1, len(values))
    return (sums[last] - sums[first]) / (last - first)


def thin(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """At most MOST_POINTS points; of each stretch the lowest and the highest, so that no spike is lost."""
    if len(x) <= MOST_POINTS:
        return x, y
    kept = set()
    for stretch in np.array_split(np.arange(len(x)), MOST_POINTS // 2):
        kept |= {int(stretch[np.argmin(y[stretch])]), int(stretch[np.argmax(y[stretch])])}
    order = np.array(sorted(kept | {0, len(x) - 1}))
    return x[order], y[order]


def short(value: float) -> str:
    """1500000 as 1.5M."""
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"
