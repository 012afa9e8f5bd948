"""Parameters, FLOPs, memory, tokens and disk of a training run, by arithmetic.

python -m stages.plan RECIPE
"""

from stages.cli import main
from stages.plan import STAGE

main(STAGE)
