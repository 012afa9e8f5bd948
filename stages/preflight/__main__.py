"""Two real steps on the real layout, disk, memory, and every exporter on random weights; each passes before training.

python -m stages.preflight RECIPE
"""

from stages.cli import main
from stages.preflight import STAGE

main(STAGE)
