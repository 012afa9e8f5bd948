"""The stage: write each form, load it again, measure it, decide, and show what the model says."""

import math
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from data.errors import InputError
from data.vocabulary.vocabulary import vocabulary_file
from stages.base import Facts, Inputs
from stages.export import gguf_file, tokenizer
from stages.export.config import ExportConfig, Form
from stages.export.gate import Measured, increases, objections
from stages.export.measure import QUANTISATION, Reference, build_reference, continue_with, measure, new_tokens
from stages.files import tree
from stages.journal import Journal
from stages.scored_model import load_scored_model

UNMEASURED: dict[str, Any] = {  # the facts of a form that the model does not fit into
    "bytes": 0,
    "bits_per_byte": {},
    "increase": None,
    "same_greedy_tokens": False,
    "greedy": {"compared": 0, "equal": 0, "excluded": 0},
}


def run(config: ExportConfig, inputs: Inputs, out: Path, journal: Journal) -> Facts:
    """Export the checkpoint. A form that fails the gate is removed from the artifact and listed with its figures; one
    that the model's shape does not fit into is listed with the reason, before any work.

    Raises InputError if no form fits.
    """
    import torch

    torch.set_num_threads(config.threads)
    checkpoint = inputs["model"]
    model = load_scored_model(checkpoint)
    source = vocabulary_file(inputs["tokenizer"].path)
    unfit = {form: tokenizer.unfit(source, gguf=form in QUANTISATION) for form in config.forms}
    for form in set(config.forms) & set(QUANTISATION):
        unfit[form] += gguf_file.unfit(model.config, QUANTISATION[form])
    if all(unfit.values()):
        reasons = "; ".join(f"{form.value}: {', '.join(why)}" for form, why in unfit.items())
        raise InputError(
            f"none of export.forms can hold this model ({reasons}); add another form, or change [model] or [tokenizer]"
        )
    reference = build_reference(config, model, inputs, journal)
    forms: dict[str, dict[str, Any]] = {}
    measurements: dict[str, dict[str, float]] = {}
    for done, form in enumerate(config.forms):
        journal.progress("forms", done, len(config.forms), "forms")
        if unfit[form]:
            forms[form.value] = _refuse(form, UNMEASURED, unfit[form], journal)
            continue
        outcome = measure(config, form, reference, out, journal)
        forms[form.value] = _judge(config, form, reference, outcome.measured, out, journal)
        measurements[form.value] = outcome.measurements
    journal.progress("forms", len(config.forms), len(config.forms), "forms")
    samples = _samples(config, reference)
    (out / "sample.txt").write_text(_sample_text(config, samples), encoding="utf-8")
    facts = {
        "model": {"stage": checkpoint.stage, "key": checkpoint.key},
        "step": checkpoint.facts["step"],
        "tokens_seen": checkpoint.facts["tokens_seen"],
        "bits_per_byte": _finite(reference.bits_per_byte),
        "forms": forms,
        "samples": samples,
    }
    return Facts(facts=facts, measurements={"forms": measurements})


def _judge(
    config: ExportConfig, form: Form, reference: Reference, measured: Measured, out: Path, journal: Journal
) -> dict[str, Any]:
    """The facts of a form; one that is refused loses its files."""
    path = out / form.path
    reasons = objections(reference.bits_per_byte, measured, config.max_bits_per_byte_increase)
    greedy = measured.greedy
    facts = {
        "bytes": sum((path / name).stat().st_size for name in tree(path)) if path.is_dir() else path.stat().st_size,
        "bits_per_byte": _finite(measured.bits_per_byte),
        "increase": _worst(increases(reference.bits_per_byte, measured.bits_per_byte)),
        "same_greedy_tokens": greedy.same,
        "greedy": {"compared": greedy.compared, "equal": greedy.equal, "excluded": greedy.excluded},
    }
    if reasons:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        if path.parent != out and not any(path.parent.iterdir()):
            path.parent.rmdir()
        return _refuse(form, facts, reasons, journal)
    detail = f"{facts['bytes']:,} bytes, bits per byte at most {facts['increase']:+.2%}"
    journal.event("check", name=f"export {form.value}", status="pass", detail=detail)
    return {**facts, "accepted": True, "reasons": []}


def _finite(values: Mapping[str, float]) -> dict[str, float | None]:
    """None for NaN and infinity, which neither facts nor the journal can hold."""
    return {name: value if math.isfinite(value) else None for name, value in values.items()}


def _worst(increases: Mapping[str, float]) -> float | None:
    """The largest increase of all domains; None if one is not finite."""
    return max(increases.values(), default=0.0) if all(map(math.isfinite, increases.values())) else None


def _refuse(form: Form, facts: Mapping[str, Any], reasons: Sequence[str], journal: Journal) -> dict[str, Any]:
    """The facts of a form that is not shipped, for everybody to see."""
    journal.event("check", name=f"export {form.value}", status="fail", detail="; ".join(reasons))
    journal.event("export.refused", form=form.value, reasons=list(reasons), increase=facts["increase"])
    return {**facts, "accepted": False, "reasons": list(reasons)}


def _samples(config: ExportConfig, reference: Reference) -> list[dict[str, str]]:
    from data.vocabulary.vocabulary import Vocabulary

    decode = Vocabulary.load_folder(reference.tokenizer_model.parent).decode
    room = reference.model.config.max_position_embeddings - new_tokens(config.sample_tokens, reference.model)
    found = []
    for number, text in enumerate(config.prompts):
        prompt = [reference.end_id, *reference.encode(text)][:room]
        sampled = continue_with(
            reference.model, prompt, config.sample_tokens, reference.end_id, config.temperature, config.seed + number
        )
        greedy = continue_with(reference.model, prompt, config.sample_tokens, reference.end_id)
        found.append({"prompt": text, "sampled": decode(sampled.tokens), "greedy": decode(greedy.tokens)})
    return found


def _sample_text(config: ExportConfig, samples: Sequence[Mapping[str, str]]) -> str:
    parts = [
        f"Continuations by the checkpoint in float32, up to {config.sample_tokens} tokens each, seed {config.seed}.\n"
    ]
    for sample in samples:
        for kind, title in (("sampled", f"sampled at temperature {config.temperature}"), ("greedy", "greedy")):
            parts.append(f"=== {title}, after {sample['prompt']!r}\n{sample['prompt']}{sample[kind]}\n")
    return "\n".join(parts)
