"""Pages for the Prefect UI as Markdown, with charts as `data:` URIs: a training's loss, how its scores went, and a
whole pipeline. Pure over a store; drawing a page takes a second or two."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from eval.charts.markdown import plain
from flows.showing.sampling import sampled
from stages.current import judged_keys, of_same_training
from stages.export.config import Form
from stages.files import write_atomic
from stages.fingerprint import digest
from stages.pretrain.job import METRICS
from stages.report import view
from stages.report.rendering import count, figure, seconds, share, size
from stages.store import Artifact, Store

REVISION = 1  # of the page of a pipeline
MOST_TASKS = 12
SAMPLE_CHARACTERS = 1500
Made = Mapping[str, Sequence[Artifact]]


def loss_page(directory: Path, heldout: Sequence[tuple[int, float]]) -> str:
    """The loss so far of a training that goes on in a run directory; empty before its first step. heldout: (step,
    loss)."""
    lines = [line for line in sampled(directory / METRICS) if line.get("loss") is not None]
    if not lines:
        return ""
    from eval.charts.frame import as_data_uri
    from eval.charts.training import loss_curve

    picture = as_data_uri(loss_curve([line["step"] for line in lines], [line["loss"] for line in lines], heldout))
    last = lines[-1]
    said = f"Step {last['step']:,}, {last['tokens']:,} tokens: loss {figure(last['loss'])}"
    if heldout:
        said += f"; held-out {figure(heldout[-1][1])} at step {heldout[-1][0]:,}"
    return f"![Loss by step]({picture})\n\n{said}.\n"


def history_page(store: Store, made: Artifact) -> str:
    """The evaluations of all checkpoints of the training whose checkpoint `made` is an evaluation of, with charts;
    empty for one of another model."""
    evaluations = evaluations_beside(store, made)
    if not evaluations:
        return ""
    pictures = [f"![Scores over the training]({uri})" for uri in _over_training(evaluations)]
    domains = sorted({domain for each in evaluations for domain in each.facts["bits_per_byte"]})
    head = ["step", "tokens seen", *(f"{plain(domain)}, bits per byte" for domain in domains), "evaluation"]
    rows = [
        [
            count(each.facts["model"]["step"]),
            count(each.facts["model"]["tokens_seen"]),
            *(figure(each.facts["bits_per_byte"].get(domain, {}).get("value")) for domain in domains),
            f"`{each.key}`",
        ]
        for each in reversed(evaluations)
    ]
    return "\n\n".join([f"# {plain(made.manifest.label)} over its training", *pictures, _table(head, rows)]) + "\n"


def evaluations_beside(store: Store, made: Artifact) -> list[Artifact]:
    """Of the checkpoints of one training, in the order of their steps: for each the evaluation that was asked for as
    `made` was, if there is one."""
    (judged,) = made.manifest.inputs["model"]
    checkpoint = store.find("checkpoint", judged.key) if judged.stage == "checkpoint" else None
    if checkpoint is None:
        return []
    keys = {each.key for each in of_same_training(store, checkpoint)}
    found: dict[str, Artifact] = {}
    for each in store.all("evaluate"):
        (key,) = judged_keys([each])
        if key in keys and (key not in found or _asked(each) == _asked(made)):
            found[key] = each
    return view.by_tokens([*found.values()])


def _asked(evaluation: Artifact) -> Any:
    return evaluation.manifest.identity


def _over_training(evaluations: Sequence[Artifact]) -> Iterator[str]:
    """Charts of bits per byte, and of the tasks that all checkpoints were asked."""
    from eval.charts.frame import Point, as_data_uri
    from eval.charts.reading import tasks_by_axis
    from eval.charts.scores import bits_per_byte, task_scores

    last = evaluations[-1]
    bits = {name: [Point(**point) for point in points] for name, points in view.score_series(evaluations).items()}
    if bits:
        yield as_data_uri(bits_per_byte(bits, last.facts["baselines"]))
    series = view.task_series(evaluations)
    tasks = [
        task
        for axis in tasks_by_axis(last.facts, {}).values()
        for task in axis
        if len(series.get(task.name, ())) == len(evaluations) > 1
    ][:MOST_TASKS]
    if tasks:
        points = {task.name: [Point(**point) for point in series[task.name]] for task in tasks}
        marks = {task.name: task.score.marks for task in tasks}
        yield as_data_uri(task_scores(points, marks, {task.name: task.facts["metric"] for task in tasks}))


def kept_pipeline_page(store: Store, made: Made) -> str:
    """`pipeline_page`, kept in the store: when every stage is a hit, drawing would take longer than all the rest."""
    keys = [artifact.key for artifacts in made.values() for artifact in artifacts]
    place = digest({"keys": keys, "root": str(store.root.resolve()), "revision": REVISION})
    path = store.artifacts_path / ".pages" / f"{place[:12]}.md"
    if path.exists():
        return path.read_text(encoding="utf-8")
    text = pipeline_page(store, made)
    path.parent.mkdir(exist_ok=True)
    write_atomic(path, text)
    return text


def pipeline_page(store: Store, made: Made) -> str:
    """What a pipeline has made: the model's figures, charts, where everything is, and what each stage took."""
    (pretrain,), (export,), (report,) = made["pretrain"], made["export"], made["report"]
    evaluations = view.by_tokens(made["evaluate"])
    parts = [f"# {plain(export.manifest.label)}", _figures(pretrain, export, evaluations)]
    places = [("report", report.path / "report.html"), *_models(export), ("sample", export.path / "sample.txt")]
    parts += ["## Where it is", _table(["what", "path"], [[name, f"`{path.resolve()}`"] for name, path in places])]
    parts += [f"![{words}]({uri})" for words, uri in _pictures(store, pretrain, evaluations)]
    parts += ["## A sample", _code((export.path / "sample.txt").read_text(encoding="utf-8")[:SAMPLE_CHARACTERS])]
    parts += ["## What it took", _stages(made)]
    return "\n\n".join(parts) + "\n"


def _figures(pretrain: Artifact, export: Artifact, evaluations: Sequence[Artifact]) -> str:
    facts, measured = pretrain.facts, pretrain.manifest.measurements
    rows = [
        ["parameters", count(facts["parameters"])],
        ["tokens trained on", count(facts["tokens"])],
        ["final loss, nats per token", figure(facts["final_loss"])],
        ["time of the training", seconds(pretrain.manifest.provenance.get("seconds"))],
        ["tokens a second", count(measured.get("tokens_per_second"))],
    ]
    for score in view.score_rows(evaluations[-1] if evaluations else None):
        beside = ", ".join(f"{plain(name)} {figure(value)}" for name, value in score["baselines"].items())
        rows.append([f"bits per byte, {plain(score['domain'])}", f"**{figure(score['value'])}** ({beside})"])
    for form in view.form_rows(export):
        verdict = "ships" if form["accepted"] else "refused"
        rows.append([f"{form['form']}, {verdict}", f"{size(form['bytes'])}, bits per byte {_change(form['increase'])}"])
    return _table(["figure", "value"], rows)


def _change(increase: float | None) -> str:
    if increase is None:
        return "not measured"
    return f"{share(abs(increase))} {'lower' if increase < 0 else 'higher'}"


def _pictures(store: Store, pretrain: Artifact, evaluations: Sequence[Artifact]) -> Iterator[tuple[str, str]]:
    from eval.charts.frame import as_data_uri
    from eval.charts.training import loss_curve

    lines = [line for line in sampled(pretrain.path / METRICS) if line.get("loss") is not None]
    if lines:
        heldout = _heldout(store, pretrain)
        drawn = loss_curve([line["step"] for line in lines], [line["loss"] for line in lines], heldout)
        yield "Loss by step", as_data_uri(drawn)
    if evaluations:
        for uri in _over_training(evaluations):
            yield "Scores over the training", uri


def _heldout(store: Store, pretrain: Artifact) -> list[tuple[int, float]]:
    found = ((entry["step"], store.find("checkpoint", entry["key"])) for entry in pretrain.facts["checkpoints"])
    losses = ((step, made.facts.get("heldout_loss")) for step, made in found if made)
    return [(step, loss) for step, loss in losses if loss is not None]


def _models(export: Artifact) -> list[tuple[str, Path]]:
    forms = export.facts["forms"]
    return [
        (f"model, {form.value}", export.path / form.path)
        for form in Form
        if form.value in forms and forms[form.value]["accepted"]
    ]


def _stages(made: Made) -> str:
    rows = []
    for stage, artifacts in made.items():
        for artifact in artifacts:
            provenance = artifact.manifest.provenance
            total = sum(entry.bytes for entry in artifact.manifest.files)
            took = [seconds(provenance.get("seconds")), seconds(provenance.get("cpu_seconds"))]
            rows.append([stage, f"`{artifact.path.name}`", *took, size(total)])
    return _table(["stage", "artifact", "time", "CPU", "size"], rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _code(text: str) -> str:
    """A block in which nothing is Markdown: a fence longer than any in the text."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}text\n{text.rstrip()}\n{fence}"
