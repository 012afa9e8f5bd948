"""Adopt a model that was trained elsewhere.

Run: python -m stages.adopt RECIPE --set adopt.source=FOLDER_OR_FILE
"""

from stages.adopt import STAGE
from stages.cli import main

main(STAGE)
