"""The stage: gather, draw, fill the template."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stages.base import Facts, Inputs
from stages.journal import Journal
from stages.preflight.checks import FILE as CHECKS_FILE
from stages.report import curation, evaluation, evaluation_charts, survival, training, view
from stages.report.config import ReportConfig
from stages.report.rendering import TEMPLATES, environment
from stages.store import Artifact

PAGE = "report.html"


def run(config: ReportConfig, inputs: Inputs, out: Path, journal: Journal) -> Facts:
    """Write report.html. It refers to nothing outside itself."""
    evaluations = view.by_tokens(inputs.many("evaluations"))
    last = evaluations[-1] if evaluations else None
    judged = evaluation.shown(inputs.store, evaluations, inputs.many("comparisons"))
    journal.progress("charts", 0, 1, "pages")
    page = render(
        title=config.title or inputs.label,
        inputs=inputs,
        last=last,
        judged=judged,
        charts=draw(inputs, evaluations, judged),
    )
    (out / PAGE).write_text(page, encoding="utf-8")
    journal.progress("charts", 1, 1, "pages")
    bits = {row["domain"]: row["value"] for row in view.score_rows(last)}
    return Facts(
        facts={
            "final_loss": inputs["pretrain"].facts["final_loss"],
            "bits_per_byte": bits,
            "num_evaluations": len(evaluations),
        },
        measurements={"page_bytes": len(page.encode())},
        measured_files=(PAGE,),
    )


def draw(inputs: Inputs, evaluations: list[Artifact], judged: Mapping[str, Any]) -> dict[str, str]:
    """The charts of the page as inline SVG, by name; those for which there is nothing to show are left out."""
    from eval.charts.corpus import funnel
    from eval.charts.exports import export_forms
    from eval.charts.frame import as_svg
    from eval.charts.training import curves, learning_rate, loss_curve, throughput, time_spent

    steps = view.read_steps(inputs["pretrain"])
    figures: dict[str, tuple[Any, str]] = {}
    if steps.steps:
        figures["loss"] = (
            loss_curve(steps.steps, steps.losses, view.heldout_losses(inputs)),
            "Training and held-out loss by step",
        )
        figures["rate"] = (
            learning_rate(steps.steps, steps.rates, steps.norms),
            "Learning rate and gradient norm by step",
        )
    if steps.timed_steps:
        figures["throughput"] = (
            throughput(steps.timed_steps, steps.tokens_per_second),
            "Tokens per second by step",
        )
    for name, panels, label in (
        ("norms", training.norm_panels(inputs["pretrain"]), "Norms by group of parameters and step"),
        ("machine", training.machine_panels(inputs["pretrain"]), "Use of the machine by step"),
    ):
        if panels:
            figures[name] = curves(panels, log=name == "norms"), label
    account = survival.account(inputs["pretrain"])
    if account:
        figures["survival"] = (
            time_spent(account["productive_seconds"], account["lost_seconds"]),
            "Where the time of the training went",
        )
    corpus = inputs["corpus"].facts
    for kind, left in curation.funnels(corpus, inputs["tokens"].facts, inputs["tokenizer"].facts).items():
        figures[f"funnel_{kind}"] = (
            funnel(corpus["funnel"]["steps"], left),
            f"Documents, bytes and tokens that each step of curation left, by {kind.removesuffix('s')}",
        )
    if evaluations:
        figures |= evaluation_charts.figures(evaluations, judged["tasks"], judged["artifact"])
    forms = [row for row in view.form_rows(inputs["export"]) if row["increase"] is not None]
    figures["forms"] = (
        export_forms(
            {row["form"]: row["bytes"] for row in forms},
            {row["form"]: row["increase"] for row in forms},
            [row["form"] for row in forms if not row["accepted"]],
        ),
        "Size and loss of quality of the exported forms",
    )
    return {name: as_svg(figure, label) for name, (figure, label) in figures.items()}


def render(
    *, title: str, inputs: Inputs, last: Artifact | None, judged: Mapping[str, Any], charts: dict[str, str]
) -> str:
    """The page. Whatever comes from data is escaped; only the charts are taken as they are."""
    from markupsafe import Markup

    from eval.charts.reading import AXES

    corpus, pretrain, export = inputs["corpus"].facts, inputs["pretrain"], inputs["export"]
    account = survival.account(pretrain)
    return (
        environment(TEMPLATES)
        .get_template("page.html")
        .render(
            title=title,
            charts={name: Markup(svg) for name, svg in charts.items()},
            pretrain=pretrain.facts,
            speed=pretrain.manifest.measurements,
            provenance=pretrain.manifest.provenance,
            scores=view.score_rows(last),
            evaluation=last.facts if last else None,
            judged=judged,
            titles=AXES,
            samples=export.facts["samples"],
            data=curation.data_rows(corpus, inputs["tokens"].facts),
            sources=curation.source_rows(corpus),
            near=corpus["near_duplicates"],
            funnel=corpus["funnel"],
            left={kind: curation.left_rows(corpus, kind) for kind in ("domains", "languages")},
            fold=curation.FOLD_ROWS,
            languages=curation.language_rows(corpus),
            drops=curation.drop_rows(corpus, curation.read_samples(inputs["corpus"])),
            edits=curation.edit_rows(corpus),
            pii=corpus["pii"],
            tasks=curation.task_rows(corpus),
            waived=corpus["decontamination"]["waived"],
            mixture=curation.mixture_rows(inputs["plan"].facts, pretrain.facts),
            tokenizer=inputs["tokenizer"].facts,
            packing=view.packing_rows(pretrain.facts),
            survival=account,
            time_rows=survival.time_rows(account) if account else [],
            settings=view.chosen_settings(pretrain),
            plan=view.plan_rows(inputs["plan"].facts, pretrain),
            warnings=inputs["plan"].facts["warnings"],
            checks=json.loads((inputs["preflight"].path / CHECKS_FILE).read_text(encoding="utf-8")),
            forms=view.form_rows(export),
            lineage=view.lineage_rows(inputs),
        )
    )
