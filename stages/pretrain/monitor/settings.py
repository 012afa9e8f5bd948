"""What is measured of a running training, and how often.

Imports neither torch nor transformers: the plan and the recipe's form read this too.
"""

from stages.config import StageConfig, runtime


class MonitorSettings(StageConfig):
    """What is measured of a running training, and how often."""

    monitor_every_steps: int = runtime(
        50,
        rounding=True,
        ge=1,
        description="After the first, every so many steps what costs time is measured too: norms of parameters and "
        "updates, ranges of activations, communication, links and memory. How often decides on what metrics.jsonl "
        "holds, never on the weights",
    )
    trackers: tuple[str, ...] = runtime(
        (),
        description="Where the numbers of each step go too: names that Accelerate knows, such as tensorboard or wandb",
    )
