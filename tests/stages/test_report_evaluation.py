"""What the page says of how a model was judged, beside tests/stages/test_report.py."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from eval.charts.reading import AXES, differences
from stages.report import evaluation, view
from stages.report.rendering import TEMPLATES, environment
from stages.store import Artifact, Store
from tests.stages.export.made import publish
from tests.stages.reported_run import NASTY, made_run
from tests.stages.test_report import Page, report

Artifacts = dict[str, tuple[Artifact, ...]]


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> Artifacts:
    return made_run(Store(tmp_path_factory.mktemp("judged")))


def shown(artifacts: Artifacts, *, compared: bool = True) -> dict[str, Any]:
    store = Store(artifacts["corpus"][0].path.parents[2])
    comparisons = artifacts["comparisons"] if compared else ()
    return evaluation.shown(store, view.by_tokens(artifacts["evaluations"]), comparisons)


def test_each_of_the_five_axes_has_what_was_asked_what_came_out_and_how_sure(artifacts: Artifacts) -> None:
    rows = {row["title"]: row for row in shown(artifacts)["axes"]}
    assert {title: (row["found"], row["sure"], row["num_tasks"]) for title, row in rows.items()} == {
        "Capability": (
            "2 of 2 tasks are above chance; 1 of 1 tasks are above token bigrams, with all of their interval",
            "18 items in 6 clusters",
            2,
        ),
        "Long tail": ("typos changes most: 0.75 clean, 0.55 perturbed", "9 items in 3 clusters", 1),
        "Efficiency": ("first_token 1.25 ratio to the reference", "9 rounds", 1),
        "Safety": ("toxicity 0.25 share of toxic texts", "9 items in 1 clusters", 1),
        "Regression": ("Regressed: indent", "9 items in 3 clusters", 1),
    }
    assert all(row["asks"].endswith("?") for row in rows.values())


def test_an_axis_without_tasks_says_so(artifacts: Artifacts) -> None:
    first, _ = view.by_tokens(artifacts["evaluations"])
    rows = evaluation.shown(Store(Path()), [first], ())["axes"]
    assert [row["found"] for row in rows[1:4]] == ["nothing was asked"] * 3 and rows[3]["sure"] == ""


def test_the_comparison_stands_on_the_page_with_what_could_not_be_compared(artifacts: Artifacts) -> None:
    text = " ".join(Page((report(artifacts).path / "report.html").read_text(encoding="utf-8")).text.split())
    for expected in (
        "Compared with the promoted baseline main",
        "Regressed: indent. The baseline is no. 3,",
        "indent sign test over clusters regressed 0.7 0.5 -0.2 -0.25 to -0.15 0.004 0.07 9, 2, 1",
        "bits_per_byte/code sign test over clusters no difference shown 0.7 0.69 -0.01 – 0.004 – 9, 2, 1",
        f"Not compared, since another version {NASTY}: old.",
        "Missing, since the candidate lacks it: word_order.",
        "indent: 2 worse, 1 better",
        f"7 pattern worse 1 0 if a: {NASTY}",
        "8 pattern better 0 1 if a:",
        "would be missed more than once in five",
        "promoted baseline",
        "word_order was left out: no sentence.",
        f"energy was left out: not told {NASTY}.",
    ):
        assert expected in text, expected


def test_marks_of_the_promoted_baseline_are_those_of_the_same_version(artifacts: Artifacts) -> None:
    tasks = shown(artifacts)["tasks"]
    marks = {task.name: task.score.marks.get("promoted baseline") for axis in tasks.values() for task in axis}
    assert marks["indent"] == 0.5 and marks["frozen"] == 0.6 and marks["old"] is None and marks["typos"] is None


def test_without_a_comparison_the_first_checkpoint_is_what_items_changed_from(artifacts: Artifacts) -> None:
    """Of one version, and asked the same."""
    (task,) = shown(artifacts, compared=False)["flips"]
    assert (task["task"], task["num_worsened"], task["num_improved"]) == ("indent", 1, 1)
    assert [(row["item"], row["direction"], row["candidate_evidence"]) for row in task["rows"]] == [
        (1, "worsened", "what 1 said"),
        (2, "improved", "what 1 said"),
    ]
    text = Page((report({**artifacts, "comparisons": ()}).path / "report.html").read_text(encoding="utf-8")).text
    assert "first to last checkpoint" in text and "Compared with" not in text


def test_a_comparison_in_which_nothing_could_be_compared_says_so(artifacts: Artifacts) -> None:
    (found,) = artifacts["comparisons"]
    nothing = {**found.facts, "tasks": {}, "regressed": [], "improved": [], "verdict": "not_compared"}
    store = Store(artifacts["corpus"][0].path.parents[2])
    nothing_moved = pa.table({"task": [], "direction": []})
    comparison = publish(
        store, "compare", lambda folder: pq.write_table(nothing_moved, folder / "flips.parquet"), nothing
    )
    assert differences(comparison.facts, comparison.manifest.measurements) == {}, "so there is no chart of them"
    judged = shown({**artifacts, "comparisons": (comparison,)})
    page = environment(TEMPLATES).get_template("evaluation.html")
    html = page.render(evaluation=artifacts["evaluations"][0].facts, judged=judged, charts={}, titles=AXES)
    text = " ".join(Page(html).text.split())
    assert "Nothing could be compared. The baseline is no. 3" in text and "Not compared, since" in text


def test_items_that_tasks_of_a_group_number_alike_are_told_apart(tmp_path: Path) -> None:
    """lm-eval's groups number the items of each of their tasks from 0."""
    store, columns = Store(tmp_path), ("task", "cluster", "item", "prompt_hash", "score", "evidence")

    def evaluation_of(*scores: float) -> Artifact:
        rows = [("mmlu", f"part {i}/0", 0, f"asked {i}", score, "") for i, score in enumerate(scores)]
        table = pa.Table.from_pylist([dict(zip(columns, row, strict=True)) for row in rows])
        facts = {"tasks": {"mmlu": {"version": 1, "higher_is_better": True}}}
        return publish(store, "evaluate", lambda folder: pq.write_table(table, folder / "items.parquet"), facts)

    found = evaluation.changed_items(evaluation_of(1, 1, 0), evaluation_of(0, 1, 1))
    assert [(row["cluster"], row["direction"]) for row in found] == [("part 0/0", "worsened"), ("part 2/0", "improved")]
