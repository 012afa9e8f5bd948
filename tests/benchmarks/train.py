"""`make bench-train`: what a training step costs on a CPU, beside litgpt's, torchtitan's and a bare loop.

One model for all: 6 layers, hidden 256, 16 heads, feed-forward 768, vocabulary 2,048, embeddings not tied (6.2 M
parameters); 8 sequences of 256 tokens a step, float32, AdamW, gradients clipped at 1.0, one thread.

* ours: `stages.pretrain.worker` as a run launches it, decoder layers compiled, attention within a row as one, as the
  others have it; with its data from token shards, its records, its monitoring and its guards
* isolated: the same with documents kept apart, which is how it trains if nothing else is said
* bare: a Transformers model, eager, on random tokens, with fused AdamW and no records
* litgpt: its `pretrain`, compiled, on text files
* on two processes, sharded by FSDP2 over gloo: ours, and torchtitan, eager, on a folder of texts

A round runs all of them by turns, and a ratio is of two of one round. What counts is the CPU time of the training
processes, all their threads, from the end of one step to the end of another 20 steps on; start-up and compilation come
before. Ratios are the other's time ÷ ours: above 1 ours is cheaper.

monitoring_share: the time that the monitor says it takes, as a share of the steps, median over rounds. One of the 20
steps is a sampled one.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from stages.store import Store
from tests.benchmarks.harness import Cost, Paired, measure, report
from tests.benchmarks.peers.environments import python_of
from tests.benchmarks.peers.training import ours, steps
from tests.benchmarks.peers.training.environments import LITGPT, TORCHTITAN
from tests.benchmarks.peers.training.text import write_text

RECIPE = Path("deployments/recipes/tiny.toml")
PACKAGES = ("torch", "transformers", "accelerate")
NUM_SOURCES = 40
TIMEOUT_SECONDS = 900
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
    "GLOO_SOCKET_IFNAME": "lo",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
ACROSS, APART = {"cross_document_attention": True}, {}
LAUNCH = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m")


def tokens_artifact(root: Path) -> Path:
    """The text of this Python environment as token shards with a vocabulary of the benchmark's size."""
    settings = {
        "curate.sources": '[{kind = "python-environment", domains = ["reference", "code"], max_bytes = 3_000_000}]',
        "tokenizer.size": steps.VOCABULARY,
        "tokenizer.sample_bytes": 2_000_000,
    }
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    measure([sys.executable, "-m", "stages.pretokenize", str(RECIPE), "--upstream", "--root", str(root), *words])
    (artifact,) = Store(root).all("pretokenize")
    return artifact.path


class Sides:
    """The trainings, each of which runs once when it is called and returns what a step took: CPU time of all processes,
    time on the clock of the slowest."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._count = folder, 0
        self._tokens = tokens_artifact(folder / "artifacts")
        self._text = folder / "text"
        write_text(self._text, vocabulary_size=steps.VOCABULARY, num_sources=NUM_SOURCES)
        self.monitoring_shares: list[float] = []

    def all(self) -> dict[str, Callable[[], Cost]]:
        return {
            "ours": lambda: self._ours(ACROSS, share=True),
            "isolated": lambda: self._ours(APART),
            "bare": lambda: self._peer([sys.executable, "-m"], "bare"),
            "litgpt": lambda: self._peer([str(python_of(LITGPT)), "-m"], "litgpt", self._text),
            "ours, 2 processes": lambda: self._ours({**ACROSS, "num_processes": 2, "micro_batch_sequences": 4}),
            "torchtitan, 2 processes": lambda: self._peer(
                [str(python_of(TORCHTITAN)), *LAUNCH], "torchtitan", self._text
            ),
        }

    def _ours(self, settings: dict[str, Any], *, share: bool = False) -> Cost:
        folder = self._fresh()
        timing = ours.train(self._tokens, folder, settings)
        cost = _cost(folder)
        if share:
            spent = sum(line["monitor_seconds"] for line in timing[steps.SKIPPED :])
            self.monitoring_shares.append(spent / (cost.cpu_seconds * (steps.STEPS - steps.SKIPPED)))
        return cost

    def _peer(self, launch: Sequence[str], name: str, *arguments: Path) -> Cost:
        folder = self._fresh()
        command = [*launch, f"tests.benchmarks.peers.training.{name}", *map(str, arguments), str(folder)]
        result = subprocess.run(
            command, capture_output=True, text=True, env={**os.environ, **ENVIRONMENT}, timeout=TIMEOUT_SECONDS
        )
        if result.returncode:
            raise RuntimeError(f"{name} ended with {result.returncode}:\n{(result.stdout + result.stderr)[-4000:]}")
        return _cost(folder)

    def _fresh(self) -> Path:
        self._count += 1
        folder = self._folder / f"run-{self._count}"
        folder.mkdir()
        return folder


def _cost(folder: Path) -> Cost:
    found = [json.loads(path.read_text()) for path in folder.glob("steps-*.json")]
    return Cost(max(rank["wall_seconds"] for rank in found), sum(rank["cpu_seconds"] for rank in found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--only", nargs="*", help="sides to run, without a report")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        sides = Sides(Path(temporary))
        runs = sides.all()
        chosen = {name: runs[name] for name in arguments.only or runs}
        costs: dict[str, list[Cost]] = {name: [] for name in chosen}
        for _ in range(arguments.pairs):
            for name, run in chosen.items():
                costs[name].append(run())
                print(f"{name}: {1e3 * costs[name][-1].cpu_seconds:.0f} CPU-ms a step", flush=True)
    if arguments.only:
        return
    tokens = steps.ROWS * steps.TOKENS
    rows = []
    for name, found in costs.items():
        cpu, wall = (statistics.median(getattr(cost, f"{kind}_seconds") for cost in found) for kind in ("cpu", "wall"))
        rows.append([name, 1e3 * cpu, tokens / cpu, 1e3 * wall])
    ratio = {
        name: Paired(tuple(costs[mine]), tuple(costs[other])).ratio("cpu_seconds")
        for name, mine, other in (
            ("ratio_litgpt", "ours", "litgpt"),
            ("ratio_bare_eager", "ours", "bare"),
            ("ratio_bare_eager_isolated", "isolated", "bare"),
            ("ratio_torchtitan_2_processes", "ours, 2 processes", "torchtitan, 2 processes"),
        )
    }
    figures = {
        **ratio,
        "monitoring_share": statistics.median(sides.monitoring_shares),
        "tokens_per_cpu_second": rows[0][2],
        "tokens_per_cpu_second_isolated": rows[1][2],
        "litgpt": LITGPT.version,
        "torchtitan": TORCHTITAN.version,
    }
    headers = ("training", "CPU-ms a step", "tokens per CPU-second", "ms a step on the clock")
    report("train", headers, rows, figures, PACKAGES)


if __name__ == "__main__":
    main()
