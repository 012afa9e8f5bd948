"""Charts of a training: its loss, its rates, and where its time went."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from eval.charts.frame import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    PINK,
    RED,
    REST,
    REST_COLOR,
    ROW_INCHES,
    SKY,
    STACK_COLORS,
    figure_of,
    legend,
    legend_below,
    name_axes,
    percent,
    plain,
    smooth,
    thin,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOST_COLORS = (RED, BLUE, ORANGE, PINK, SKY, "#7a5195", "#5c666d")
LIGHT = (ORANGE, PINK, SKY)  # under black letters


def loss_curve(steps: Sequence[int], losses: Sequence[float], heldout: Sequence[tuple[int, float]] = ()) -> "Figure":
    """Training loss by step, as it is and smoothed, and the held-out loss at checkpoints."""
    figure, (axes,) = figure_of(1)
    x, y = np.asarray(steps, float), np.asarray(losses, float)
    axes.plot(*thin(x, y), color=SKY, alpha=0.45, linewidth=0.8, label="training, each step")
    axes.plot(*thin(x, smooth(y)), color=BLUE, linewidth=1.6, label="training, smoothed")
    if heldout:
        axes.plot(*zip(*heldout, strict=True), color=RED, marker="o", markersize=4, linewidth=1.2, label="held-out")
    name_axes(axes, "Loss", "step", "nats per token")
    legend(axes)
    return figure


def learning_rate(steps: Sequence[int], rates: Sequence[float], norms: Sequence[float | None]) -> "Figure":
    """Learning rate and global gradient norm by step. norms: None where a step has none."""
    figure, (left, right) = figure_of(2, columns=2)
    x = np.asarray(steps, float)
    left.plot(*thin(x, np.asarray(rates, float)), color=GREEN, linewidth=1.4)
    name_axes(left, "Learning rate", "step", "")
    y = np.asarray(norms, float)
    known = ~np.isnan(y)
    right.plot(*thin(x[known], y[known]), color=PINK, linewidth=0.9)
    name_axes(right, "Gradient norm before clipping", "step", "")
    if (y[known] > 0).all():
        right.set_yscale("log")
    return figure


def throughput(steps: Sequence[int], tokens_per_second: Sequence[float]) -> "Figure":
    """Tokens per second by step, and their median."""
    figure, (axes,) = figure_of(1)
    x, y = np.asarray(steps, float), np.asarray(tokens_per_second, float)
    axes.plot(*thin(x, y), color=SKY, alpha=0.6, linewidth=0.8, label="each step")
    axes.axhline(float(np.median(y)), color=BLUE, linestyle="--", linewidth=1.2, label=f"median, {np.median(y):,.0f}")
    axes.set_ylim(bottom=0)
    name_axes(axes, "Throughput", "step", "tokens per second")
    legend(axes)
    return figure


def curves(panels: Mapping[str, Mapping[str, tuple[Sequence[int], Sequence[float]]]], *, log: bool) -> "Figure":
    """A panel for each title, two abreast: its series by step, the same ones in the same order in each; log: on a
    logarithmic axis."""
    figure, found = figure_of(len(panels), columns=2)
    for axes, (title, series) in zip(found, panels.items(), strict=True):
        axes.set_prop_cycle(color=STACK_COLORS)
        for label, points in series.items():
            axes.plot(*thin(*(np.asarray(values, float) for values in points)), linewidth=1, label=label)
        axes.set(**({"yscale": "log"} if log else {"ylim": (0, None)}))
        name_axes(axes, title, "step", "")
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


def time_spent(productive: float, lost: Mapping[str, float]) -> "Figure":
    """Two bars, each of them a whole: all of the time, and, so that what is small can be seen, what was lost of it.
    productive, lost by cause: seconds. Causes beyond those that have a colour of their own, the least ones, share
    one."""
    figure, (axes,) = figure_of(1)
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
            axes.barh(place, share, left=left, color=color, height=0.62, label=plain(cause), edgecolor="none")
            if share > 0.045:
                ink = "black" if color in LIGHT else "white"
                where = left + share / 2, place
                axes.annotate(percent(share), where, ha="center", va="center", fontsize=7.5, color=ink)
            left += share
    axes.set_yticks((1, 0), [name for name, _ in bars])
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(lambda value, position: f"{value:.0%}")
    axes.grid(visible=False, axis="y")
    legend_below(figure)
    return figure
