"""Compare the evaluations of a recipe's checkpoints, each with its baseline, or the two that are named.

Run: python -m stages.compare RECIPE [--input candidate=EVALUATION --input baseline=BASELINE]
"""

from stages.cli import main
from stages.compare import STAGE

main(STAGE)
