"""`make bench-checkpoint`: how long a checkpoint holds the training up, and what it costs the steps beside it.

8 layers, hidden 512, feed-forward 1,536, vocabulary 8,000, embeddings not tied: 35 M parameters, 420 MB of weights and
moments; two processes of one thread, sharded by FSDP2 over gloo, float32. A round has four steps undisturbed, a
dcp.save of the state with its files brought to the disk, for which the training stands still, and a save of ours while
the steps go on, until its last file is on the disk. Of each, the slower process counts.

* checkpoint_blocked_share: what our save has held the training up (handing the state over, and waiting for its copy
  before weights change) ÷ the time of dcp.save, of one round
* step_slowdown_during_save: the mean step beside a save ÷ the median one undisturbed, of one round
* extra_seconds_per_save: what the steps beside one save took longer, all together

Ours also hashes each file, so it does more than what it is compared with. Both processes share two cores here: what is
written beside the training takes time from it.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from stages.pretrain.parallel.ranks import RENDEZVOUS
from stages.pretrain.supervision.attempt import environment
from tests.benchmarks.harness import MINIMUM_PAIRS, report
from tests.stages.pretrain import micro

PACKAGES = ("torch", "transformers", "accelerate")
RANKS, VOCABULARY, TOKENS = 2, 8000, 128
TIMEOUT_SECONDS = 1800
HEADERS = ("save", "seconds that the training stands still", "seconds until it is there", "seconds of slower steps")
MODEL = {
    "hidden_size": 512,
    "num_layers": 8,
    "num_heads": 8,
    "num_kv_heads": 8,
    "intermediate_size": 1536,
    "context_tokens": TOKENS,
    "tie_embeddings": False,
}


def measured(folder: Path, rounds: int) -> list[dict[str, Any]]:
    """What each process has seen."""
    config = micro.config(
        model=MODEL, num_processes=RANKS, sequence_tokens=TOKENS, batch_sequences=4, num_steps=100_000,
        checkpoint_every_steps=100_000, checkpoint_seconds=1e6, monitor_every_steps=100_000, micro_batch_sequences=4,
        learning_rate=1e-4, cross_document_attention=True,
    )  # fmt: skip
    header = micro.HEADER.__class__(
        vocabulary_size=VOCABULARY, padded_vocabulary_size=VOCABULARY, end_id=micro.EOS, vocabulary_digest="checkpoint"
    )
    micro.write_tokens(folder / "tokens", header=header, num_tokens=100_000)
    job = micro.worker_job(config, folder / "tokens", folder / "run").model_copy(
        update={"vocabulary_size": VOCABULARY, "padded_vocabulary_size": VOCABULARY}
    )
    job.write()
    processes = []
    for rank in range(RANKS):
        place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": RANKS, "LOCAL_WORLD_SIZE": RANKS}
        variables = {
            **environment(config),
            **{name: str(value) for name, value in place.items()},
            RENDEZVOUS: str(folder / "rendezvous"),
        }
        module = ("-m", "tests.benchmarks.checkpoint_rank")
        arguments = (str(job.run.job), str(folder / f"{rank}.json"), str(rounds))
        processes.append(subprocess.Popen([sys.executable, *module, *arguments], env={**os.environ, **variables}))
    for process in processes:
        if process.wait(TIMEOUT_SECONDS):
            raise RuntimeError(f"a process of the benchmark ended with {process.returncode}")
    return [json.loads((folder / f"{rank}.json").read_text(encoding="utf-8")) for rank in range(RANKS)]


def spread(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "low": min(values), "high": max(values)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--keep-nothing", action="store_true", help="print the figures and leave no result behind")
    arguments = parser.parse_args()
    assert arguments.rounds >= MINIMUM_PAIRS or arguments.keep_nothing, f"at least {MINIMUM_PAIRS} rounds"
    with tempfile.TemporaryDirectory() as temporary:
        found = measured(Path(temporary), arguments.rounds)
    report("checkpoint", HEADERS, *rows_and_figures(found), PACKAGES, keep=not arguments.keep_nothing)


def rows_and_figures(found: list[dict[str, Any]]) -> tuple[list[list[Any]], dict[str, Any]]:
    """Of what each process has seen: the slower one counts, of each save and of each step."""
    rounds = list(zip(*(rank["rounds"] for rank in found), strict=True))
    blocked, synchronous, undisturbed = (
        [max(rank[name] for rank in ranks) for ranks in rounds] for name in ("blocked", "synchronous", "undisturbed")
    )
    beside = [[max(step) for step in zip(*(rank["beside"] for rank in ranks), strict=True)] for ranks in rounds]
    slower = [statistics.mean(steps) / step for steps, step in zip(beside, undisturbed, strict=True)]
    extra = [sum(steps) - len(steps) * step for steps, step in zip(beside, undisturbed, strict=True)]
    there = [save["seconds"] for save in found[0]["saves"]]
    rows = [
        ["dcp.save", statistics.median(synchronous), statistics.median(synchronous), 0.0],
        ["ours", *(statistics.median(values) for values in (blocked, there, extra))],
    ]
    figures = {
        "checkpoint_blocked_share": spread([ours / dcp for ours, dcp in zip(blocked, synchronous, strict=True)]),
        "step_slowdown_during_save": spread(slower),
        "extra_seconds_per_save": spread(extra),
        "blocked_seconds": spread(blocked),
        "synchronous_seconds": spread(synchronous),
        "staged_seconds": spread([save["staged_seconds"] for save in found[0]["saves"]]),
        "seconds_until_renamed": spread(there),
        "undisturbed_step_seconds": spread(undisturbed),
        "state_bytes": sum(rank["bytes"] for rank in found),
    }
    return rows, figures


if __name__ == "__main__":
    main()
