"""A chart of the forms in which a model ships."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from eval.charts.frame import BLUE, GRID, INK, ORANGE, figure_of, name_axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def export_forms(num_bytes: Mapping[str, int], increases: Mapping[str, float], refused: Sequence[str] = ()) -> "Figure":
    """Bars of size and of the worst increase in bits per byte, for each form; refused ones hatched."""
    figure, (left, right) = figure_of(2, columns=2)
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
    name_axes(left, "Size", "megabytes", "")
    name_axes(right, "Loss of quality", "increase of bits per byte, %", "")
    return figure
