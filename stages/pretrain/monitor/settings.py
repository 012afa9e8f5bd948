"""What is measured of a running training, and how often.

Imports neither torch nor transformers: the plan and the recipe's form read this too.
"""

from stages.config import StageConfig


class MonitorSettings(StageConfig):
    """What is measured of a running training, and how often."""
