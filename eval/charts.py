"""The plots that the report and Prefect artifacts share: figures in, inline SVG out.

Colours are those of Okabe and Ito (2008), which the common kinds of colour blindness keep apart; series differ by
marker too. In SVG, ink and grid take the CSS variables --chart-ink and --chart-grid of the page around them, so that
one figure suits a light and a dark page.
"""

import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, RED, PINK, SKY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9"
INK, GRID = "#333334", "#d9d9da"  # stand in for the page's variables; no other colour is equal to them
BASELINE_STYLES = {"gzip-9": (ORANGE, "--"), "xz-9e": (RED, ":")}
WIDTH_INCHES, ROW_INCHES = 7.6, 2.7
MOST_POINTS = 400  # of a curve; more cannot be told apart on the page
NEXT_STYLE = (BLUE, "-.")
STACK_COLORS = (BLUE, ORANGE, GREEN, PINK, SKY, RED)
LOST_COLORS = (RED, BLUE, ORANGE, PINK, SKY, "#7a5195", "#5c666d")
LIGHT = (ORANGE, PINK, SKY)  # under black letters
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


def loss_curve(steps: Sequence[int], losses: Sequence[float], heldout: Sequence[tuple[int, float]] = ()) -> "Figure":
    """Training loss by step, as it is and smoothed, and the held-out loss at checkpoints."""
    figure, (axes,) = _figure(1)
    x, y = np.asarray(steps, float), np.asarray(losses, float)
    axes.plot(*_thin(x, y), color=SKY, alpha=0.45, linewidth=0.8, label="training, each step")
    axes.plot(*_thin(x, _smooth(y)), color=BLUE, linewidth=1.6, label="training, smoothed")
    if heldout:
        axes.plot(*zip(*heldout, strict=True), color=RED, marker="o", markersize=4, linewidth=1.2, label="held-out")
    _label(axes, "Loss", "step", "nats per token")
    _legend(axes)
    return figure


def learning_rate(steps: Sequence[int], rates: Sequence[float], norms: Sequence[float | None]) -> "Figure":
    """Learning rate and global gradient norm by step. norms: None where a step has none."""
    figure, (left, right) = _figure(2, columns=2)
    x = np.asarray(steps, float)
    left.plot(*_thin(x, np.asarray(rates, float)), color=GREEN, linewidth=1.4)
    _label(left, "Learning rate", "step", "")
    y = np.asarray(norms, float)
    known = ~np.isnan(y)
    right.plot(*_thin(x[known], y[known]), color=PINK, linewidth=0.9)
    _label(right, "Gradient norm before clipping", "step", "")
    if (y[known] > 0).all():
        right.set_yscale("log")
    return figure


def throughput(steps: Sequence[int], tokens_per_second: Sequence[float]) -> "Figure":
    """Tokens per second by step, and their median."""
    figure, (axes,) = _figure(1)
    x, y = np.asarray(steps, float), np.asarray(tokens_per_second, float)
    axes.plot(*_thin(x, y), color=SKY, alpha=0.6, linewidth=0.8, label="each step")
    axes.axhline(float(np.median(y)), color=BLUE, linestyle="--", linewidth=1.2, label=f"median, {np.median(y):,.0f}")
    axes.set_ylim(bottom=0)
    _label(axes, "Throughput", "step", "tokens per second")
    _legend(axes)
    return figure


def curves(panels: Mapping[str, Mapping[str, tuple[Sequence[int], Sequence[float]]]], *, log: bool) -> "Figure":
    """A panel for each title, two abreast: its series by step, the same ones in the same order in each; log: on a
    logarithmic axis."""
    figure, found = _figure(len(panels), columns=2)
    for axes, (title, series) in zip(found, panels.items(), strict=True):
        axes.set_prop_cycle(color=STACK_COLORS)
        for label, points in series.items():
            axes.plot(*_thin(*(np.asarray(values, float) for values in points)), linewidth=1, label=label)
        axes.set(**({"yscale": "log"} if log else {"ylim": (0, None)}))
        _label(axes, title, "step", "")
    most = max(found, key=lambda axes: len(axes.lines))
    if len(most.lines) > 1:  # below: lines of a noisy measure leave no room among them
        figure.legend(
            handles=most.lines,
            loc="outside lower center",
            ncols=len(most.lines),
            frameon=False,
            fontsize=8,
            labelcolor=INK,
        )
    return figure


def bits_per_byte(series: Mapping[str, Sequence[Point]], baselines: Mapping[str, Mapping[str, float]]) -> "Figure":
    """A panel for each domain: bits per byte by tokens seen with 95 % intervals over documents, beside what compressors
    need.
    """
    figure, panels = _figure(len(series), columns=2)
    for axes, (domain, points) in zip(panels, series.items(), strict=True):
        _error_bars(axes, points, BLUE, "model")
        for name, value in baselines.get(domain, {}).items():
            color, style = BASELINE_STYLES.get(name, NEXT_STYLE)
            axes.axhline(value, color=color, linestyle=style, linewidth=1.3, label=name)
        _label(axes, domain, "tokens seen", "bits per byte")
        _legend(axes)
    return figure


def task_scores(
    series: Mapping[str, Sequence[Point]], chance: Mapping[str, float | None], metric: Mapping[str, str]
) -> "Figure":
    """A panel for each task: its score by tokens seen, plus and minus one standard error over clusters of items, beside
    chance.
    """
    figure, panels = _figure(len(series), columns=3)
    for axes, (task, points) in zip(panels, series.items(), strict=True):
        _error_bars(axes, points, GREEN, "model")
        guess = chance.get(task)
        if guess is not None:
            axes.axhline(guess, color=INK, linestyle=":", linewidth=1.2, label=f"chance, {guess:g}")
            axes.set_ylim(0, 1.02)
        _label(axes, task, "tokens seen", metric.get(task, ""))
        _legend(axes, "lower right")
    return figure


def export_forms(num_bytes: Mapping[str, int], increases: Mapping[str, float], refused: Sequence[str] = ()) -> "Figure":
    """Bars of size and of the worst increase in bits per byte, for each form; refused ones hatched."""
    figure, (left, right) = _figure(2, columns=2)
    names = list(num_bytes)
    places = np.arange(len(names))[::-1]
    hatches = ["//" if name in refused else "" for name in names]
    for axes, values, color in (
        (left, [num_bytes[name] / 1e6 for name in names], BLUE),
        (right, [100 * increases[name] for name in names], ORANGE),
    ):
        bars = axes.barh(places, values, color=color, height=0.6, hatch=hatches, edgecolor=GRID)
        axes.bar_label(bars, labels=[f"{value:.2f}" for value in values], padding=3, color=INK)
        axes.set_yticks(places, [f"{name} (refused)" if name in refused else name for name in names])
        axes.axvline(0, color=INK, linewidth=0.8)
        axes.margins(x=0.2)
    right.set_yticklabels([])
    _label(left, "Size", "megabytes", "")
    _label(right, "Loss of quality", "increase of bits per byte, %", "")
    return figure


def funnel(steps: Sequence[str], panels: Mapping[str, Mapping[str, Sequence[float]]]) -> "Figure":
    """Bars of what is left after each step, the first on top: a panel for each unit, in which the groups are stacked.

    panels: unit -> group -> value at each step. The groups with most at the first step of the first unit have a colour
    each, the rest share one. A bar is labelled with its sum and with that share of the first bar.
    """
    groups = list(next(iter(panels.values())))
    ordered = sorted(groups, key=lambda group: -next(iter(panels.values()))[group][0])
    own = ordered if len(groups) <= len(STACK_COLORS) else ordered[: len(STACK_COLORS) - 1]
    rest = [group for group in ordered if group not in own]
    figure, axes_of = _figure(len(panels), columns=len(panels))
    places = np.arange(len(steps))[::-1]
    for axes, (unit, values) in zip(axes_of, panels.items(), strict=True):
        stacks = {
            group: (np.asarray(values[group], float), color) for group, color in zip(own, STACK_COLORS, strict=False)
        }
        if rest:
            stacks[f"{len(rest)} {REST}"] = np.sum([values[group] for group in rest], axis=0), REST_COLOR
        left = np.zeros(len(steps))
        for group, (widths, color) in stacks.items():
            axes.barh(places, widths, left=left, color=color, height=0.72, label=group.replace("$", r"\$"))
            left = left + widths
        for place, width in zip(places, left, strict=True):
            share = f" · {_percent(width / left[0])}" if left[0] else ""
            axes.annotate(
                f"{_short(width)}{share}", (width, place), (3, 0), textcoords="offset points", va="center", fontsize=7,
                color=INK,
            )  # fmt: skip
        axes.set_yticks(places, steps if axes is axes_of[0] else [""] * len(steps))
        axes.grid(visible=False, axis="y")
        axes.set_xlim(0, max(float(left.max()), 1.0) * 1.5)  # room for the labels
        axes.xaxis.set_major_formatter(lambda value, position: _short(value))
        axes.locator_params(axis="x", nbins=4)
        _label(axes, unit, "", "")
    if len(groups) > 1:
        handles, labels = axes_of[0].get_legend_handles_labels()
        figure.legend(
            handles, labels, loc="outside lower center", ncols=min(len(labels), 4), frameon=False, fontsize=8,
            labelcolor=INK,
        )  # fmt: skip
    return figure


def time_spent(productive: float, lost: Mapping[str, float]) -> "Figure":
    """Two bars, each of them a whole: all of the time, and, so that what is small can be seen, what was lost of it.
    productive, lost by cause: seconds. Causes beyond those that have a colour of their own, the least ones, share
    one."""
    figure, (axes,) = _figure(1)
    figure.set_figheight(ROW_INCHES * 0.75)
    causes = sorted(lost, key=lambda cause: -lost[cause])
    own = causes if len(causes) <= len(LOST_COLORS) else causes[: len(LOST_COLORS) - 1]
    stacks = [("productive", productive, GREEN), *zip(own, (lost[cause] for cause in own), LOST_COLORS, strict=False)]
    if len(own) < len(causes):
        stacks.append(
            (f"{len(causes) - len(own)} {REST}", sum(lost[cause] for cause in causes[len(own) :]), REST_COLOR)
        )
    bars = [("all of the time", stacks), ("what was lost", stacks[1:])]
    for place, (_, parts) in zip((1, 0), bars, strict=True):
        whole, left = sum(seconds for _, seconds, _ in parts), 0.0
        for cause, seconds, color in parts if whole else ():
            share = seconds / whole
            label = cause.replace("$", r"\$") if place or not productive else None
            axes.barh(place, share, left=left, color=color, height=0.62, label=label, edgecolor="none")
            if share > 0.045:
                ink = "black" if color in LIGHT else "white"
                where = left + share / 2, place
                axes.annotate(_percent(share), where, ha="center", va="center", fontsize=7.5, color=ink)
            left += share
    axes.set_yticks((1, 0), [name for name, _ in bars])
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(lambda value, position: f"{value:.0%}")
    axes.grid(visible=False, axis="y")
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=min(len(labels), 4), frameon=False, fontsize=8,
        labelcolor=INK,
    )  # fmt: skip
    return figure


def _percent(share: float) -> str:
    """100 % only for all, and 0 % only for nothing."""
    if 0.995 <= share < 1:
        return f"{min(share, 0.9999):.2%}"
    return f"{share:.2%}" if 0 < share < 0.01 else f"{share:.0%}"


def _figure(num_panels: int, columns: int = 1) -> tuple["Figure", list["Axes"]]:
    """A figure on no window, so that it works in any thread and without a display."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = max(1, min(columns, num_panels))
    rows = max(1, math.ceil(num_panels / columns))
    figure = Figure(figsize=(WIDTH_INCHES, ROW_INCHES * rows), layout="constrained")
    FigureCanvasAgg(figure)
    panels = [figure.add_subplot(rows, columns, number + 1) for number in range(num_panels)]
    for axes in panels:
        axes.tick_params(which="both", colors=INK, labelsize=8)
        axes.grid(color=GRID, linewidth=0.6)
        axes.set_axisbelow(True)
        for side, spine in axes.spines.items():
            spine.set_visible(side in ("left", "bottom"))
            spine.set_color(INK)
    return figure, panels


def _label(axes: "Axes", title: str, x: str, y: str) -> None:
    """`title` may be a name that a user gave: a dollar sign in it begins no formula."""
    axes.set_title(title.replace("$", r"\$"), fontsize=10, color=INK, loc="left")
    axes.set_xlabel(x, fontsize=8.5, color=INK)
    axes.set_ylabel(y, fontsize=8.5, color=INK)
    if x == "tokens seen":
        axes.xaxis.set_major_formatter(lambda value, position: _short(value))
        axes.locator_params(axis="x", nbins=5)


def _legend(axes: "Axes", location: Literal["best", "lower right"] = "best") -> None:
    axes.legend(frameon=False, fontsize=8, labelcolor=INK, loc=location)


def _error_bars(axes: "Axes", points: Sequence[Point], color: str, label: str) -> None:
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


def _smooth(values: np.ndarray) -> np.ndarray:
    """Mean over a centred window of 2 % of the curve, at least 5 steps; shorter at the ends, so that nothing is
    shifted.
    """
    half = max(2, len(values) // 100)
    sums = np.concatenate([[0.0], np.cumsum(values)])
    places = np.arange(len(values))
    first, last = np.maximum(places - half, 0), np.minimum(places + half + 1, len(values))
    return (sums[last] - sums[first]) / (last - first)


def _thin(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """At most MOST_POINTS points; of each stretch the lowest and the highest, so that no spike is lost."""
    if len(x) <= MOST_POINTS:
        return x, y
    kept = set()
    for stretch in np.array_split(np.arange(len(x)), MOST_POINTS // 2):
        kept |= {int(stretch[np.argmin(y[stretch])]), int(stretch[np.argmax(y[stretch])])}
    order = np.array(sorted(kept | {0, len(x) - 1}))
    return x[order], y[order]


def _short(value: float) -> str:
    """1500000 as 1.5M."""
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"
