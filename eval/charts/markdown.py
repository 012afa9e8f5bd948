"""An evaluation and a comparison as Markdown, for an artifact in a UI: tables, and one picture as a `data:` URI."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from eval.charts.compared import VERDICTS
from eval.charts.compared import differences as draw_differences
from eval.charts.frame import as_data_uri
from eval.charts.reading import AXES, Facts, compared_tasks, differences, tasks_by_axis
from eval.charts.scores import BIGRAM, CHANCE, score_lines

MOST_FLIPS, FLIPS_OF_A_TASK, MOST_CHARACTERS = 12, 4, 160


def evaluation_markdown(facts: Facts, measurements: Facts) -> str:
    """Of `facts` and `measurements` of an evaluation: what came out on each axis, and how sure it is."""
    model = facts["model"]
    form = f" as {model['form']}" if model["form"] else ""
    parts = [f"# Evaluation of {model['stage']} `{model['key']}`{form}", _seen(model)]
    bits = facts["bits_per_byte"]
    if bits:
        names = list(dict.fromkeys(name for values in facts["baselines"].values() for name in values))
        rows = [
            [plain(domain), f"{score['value']:.3f}", f"{score['low']:.3f} to {score['high']:.3f}"]
            + [_number(facts["baselines"].get(domain, {}).get(name)) for name in names]
            for domain, score in sorted(bits.items())
        ]
        parts += ["## Held-out text, bits per byte", _table(["domain", "model", "95 % interval", *names], rows)]
    axes = tasks_by_axis(facts, measurements)
    with_chance = [task.score for task in axes.get("capability", ()) if task.facts["chance"] is not None]
    if with_chance:
        parts.append(f"![Scores beside chance]({as_data_uri(score_lines({'Capability': with_chance}))})")
    for axis, tasks in axes.items():
        title, asks = AXES[axis]
        rows = [
            [
                plain(task.name),
                plain(task.facts["metric"]),
                _number(task.score.value),
                _interval(task.facts["low"], task.facts["high"]),
                _number(task.score.marks.get(CHANCE)),
                _number(task.score.marks.get(BIGRAM)),
                f"{task.facts['num_items']} in {task.facts['num_clusters']}",
                plain(" · ".join(f"{name}: {text}" for name, text in task.others.items())),
            ]
            for task in tasks
        ]
        head = ["task", "metric", "score", "95 % interval", "chance", "bigrams", "items in clusters", "more"]
        parts += [f"## {title}", asks, _table(head, rows)]
    skipped = {**facts["skipped_tasks"], **measurements.get("skipped_tasks", {})}
    parts += [f"{plain(task)} was left out: {plain(reason)}." for task, reason in skipped.items()]
    return "\n\n".join(parts) + "\n"


def comparison_markdown(facts: Facts, measurements: Facts, flips: Iterable[Facts] = ()) -> str:
    """Of `facts` and `measurements` of a comparison: the verdict, each task's difference, and what could not be
    compared. flips: rows of its flips.parquet, of which some are shown.
    """
    baseline = facts["baseline"]
    against = f"baseline {baseline['name']} no. {baseline['serial']}" if baseline["name"] else "the evaluation"
    parts = [
        f"# {plain(verdict_words(facts, measurements))}",
        f"{facts['candidate']['stage']} `{facts['candidate']['model']}` against {against} (`{baseline['model']}`). A "
        f"task has regressed if it is worse by more than its threshold and significantly so at the level "
        f"{facts['level']:g}, corrected for the number of tasks.",
    ]
    panels = differences(facts, measurements)
    if panels:
        parts.append(f"![Differences with intervals]({as_data_uri(draw_differences(panels))})")
        head = ["task", "verdict", "baseline", "candidate", "difference", "p, corrected", "detectable"]
        rows = [
            [
                plain(name),
                VERDICTS[task["verdict"]][2],
                _number(task["baseline"]),
                _number(task["candidate"]),
                f"{_number(task['difference'])} ({_interval(task['low'], task['high'])})",
                _number(task["p_corrected"]),
                _number(task["minimal_detectable_difference"]),
            ]
            for name, task in compared_tasks(facts, measurements)
        ]
        parts.append(_table(head, rows))
    shown = _worst_first(flips, [*facts["regressed"], *measurements.get("regressed", ())])
    if shown:
        head = ["task", "item", "baseline", "candidate"]
        parts += ["## Items that changed", _table(head, [_flip(row) for row in shown])]
    for title, reasons in (("Not compared", facts["not_compared"]), ("Missing", facts["missing"])):
        if reasons:
            parts += [f"## {title}", "\n".join(f"* {plain(task)}: {plain(why)}" for task, why in reasons.items())]
    return "\n\n".join(parts) + "\n"


def verdict_words(facts: Facts, measurements: Facts) -> str:
    """The verdict of a comparison as a sentence."""
    regressed = [*facts["regressed"], *measurements.get("regressed", ())]
    improved = [*facts["improved"], *measurements.get("improved", ())]
    if regressed:
        return f"Regressed: {', '.join(regressed)}"
    if improved:
        return f"Improved: {', '.join(improved)}; nothing regressed"
    return "No difference shown" if facts["tasks"] or measurements.get("tasks") else "Nothing could be compared"


def _worst_first(flips: Iterable[Facts], regressed: Sequence[str]) -> list[Facts]:
    """At most MOST_FLIPS items, of each task and direction at most FLIPS_OF_A_TASK: of tasks that regressed first, and
    what got worse before what got better."""
    counts: Counter[tuple[str, str]] = Counter()
    kept = []
    for row in flips:
        place = row["task"], row["direction"]
        counts[place] += 1
        if counts[place] <= FLIPS_OF_A_TASK:
            kept.append(row)
    kept.sort(key=lambda row: (row["task"] not in regressed, row["direction"] != "worsened"))
    return kept[:MOST_FLIPS]


def _flip(row: Facts) -> list[str]:
    return [
        plain(row["task"]),
        str(row["item"]),
        *(
            f"{_number(row[f'{which}_score'])} {plain(_short(row[f'{which}_evidence']))}"
            for which in ("baseline", "candidate")
        ),
    ]


def _seen(model: Facts) -> str:
    if model["step"] is None:
        return "Not trained here."
    return f"Step {model['step']:,}, {model['tokens_seen']:,} tokens seen."


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def _interval(low: float | None, high: float | None) -> str:
    return "–" if low is None else f"{_number(low)} to {_number(high)}"


def _short(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 1] + "…"


def plain(text: str) -> str:
    """Text in which nothing is Markdown or markup, on one line."""
    return re.sub(r"([\\`*_{}\[\]<>()#+!|~$&-])", r"\\\1", " ".join(text.split()))
