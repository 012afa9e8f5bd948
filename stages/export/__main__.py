"""Export a checkpoint: Hugging Face safetensors and GGUF, each reloaded, measured and gated.

Run: python -m stages.export RECIPE
"""

from stages.cli import main
from stages.export import STAGE

main(STAGE)
