"""Evaluate a model: bits per byte by domain, and the recipe's suites.

Run: python -m stages.evaluate RECIPE
"""

from stages.cli import main
from stages.evaluate import STAGE

main(STAGE)
