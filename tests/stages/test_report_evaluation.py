"""What the page says of how a model was judged, beside tests/stages/test_report.py."""

from pathlib import Path
from typing import Any

import pytest

from stages.report import evaluation, view
from stages.store import Artifact, Store
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
