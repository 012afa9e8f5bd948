"""What the page shows, as plain values: read from the manifests of a run, and from nothing else but its step
records.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stages.base import Inputs
from stages.journal import read_events
from stages.pretrain.config import PretrainConfig
from stages.pretrain.job import METRICS, TIMING
from stages.store import Artifact


@dataclass(frozen=True, kw_only=True)
class Steps:
    """Columns of the step records. A step without a target has no loss and is left out; one whose gradient fp16 could
    not hold has no norm."""

    steps: tuple[int, ...]
    losses: tuple[float, ...]
    rates: tuple[float, ...]
    norms: tuple[float | None, ...]
    timed_steps: tuple[int, ...]
    tokens_per_second: tuple[float, ...]


def read_steps(pretrain: Artifact) -> Steps:
    """The curves of a training. Tokens of a step are the difference of the running totals, which a step's time
    divides.
    """
    metrics, timing = (list(read_events(pretrain.path / name)) for name in (METRICS, TIMING))
    kept = [line for line in metrics if line["loss"] is not None]
    seconds = {line["step"]: line["seconds"] for line in timing}
    before, speeds = 0, {}
    for line in metrics:
        if seconds.get(line["step"]):
            speeds[line["step"]] = (line["tokens"] - before) / seconds[line["step"]]
        before = line["tokens"]
    return Steps(
        steps=tuple(line["step"] for line in kept),
        losses=tuple(line["loss"] for line in kept),
        rates=tuple(line["learning_rate"] for line in kept),
        norms=tuple(line["gradient_norm"] for line in kept),
        timed_steps=tuple(speeds),
        tokens_per_second=tuple(speeds.values()),
    )


def heldout_losses(inputs: Inputs) -> list[tuple[int, float]]:
    """(step, held-out loss in nats per token) of the run's checkpoints that are still there."""
    found = []
    for entry in inputs["pretrain"].facts["checkpoints"]:
        checkpoint = inputs.store.find("checkpoint", entry["key"])
        loss = checkpoint.facts.get("heldout_loss") if checkpoint else None
        if loss is not None:
            found.append((entry["step"], loss))
    return found


def packing_rows(pretrain: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What became of each domain's tokens; sequences of all lengths together."""
    return [
        {"domain": domain, **found, "sequences": sum(found["sequences"].values())}
        for domain, found in sorted(pretrain["packing"]["domains"].items())
    ]


def chosen_settings(pretrain: Artifact) -> dict[str, str]:
    """Settings of the training and its model that are not the defaults, as JSON, by name; those of the model first."""
    chosen, defaults = pretrain.manifest.config, PretrainConfig().model_dump(mode="json")
    found = {"model": (chosen.get("model", {}), defaults.pop("model")), "pretrain": (chosen, defaults)}
    return {
        f"{table}.{name}": json.dumps(values[name], ensure_ascii=False)
        for table, (values, usual) in found.items()
        for name, default in usual.items()
        if name in values and values[name] != default
    }


def plan_rows(plan: Mapping[str, Any], pretrain: Artifact) -> list[dict[str, Any]]:
    """What was planned beside what came out; `unit` tells how to print it. A figure that was not measured is absent."""
    facts, measured = pretrain.facts, pretrain.manifest.measurements
    rows = [
        {
            "name": "parameters",
            "unit": "count",
            "planned": plan["parameters"]["total"],
            "measured": facts["parameters"],
        },
        {"name": "steps", "unit": "count", "planned": plan["steps"], "measured": facts["num_steps"]},
        {"name": "tokens", "unit": "count", "planned": plan["tokens"], "measured": facts["tokens"]},
        {
            "name": "peak memory of the training, all processes",
            "unit": "bytes",
            "planned": plan["memory"]["total"] * plan["memory"]["num_processes"],
            "measured": measured.get("peak_memory_bytes"),
        },
    ]
    for row in rows:
        row["error"] = row["planned"] / row["measured"] - 1 if row["measured"] else None
    return rows


def score_rows(evaluation: Artifact | None) -> list[dict[str, Any]]:
    """The last model's bits per byte by domain beside the compressors'."""
    if evaluation is None:
        return []
    baselines = evaluation.facts["baselines"]
    return [
        {
            "domain": domain,
            **score,
            "baselines": baselines.get(domain, {}),
            "below_gzip": score["value"] < baselines.get(domain, {}).get("gzip-9", 0),
        }
        for domain, score in sorted(evaluation.facts["bits_per_byte"].items())
    ]


def by_tokens(evaluations: Sequence[Artifact]) -> list[Artifact]:
    """Evaluations of checkpoints in the order in which these were trained; those of exported models are left out."""
    own = [artifact for artifact in evaluations if artifact.facts["model"]["stage"] == "checkpoint"]
    return sorted(own, key=lambda artifact: artifact.facts["model"]["tokens_seen"])


def score_series(evaluations: Sequence[Artifact]) -> dict[str, list[dict[str, float]]]:
    """{domain: [{x, value, low, high}]} of bits per byte over tokens seen."""
    series: dict[str, list[dict[str, float]]] = {}
    for artifact in evaluations:
        for domain, score in sorted(artifact.facts["bits_per_byte"].items()):
            point = {
                "x": artifact.facts["model"]["tokens_seen"],
                **{name: score[name] for name in ("value", "low", "high")},
            }
            series.setdefault(domain, []).append(point)
    return series


def task_series(evaluations: Sequence[Artifact]) -> dict[str, list[dict[str, float]]]:
    """{task: [{x, value, low, high}]} with 95 % intervals, of no length where there are too few items. Only scores of
    the task's latest version are comparable, and shown.
    """
    from eval.charts.reading import interval

    latest = {task: score["version"] for artifact in evaluations for task, score in artifact.facts["tasks"].items()}
    series: dict[str, list[dict[str, float]]] = {}
    for artifact in evaluations:
        for task, score in sorted(artifact.facts["tasks"].items()):
            if score["version"] == latest[task]:
                low, high = interval(score)
                point = {"x": artifact.facts["model"]["tokens_seen"], "value": score["value"], "low": low, "high": high}
                series.setdefault(task, []).append(point)
    return series


def form_rows(export: Artifact) -> list[dict[str, Any]]:
    """Every exported form with its size, quality and speed, the largest first."""
    speeds = export.manifest.measurements.get("forms", {})
    rows = [{"form": form, **facts, **speeds.get(form, {})} for form, facts in export.facts["forms"].items()]
    return sorted(rows, key=lambda row: (-row["bytes"], row["form"]))


def lineage_rows(inputs: Inputs) -> list[dict[str, Any]]:
    """Every artifact that went into the page, in the order of the chain, and the checkpoints between."""
    artifacts = [
        artifact
        for name in ("corpus", "tokenizer", "tokens", "plan", "preflight", "pretrain")
        for artifact in inputs.many(name)
    ]
    for entry in inputs["pretrain"].facts["checkpoints"]:
        checkpoint = inputs.store.find("checkpoint", entry["key"])
        artifacts += [checkpoint] if checkpoint else []
    artifacts += [*inputs.many("evaluations"), *inputs.many("comparisons"), *inputs.many("export")]
    return [
        {
            "stage": artifact.stage,
            "key": artifact.key,
            "digest": artifact.digest,
            "seconds": artifact.manifest.provenance.get("seconds", 0.0),
            "cpu_seconds": artifact.manifest.provenance.get("cpu_seconds"),
            "bytes": sum(entry.bytes for entry in artifact.manifest.files),
            "inputs": [entry.key for entries in artifact.manifest.inputs.values() for entry in entries],
        }
        for artifact in artifacts
    ]
