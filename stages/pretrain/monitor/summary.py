"""What the timing lines of a whole training amount to."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any


def summary(timing: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """mfu: of the median step, as a share of the device's measured rate of matrix products; monitor_ratio: CPU time
    of the training thread in the monitor, as a share of the time of the steps; exposed_share: of the median sampled
    step, the share in which communication ran and nothing was computed. What was not measured is absent."""
    used = [line["mfu"] for line in timing if "mfu" in line]
    spent = [(line["monitor_seconds"], line["seconds"]) for line in timing if "monitor_seconds" in line]
    exposed = [line["communication"]["exposed_share"] for line in timing if "communication" in line]
    found: dict[str, float] = {}
    if used:
        found["mfu"] = statistics.median(used)
    if spent:
        found["monitor_ratio"] = sum(cpu for cpu, _ in spent) / sum(wall for _, wall in spent)
    if exposed:
        found["exposed_share"] = statistics.median(exposed)
    return found
