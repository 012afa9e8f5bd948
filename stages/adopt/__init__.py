"""Adopt a model that was trained elsewhere: checked, and kept as an artifact that can be evaluated beside ours.

Run: python -m stages.adopt RECIPE --set adopt.source=FOLDER_OR_FILE
"""

from stages.adopt.config import AdoptConfig, externals
from stages.adopt.stage import run
from stages.base import Stage

STAGE = Stage(name="adopt", revision=1, config=AdoptConfig, inputs={}, run=run, externals=externals)

__all__ = ["STAGE", "AdoptConfig"]
