"""Train the model of a recipe, or go on with its training.

python -m stages.pretrain deployments/recipes/demo.toml
"""

from stages.cli import main
from stages.pretrain import STAGE

if __name__ == "__main__":
    main(STAGE)
