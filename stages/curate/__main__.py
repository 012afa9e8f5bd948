"""python -m stages.curate RECIPE"""

from stages.cli import main
from stages.curate.stage import STAGE

if __name__ == "__main__":
    main(STAGE)
