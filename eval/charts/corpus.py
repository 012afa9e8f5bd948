"""A chart of curation: what each of its steps left."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from eval.charts.frame import (
    INK,
    REST,
    REST_COLOR,
    STACK_COLORS,
    figure_of,
    legend_below,
    name_axes,
    percent,
    plain,
    short,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def funnel(steps: Sequence[str], panels: Mapping[str, Mapping[str, Sequence[float]]]) -> "Figure":
    """Bars of what is left after each step, the first on top: a panel for each unit, in which the groups are stacked.

    panels: unit -> group -> value at each step. The groups with most at the first step of the first unit have a colour
    each, the rest share one. A bar is labelled with its sum and with that share of the first bar.
    """
    groups = list(next(iter(panels.values())))
    ordered = sorted(groups, key=lambda group: -next(iter(panels.values()))[group][0])
    own = ordered if len(groups) <= len(STACK_COLORS) else ordered[: len(STACK_COLORS) - 1]
    rest = [group for group in ordered if group not in own]
    figure, axes_of = figure_of(len(panels), columns=len(panels))
    places = np.arange(len(steps))[::-1]
    for axes, (unit, values) in zip(axes_of, panels.items(), strict=True):
        stacks = {
            group: (np.asarray(values[group], float), color) for group, color in zip(own, STACK_COLORS, strict=False)
        }
        if rest:
            stacks[f"{len(rest)} {REST}"] = np.sum([values[group] for group in rest], axis=0), REST_COLOR
        left = np.zeros(len(steps))
        for group, (widths, color) in stacks.items():
            axes.barh(places, widths, left=left, color=color, height=0.72, label=plain(group))
            left = left + widths
        for place, width in zip(places, left, strict=True):
            share = f" · {percent(width / left[0])}" if left[0] else ""
            axes.annotate(
                f"{short(width)}{share}", (width, place), (3, 0), textcoords="offset points", va="center", fontsize=7,
                color=INK,
            )  # fmt: skip
        axes.set_yticks(places, steps if axes is axes_of[0] else [""] * len(steps))
        axes.grid(visible=False, axis="y")
        axes.set_xlim(0, max(float(left.max()), 1.0) * 1.5)  # room for the labels
        axes.xaxis.set_major_formatter(lambda value, position: short(value))
        axes.locator_params(axis="x", nbins=4)
        name_axes(axes, unit, "", "")
    if len(groups) > 1:
        legend_below(figure)
    return figure
