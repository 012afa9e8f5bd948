"""What a step costs, measured in the same way in every training: CPU time of the process, all its threads, from the end
of one optimizer step to the end of the next.

The first steps, in which code is compiled and memory is got, are left out. Start-up comes before them.
"""

import json
import os
import time
from pathlib import Path

STEPS, SKIPPED = 25, 5
ROWS, TOKENS = 8, 256  # of the global batch
VOCABULARY, HIDDEN, LAYERS, HEADS, FEED_FORWARD = 2048, 256, 6, 16, 768
LEARNING_RATE, BETAS, WEIGHT_DECAY, CLIP_NORM = 8e-4, (0.9, 0.95), 0.1, 1.0


class Steps:
    """Times of the steps of this process; after the last one they are written to a file of its rank's."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / f"steps-{os.environ.get('RANK', '0')}.json"
        self._times: list[tuple[float, float]] = []

    def ended(self, *_: object) -> None:
        """A step has ended. Takes whatever arguments a hook is called with."""
        self._times.append((time.process_time(), time.perf_counter()))
        if len(self._times) == STEPS:
            cpu, wall = (last - first for first, last in zip(self._times[SKIPPED - 1], self._times[-1], strict=True))
            count = STEPS - SKIPPED
            self._path.write_text(json.dumps({"cpu_seconds": cpu / count, "wall_seconds": wall / count}))
