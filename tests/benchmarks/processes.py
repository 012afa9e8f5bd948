"""`make bench-processes`: the first 50 steps of the demo in float32, on one process and on two (FSDP2), with the same
global batch.

The figure is the largest relative difference between the two loss curves. Both start in a copy of one store, so they
train on the same shards.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

from stages.recipe import load
from stages.store import Store
from tests.benchmarks.harness import measure, report

DEMO = Path("deployments/recipes/demo.toml")
STEPS = 50
PACKAGES = ("torch", "accelerate", "transformers")


def first_steps() -> list[str]:
    """Settings that make the first steps of the demo a run of their own: its warm-up, cut off on the way."""
    demo = load(DEMO).pretrain
    warmup_steps = round(demo.warmup_ratio * demo.num_steps)
    assert warmup_steps >= STEPS, "the cut must lie in the warm-up, where the schedule is a straight line"
    settings = {
        "num_steps": STEPS,
        "warmup_ratio": 1.0,
        "learning_rate": demo.learning_rate * STEPS / warmup_steps,
        "precision": "fp32",
        "checkpoint_every_steps": STEPS,
    }
    return [word for name, value in settings.items() for word in ("--set", f"pretrain.{name}={value}")]


def train(root: Path, processes: int) -> list[float]:
    """Loss of each step, nats per token."""
    settings = [
        *first_steps(),
        "--set",
        f"pretrain.num_processes={processes}",
        "--set",
        f"pretrain.threads={3 - processes}",
    ]
    measure([sys.executable, "-m", "stages.pretrain", str(DEMO), "--upstream", "--root", str(root), *settings])
    (trained,) = Store(root).all("pretrain")
    return [json.loads(line)["loss"] for line in (trained.path / "metrics.jsonl").read_text().splitlines()]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        tokens, one, two = (Path(folder, name) for name in ("tokens", "one", "two"))
        measure([sys.executable, "-m", "stages.pretokenize", str(DEMO), "--upstream", "--root", str(tokens)])
        shutil.copytree(tokens, one)
        shutil.copytree(tokens, two)
        single, sharded = train(one, 1), train(two, 2)
    assert len(single) == len(sharded) == STEPS
    differences = [abs(a - b) / a for a, b in zip(single, sharded, strict=True)]
    rows = [[step + 1, single[step], sharded[step], differences[step]] for step in (0, 9, 19, 29, 39, 49)]
    figures = {"steps": STEPS, "largest_relative_loss_difference": max(differences)}
    report(
        "processes", ("step", "loss, 1 process", "loss, 2 processes", "relative difference"), rows, figures, PACKAGES
    )


if __name__ == "__main__":
    main()
