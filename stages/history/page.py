"""The page of all evaluations: charts and tables, whole in one file."""

from pathlib import Path

from stages.history import view
from stages.looks import finished
from stages.report.rendering import TEMPLATES, environment
from stages.store import Store

HERE = Path(__file__).parent


def render(store: Store) -> str:
    """HTML that refers to nothing outside itself. Whatever comes from data is escaped."""
    from markupsafe import Markup

    from eval.charts.frame import as_svg
    from eval.charts.history import over_time
    from eval.charts.reading import AXES

    past = view.read(store)
    models = view.of_last_models(past.evaluations, store)
    labels = view.labels(past)
    promoted = [finished(artifact) for artifact in past.baselines]
    bits = view.bits_panels(models)
    charts = [("Held-out text, bits per byte: lower is better", bits)] if bits else []
    charts += [(AXES[axis][0], panels) for axis, panels in view.task_panels(models).items()]
    return environment(HERE, TEMPLATES).get_template("history.html").render(
        evaluations=view.evaluation_rows(past),
        num_models=len(models),
        num_checkpoints=len(past.evaluations) - len(models),
        labels=labels,
        charts=[
            (title, Markup(as_svg(over_time(panels, promoted, labels), f"{title}, by date")))
            for title, panels in charts
        ],
        baselines=view.baseline_rows(past),
        regressions=view.regression_rows(past),
        alerts=view.alert_rows(past),
        opened=[{"title": f"{topic.label}: {topic.kind}", "task": topic.task, "text": finding.text}
                for topic, finding in sorted(past.alerts.opened.items())],
    )  # fmt: skip
