"""How the models of a whole run were judged, as the report finds it: facts without the work. Texts hold what must not
reach the page as markup."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from stages.store import Artifact
from tests.eval.charts.facts import difference
from tests.eval.charts.facts import task as facts_of_task

NASTY = "<script>alert(1)</script> & $x$ {{ 7 * 7 }}"


def task(value: float, version: int = 1, axis: str = "capability", **more: Any) -> dict[str, Any]:
    few = {"num_items": 9, "num_clusters": 3, "description": "", "version": version}
    return facts_of_task(value, axis, **(few | more))


def judged(number: int) -> dict[str, Any]:
    """Tasks of the checkpoint `number`, of which the second is the last: it is asked of all axes."""
    found = {
        "indent": task(0.5 + number / 4, bigram=0.45, description="One level deeper after a colon"),
        "old": task(0.9, version=1 + number),
        "frozen": task(0.6, suite="regression", axis="regression"),
    }
    if not number:
        return found
    typos = {
        "clean": 0.75,
        "drop": {"value": 0.2, "low": 0.1, "high": 0.3},
        "worst_group": {"group": "a", "value": 0.25},
    }
    return found | {
        "typos": task(0.55, suite="long_tail", axis="long_tail", **typos),
        "toxicity": task(
            0.25, suite="safety", axis="safety", metric="share of toxic texts", higher_is_better=False, chance=None,
            words={NASTY: 2, "flagged": [1, 3]}, standard_error=None, low=None, high=None, num_clusters=1,
        ),
    }  # fmt: skip


MEASURED = {
    "first_token": task(
        1.25, suite="efficiency", axis="efficiency", metric="ratio to the reference", higher_is_better=False,
        chance=None, seconds={"p50": 0.0123, "p99": 0.02}, method="10 rounds",
    )
}  # fmt: skip


def comparison(candidate: Artifact, baseline: Artifact) -> dict[str, Any]:
    """Facts of a comparison with a promoted baseline that found a regression."""
    return {
        "candidate": {"key": candidate.key, **named(candidate)},
        "baseline": {"kind": "baseline", "name": "main", "serial": 3, "key": baseline.key, **named(candidate)},
        "level": 0.01,
        "verdict": "regressed",
        "regressed": ["indent"],
        "improved": [],
        "tasks": {
            "indent": difference(-0.2, "regressed"),
            "bits_per_byte/code": difference(
                -0.01, "no_difference", metric="bits_per_byte", higher_is_better=False, suite="heldout", low=None,
                high=None, minimal_detectable_difference=None,
            ),
        },
        "not_compared": {"old": f"another version {NASTY}"},
        "missing": {"word_order": "the candidate lacks it"},
    }  # fmt: skip


def named(evaluation: Artifact) -> dict[str, Any]:
    model = evaluation.facts["model"]
    return {
        "stage": model["stage"], "model": model["key"], "step": model["step"], "tokens_seen": model["tokens_seen"]
    }  # fmt: skip


def write_flips(folder: Path) -> None:
    """Two items of a task."""
    rows = [
        {"task": "indent", "suite": "core", "item": item, "cluster": "pattern", "group": "", "direction": direction,
         "candidate_score": score, "baseline_score": 1 - score, "weight": 1.0, "gold": 0, "candidate_predicted": 1,
         "baseline_predicted": 0, "candidate_evidence": NASTY, "baseline_evidence": "if a:"}
        for item, direction, score in ((7, "worsened", 0.0), (8, "improved", 1.0))
    ]  # fmt: skip
    pq.write_table(pa.Table.from_pylist(rows), folder / "flips.parquet")


def write_items(number: int) -> Callable[[Path], None]:
    """items.parquet of the checkpoint `number`: of `indent`, item 1 gets worse from the first to the second, 2 better;
    item 3 is asked otherwise."""

    def write(folder: Path) -> None:
        rows = [
            {"suite": "core", "task": "indent", "item": item, "cluster": "c", "group": "",
             "prompt_hash": str(number) if item == 3 else "same", "score": float(scores[number]), "weight": 1.0,
             "gold": 0, "predicted": 0, "log_likelihoods": [-1.0, -2.0], "evidence": f"what {number} said"}
            for item, scores in enumerate([(1, 1), (1, 0), (0, 1), (0, 1)])
        ]  # fmt: skip
        pq.write_table(pa.Table.from_pylist(rows), folder / "items.parquet")

    return write
