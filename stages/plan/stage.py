"""The stage: one page of figures, as plan.json and as facts."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from stages.base import Facts, Inputs
from stages.files import write_json
from stages.journal import Journal
from stages.plan.activations import FLOAT_BYTES
from stages.plan.config import PlanConfig
from stages.plan.memory import memory
from stages.plan.schedule import disk, reading
from stages.plan.states import all_state_bytes
from stages.pretrain.checkpoints.cadence import advice
from stages.pretrain.config import ModelConfig, PretrainConfig
from stages.pretrain.model.counts import flops, parameters

PLAN_FILE = "plan.json"


def run(config: PlanConfig, inputs: Inputs, out: Path, journal: Journal) -> Facts:
    """Compute, warn, write."""
    found = inputs["tokens"].facts
    facts = make_plan(
        config.model.resolved(),
        config.pretrain,
        vocabulary_size=found["vocabulary_size"],
        padded_vocabulary_size=found["padded_vocabulary_size"],
        domains=found["domains"],
        most_epochs=config.most_epochs,
        step_seconds=config.step_seconds,
    )
    for warning in facts["warnings"]:
        journal.warning(warning)
    write_json(out / PLAN_FILE, facts)
    return Facts(facts=facts)


def make_plan(
    model: ModelConfig,
    pretrain: PretrainConfig,
    *,
    vocabulary_size: int,
    padded_vocabulary_size: int,
    domains: Mapping[str, Mapping[str, Any]],
    most_epochs: float,
    step_seconds: float | None = None,
) -> dict[str, Any]:
    """All figures. Bytes, tokens and FLOPs are whole numbers. domains: as the facts of pretokenize say. Raises
    InputError for a mixture that cannot be served, and for sequences that are too long for the model. step_seconds: of
    a step, where they have been measured.

    FLOPs are those of the longest sequences, and `tokens` counts padding too.
    """
    pretrain.require_context(model)
    count = parameters(model, padded_vocabulary_size)
    cost = flops(model, padded_vocabulary_size, pretrain.sequence_tokens)
    need = memory(model, pretrain, padded_vocabulary_size)
    read = reading(pretrain, domains, most_epochs)
    states = all_state_bytes(model, pretrain, padded_vocabulary_size)
    store = disk(pretrain, FLOAT_BYTES * count.total + states)
    tokens = pretrain.total_places
    cadence = advice(pretrain, num_steps=pretrain.num_steps, step_seconds=step_seconds) if step_seconds else None
    return {
        "vocabulary_size": vocabulary_size,
        "padded_vocabulary_size": padded_vocabulary_size,
        "parameters": {**asdict(count), "total": count.total, "non_embedding": count.non_embedding},
        "flops": {**asdict(cost), "per_token": cost.per_token, "total": cost.per_token * tokens},
        "memory": {**asdict(need), "total": need.total, "num_processes": pretrain.num_processes},
        "steps": pretrain.num_steps,
        "batch_tokens": pretrain.batch_places(1),
        "tokens": tokens,
        "tokens_per_parameter": round(tokens / count.total, 6),
        "domains": {domain: asdict(figures) for domain, figures in read.domains.items()},
        "packing": {"kind": pretrain.packing, "sequences": "exact" if read.exact else "at least"},
        "checkpoints": asdict(store),
        "cadence": asdict(cadence) if cadence else None,
        "warnings": [*read.warnings, *([cadence.warning] if cadence and cadence.warning else [])],
    }
