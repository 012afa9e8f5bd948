"""The curves of a training beyond its loss: how its groups of parameters move, and how well it uses the machine."""

from collections.abc import Iterable, Mapping
from typing import Any

from stages.journal import read_events
from stages.pretrain.job import METRICS, TIMING
from stages.store import Artifact

Panels = dict[str, dict[str, tuple[list[int], list[float]]]]


def norm_panels(pretrain: Artifact) -> Panels:
    """By group of parameters: the norm of the gradient, and of an update as a share of the norm of what it updates."""
    gradients: list[tuple[str, int, float]] = []
    updates: list[tuple[str, int, float]] = []
    for line in read_events(pretrain.path / METRICS):
        gradients += [(group, line["step"], norm) for group, norm in line.get("gradient_norms", {}).items()]
        norms: Mapping[str, float | None] = line.get("parameter_norms", {})
        for group, update in line.get("update_norms", {}).items():
            if (norm := norms.get(group)) and update is not None:
                updates.append((group, line["step"], update / norm))
    return _panels({"Gradient norm by group": gradients, "Norm of an update over that of the weights": updates})


def machine_panels(pretrain: Artifact) -> Panels:
    """Shares, 0 to 1: of the device's measured rate of matrix products, and of a step in which communication ran and
    nothing was computed."""
    used: list[tuple[str, int, float]] = []
    exposed: list[tuple[str, int, float]] = []
    for line in read_events(pretrain.path / TIMING):
        if "mfu" in line:
            used.append(("", line["step"], line["mfu"]))
        if "communication" in line:
            exposed.append(("", line["step"], line["communication"]["exposed_share"]))
    return _panels({"Model FLOPs utilisation": used, "Exposed communication, share of the step": exposed})


def _panels(points: Mapping[str, Iterable[tuple[Any, int, float]]]) -> Panels:
    """Of (series, step, value) by title; titles without a point are left out."""
    panels: Panels = {}
    for title, found in points.items():
        for name, step, value in found:
            steps, values = panels.setdefault(title, {}).setdefault(name, ([], []))
            steps.append(step)
            values.append(value)
    return panels
