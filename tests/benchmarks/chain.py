"""`make bench-chain`: time and CPU of each stage of the demo, what its model reaches, and what Prefect costs.

The demo runs once, through Prefect, in a fresh store; each stage's cost stands in its manifest. Then it runs again,
when every stage is a hit. Prefect's cost is measured on the tiny recipe by interleaved pairs: (A) the chain from a
shell, one process per stage, (B) the same chain through Prefect, each in a fresh store. The flow evaluates beside the
training and the shell after it, so the ratio of wall times is the cost of Prefect less what that overlap saves; CPU
has no such part.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from stages.recipe import CHAIN
from stages.store import Store
from tests.benchmarks.harness import Cost, interleave, measure, report

RECIPES = Path("deployments/recipes")
PACKAGES = ("prefect", "torch", "transformers", "pyarrow")


def through_prefect(recipe: str, root: Path) -> Cost:
    return measure([sys.executable, "-m", "flows.pipeline", str(RECIPES / recipe), "--root", str(root)])


def from_shell(recipe: str, root: Path) -> Cost:
    """Every stage by its own command, as a person would type them."""
    costs = [
        measure([sys.executable, "-m", f"stages.{stage}", str(RECIPES / recipe), "--root", str(root)])
        for stage in CHAIN
    ]
    return Cost(sum(cost.wall_seconds for cost in costs), sum(cost.cpu_seconds for cost in costs))


def in_fresh_store(run, recipe: str) -> Cost:  # type: ignore[no-untyped-def]
    with tempfile.TemporaryDirectory() as root:
        return run(recipe, Path(root))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--demo", default="demo.toml", help="the recipe whose stages are listed")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        demo = through_prefect(arguments.demo, root)
        rows, stages_wall = stage_rows(root)
        scores = scores_to_gzip(root)
        cached = [through_prefect(arguments.demo, root).wall_seconds for _ in range(arguments.pairs)]
    tiny = interleave(
        lambda: in_fresh_store(from_shell, "tiny.toml"),
        lambda: in_fresh_store(through_prefect, "tiny.toml"),
        pairs=arguments.pairs,
    )
    figures = {
        "demo_wall_seconds": demo.wall_seconds,
        "demo_cpu_seconds": demo.cpu_seconds,
        "demo_outside_stages_share": 1 - stages_wall / demo.wall_seconds,
        **{f"demo_{domain}_bits_per_byte": score for domain, (score, _) in scores.items()},
        **{f"demo_{domain}_to_gzip_9": score / gzip for domain, (score, gzip) in scores.items()},
        "demo_cached_wall_seconds": {"median": statistics.median(cached), "low": min(cached), "high": max(cached)},
        "tiny_prefect_to_shell_wall_ratio": tiny.ratio("wall_seconds"),
        "tiny_prefect_to_shell_cpu_ratio": tiny.ratio("cpu_seconds"),
    }
    report("chain", ("stage", "runs", "wall s", "CPU s", "share of wall"), rows, figures, PACKAGES)


def stage_rows(root: Path) -> tuple[list[list], float]:
    """A row for each stage, and the wall seconds of all but the evaluations, which run beside the training."""
    made = {stage: list(Store(root).all(stage)) for stage in CHAIN}
    wall = {stage: sum(a.manifest.provenance["seconds"] for a in found) for stage, found in made.items()}
    cpu = {stage: sum(a.manifest.provenance["cpu_seconds"] for a in found) for stage, found in made.items()}
    total = sum(seconds for stage, seconds in wall.items() if stage != "evaluate")
    return [[stage, len(made[stage]), wall[stage], cpu[stage], wall[stage] / total] for stage in CHAIN], total


def scores_to_gzip(root: Path) -> dict[str, tuple[float, float]]:
    """{domain: (bits per byte of the last checkpoint, of gzip -9 on the same text)}."""
    last = max(Store(root).all("evaluate"), key=lambda artifact: artifact.facts["model"]["step"]).facts
    return {
        domain: (last["bits_per_byte"][domain]["value"], last["baselines"][domain]["gzip-9"])
        for domain in ("reference", "code")
    }


if __name__ == "__main__":
    main()
