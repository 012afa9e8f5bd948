"""What a finished training leaves: its records in the artifact, its facts, and what was measured."""

import json
import shutil
import statistics
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages.base import Facts
from stages.files import fsync_file
from stages.journal import Journal
from stages.pretrain.batches.exclusions import read_exclusions
from stages.pretrain.checkpoints.keeper import Keeper
from stages.pretrain.job import METRICS, TIMING, Job, RunDirectory, read_lines
from stages.pretrain.monitor.summary import summary
from stages.pretrain.supervision.account import Account

if TYPE_CHECKING:
    from stages.pretrain.batches.sequences import Sequences

MOST_WAITING = 0.05  # of the time of the steps, for data, before the journal warns


def collect(job: Job, keeper: Keeper, sequences: "Sequences", account: Account, out: Path, journal: Journal) -> Facts:
    """Put the records of the finished run into the artifact and say what it amounts to."""
    run = job.run
    artifacts = keeper.require_all()
    account.closed()
    for source, name in ((run.metrics, METRICS), (run.timing, TIMING)):
        shutil.copyfile(source, out / name)
        fsync_file(out / name)
    metrics, timing = read_lines(run.metrics), read_lines(run.timing)
    losses = [line["loss"] for line in metrics if line["loss"] is not None]
    result = json.loads(run.result.read_text(encoding="utf-8"))
    facts = {
        "num_steps": len(metrics),
        "tokens": metrics[-1]["tokens"],
        "first_loss": losses[0],
        "final_loss": losses[-1],
        "heldout_loss": artifacts[-1].facts["heldout_loss"],
        "parameters": result.pop("parameters"),
        "packing": {
            "kind": job.config.packing,
            "cross_document_attention": job.config.cross_document_attention,
            "domains": sequences.packing_facts(),
        },
        "mixture": sequences.mixture_facts(len(metrics)),
        "excluded": [exclusion.model_dump() for exclusion in read_exclusions(run.excluded)],
        "checkpoints": [{"step": a.facts["step"], "key": a.key, "digest": a.digest} for a in artifacts],
    }
    measured = {**measurements(metrics, timing, run, result), "survival": account.report()}
    warn_of_waiting(journal, measured["data_wait_ratio"])
    return Facts(facts=facts, measurements=measured, measured_files=(TIMING,))


def warn_of_waiting(journal: Journal, data_wait_ratio: float) -> None:
    """Say so if the training was starved of data."""
    if data_wait_ratio > MOST_WAITING:
        journal.warning(
            f"{data_wait_ratio:.1%} of the time of the steps was spent waiting for data: raise pretrain.reader_threads "
            "or pretrain.prefetch_batches, or bring the shards nearer"
        )


def measurements(
    metrics: list[dict[str, Any]], timing: list[dict[str, Any]], run: RunDirectory, result: dict[str, Any]
) -> dict[str, Any]:
    """Speed and memory. Seconds are wall seconds inside steps, those of the attempt whose result was kept; checkpoints,
    held-out losses and starts are not in them. `metrics`, `timing`: a line for each step. `result`: the peak of all
    attempts, and the layout and device of the last one. tokens_per_second: that were predicted, padding left out, in
    the median step. data_wait_ratio: share of the time of the steps in which the process that waited longest for its
    data did so. The rest: see `summary`."""
    seconds = [line["seconds"] for line in timing]
    totals = [0, *(line["tokens"] for line in metrics)]
    speeds = [(after - before) / step for (before, after), step in zip(pairwise(totals), seconds, strict=True)]
    waited = sum(line["data_wait_seconds"] for line in timing)
    return {
        **result,
        "step_seconds": sum(seconds),
        "median_step_seconds": statistics.median(seconds),
        "tokens_per_second": statistics.median(speeds),
        "data_wait_seconds": waited,
        "data_wait_ratio": waited / sum(seconds),
        "incidents": len(read_lines(run.incidents)),
        **summary(timing),
    }
