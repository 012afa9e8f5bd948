"""`make bench-train-options`: what each way to need less memory costs, and what overlapping communication is worth.

One model for all: 6 layers, hidden 256, 16 heads, feed-forward 768 (5.1 M parameters); 8 sequences of 256 tokens a
step, float32, one thread a process, not compiled. The processes share the cores of one machine and talk by loopback, so
that times of several processes say how options compare there and not what a cluster would show.

* recompute: bytes of the tensors that are held between forward and backward pass (weights and optimizer states aside),
  counted operation by operation, as a share of what is held without recomputation; the peak of the two passes, counted
  in the same way; CPU time of a whole step, by turns in one process, as a ratio of the same round
* sharding: bytes of optimizer states on the process that holds most, as a share of those of one process
* overlap: of a step of two processes, the share in which a collective runs and the main process computes nothing, as
  the monitor sees it; median of the steps, for whole gradients in buckets (DDP) and for sharded parameters (FSDP2)

What others have published stands beside the figures: Korthikanti et al., 2022, "Reducing Activation Recomputation in
Large Transformer Models", section 5 and 6 (recomputing all: 30 to 40 % of the time of a step, for the memory of one
layer and of the inputs of the others); Chen et al., 2016, "Training Deep Nets with Sublinear Memory Cost", section 5
(30 %); Rajbhandari et al., 2020, "ZeRO", figure 1 (optimizer states: 1/N).
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path
from typing import Any

from stages.pretrain.parallel.ranks import RENDEZVOUS
from stages.pretrain.supervision.attempt import environment
from tests.benchmarks.harness import MINIMUM_PAIRS, report
from tests.benchmarks.train_options_rank import config_of
from tests.stages.pretrain import micro

PACKAGES = ("torch", "transformers", "accelerate")
NUM_TOKENS = 120_000
TIMEOUT_SECONDS = 900
RECOMPUTE: dict[str, dict[str, Any]] = {
    "none": {},
    "full": {"recompute": "full"},
    "operators: attention": {"recompute": "operators", "recompute_keep": ("attention",)},
    "operators: matmul": {"recompute": "operators", "recompute_keep": ("matmul",)},
    "operators: both": {"recompute": "operators"},
    "budget: a half": {"recompute": "budget"},
}
MEBIBYTE = 1 << 20
OVERLAP: dict[str, dict[str, Any]] = {
    "DDP, in turn": {"sharding": "none", "overlap": False},
    **{
        f"DDP, buckets of {size / MEBIBYTE:g} MiB": {"sharding": "none", "bucket_bytes": size}
        for size in (MEBIBYTE // 4, MEBIBYTE, 4 * MEBIBYTE, 25 * MEBIBYTE)
    },
    "FSDP2, in turn": {"overlap": False},
    "FSDP2": {},
    "FSDP2, 2 units ahead": {"prefetch_layers": 2},
    "FSDP2, 3 layers a unit": {"layers_per_unit": 3},
}
SHARDING: dict[str, dict[str, Any]] = {name: {"sharding": name} for name in ("none", "optimizer", "gradients", "full")}
HYBRID: dict[str, dict[str, Any]] = {"hybrid": {"sharding": "hybrid", "shard_processes": 2}}


def measured(
    folder: Path, kind: str, options: dict[str, dict[str, Any]], *, rounds: int, processes: int = 1
) -> dict[str, dict[str, Any]]:
    """What processes of `train_options_rank` have found."""
    if not (folder / "tokens").exists():
        micro.write_tokens(folder / "tokens", num_tokens=NUM_TOKENS)
    target = folder / "result.json"
    options = {name: {"num_processes": processes, **settings} for name, settings in options.items()}
    launch = [sys.executable, "-m"]
    if processes > 1:
        launch += ["torch.distributed.run", "--standalone", "--nproc-per-node", str(processes), "-m"]
    command = [*launch, "tests.benchmarks.train_options_rank", str(folder / "tokens"), str(folder), str(target)]
    done = subprocess.run(
        [*command, kind, json.dumps(options), str(rounds)],
        capture_output=True,
        text=True,
        env=environment(config_of(num_processes=processes))
        | {RENDEZVOUS: str(folder / f"rendezvous-{uuid.uuid4().hex}")},
        timeout=TIMEOUT_SECONDS,
    )
    if done.returncode:
        raise RuntimeError(f"{kind} on {processes} processes:\n{(done.stdout + done.stderr)[-4000:]}")
    found: dict[str, dict[str, Any]] = json.loads(target.read_text())
    return found


def recompute_rows(found: dict[str, dict[str, Any]]) -> tuple[list[list[Any]], dict[str, Any]]:
    rows, figures = [], {}
    plain = found["none"]
    published = {
        "full": "30 to 40 % more time; memory of the layers' inputs and of one layer",
        "operators: both": "30 to 50 % of the activations for about 30 % of the time",
    }
    for name, of in found.items():
        ratios = [mine / none for mine, none in zip(of["cpu_seconds"], plain["cpu_seconds"], strict=True)]
        share = of["kept_bytes"] / plain["kept_bytes"]
        time_ratio = {"median": statistics.median(ratios), "low": min(ratios), "high": max(ratios)}
        key = "recompute_" + name.replace(": ", "_").replace(" ", "_")
        figures |= {f"{key}_kept_share": share, f"{key}_time": time_ratio} if name != "none" else {}
        rows.append(
            [
                f"recompute {name}",
                f"{of['kept_bytes'] / 1e6:.1f} MB kept ({share:.2f}), peak {of['peak_bytes'] / 1e6:.1f} MB",
                f"{time_ratio['median']:.2f} of the time",
                published.get(name, ""),
            ]
        )
    return rows, figures


def sharding_rows(
    found: dict[str, dict[str, Any]], processes: int, whole_bytes: int
) -> tuple[list[list[Any]], dict[str, Any]]:
    rows, figures = [], {}
    for name, of in found.items():
        share = of["optimizer_bytes"] / whole_bytes
        shards = {"none": 1, "hybrid": 2}.get(name, processes)
        figures[f"optimizer_share_{name}_{processes}_processes"] = share
        rows.append(
            [
                f"sharding {name}, {processes} processes",
                f"{of['optimizer_bytes'] / 1e6:.1f} MB of optimizer ({share:.3f})",
                f"{of['sent_bytes'] / 1e6:.1f} MB sent a step",
                f"1/{shards} of the optimizer",
            ]
        )
    return rows, figures


def overlap_rows(found: dict[str, dict[str, Any]]) -> tuple[list[list[Any]], dict[str, Any]]:
    rows, figures = [], {}
    for name, of in found.items():
        exposed = of["exposed_seconds"] / of["step_seconds"]
        figures["exposed_share_" + name.replace(", ", "_").replace(" ", "_")] = exposed
        seconds = f"collectives {1e3 * of['collective_seconds']:.0f} ms, exposed {1e3 * of['exposed_seconds']:.0f} ms"
        rows.append([f"{name}, 2 processes", seconds, f"{exposed:.3f} of the step exposed", ""])
    return rows, figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=MINIMUM_PAIRS)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        rows, figures = recompute_rows(measured(folder, "recompute", RECOMPUTE, rounds=rounds))
        two = measured(folder, "layouts", {**SHARDING, **OVERLAP}, rounds=rounds, processes=2)
        four = measured(folder, "layouts", {**SHARDING, **HYBRID}, rounds=1, processes=4)
    whole_bytes = two["none"]["optimizer_bytes"]
    for more, named in (
        sharding_rows({name: two[name] for name in SHARDING}, 2, whole_bytes),
        sharding_rows(four, 4, whole_bytes),
        overlap_rows({name: two[name] for name in OVERLAP}),
    ):
        rows, figures = rows + more, figures | named
    report("train-options", ("option", "memory, or time in collectives", "cost", "published"), rows, figures, PACKAGES)


if __name__ == "__main__":
    main()
