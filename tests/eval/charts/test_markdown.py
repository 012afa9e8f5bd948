"""Artifacts of a UI: what they say, and that a name or a text in them is neither Markdown nor markup."""

import base64
import re

import pytest

from eval.charts.markdown import FLIPS_OF_A_TASK, comparison_markdown, evaluation_markdown, verdict_words
from tests.eval.charts.facts import MEASUREMENTS, NASTY, comparison, evaluation, flip

PICTURE = re.compile(r"!\[[^\]]*\]\(data:image/png;base64,([^)]*)\)")


def unmarked(text: str) -> str:
    """Without pictures and escapes."""
    return re.sub(r"\\(.)", r"\1", PICTURE.sub("", text))


def test_an_evaluation_has_all_axes_with_scores_intervals_and_chance() -> None:
    text = evaluation_markdown(evaluation(), MEASUREMENTS)
    plain = unmarked(text)
    for expected in (
        "# Evaluation of checkpoint `0123456789ab`\n\nStep 1,200, 2,400,000 tokens seen.",
        "| 2.000 | 1.900 to 2.100 | 2.5 |",
        "## Capability",
        "| acc | 0.8 | 0.7 to 0.9 | 0.5 | 0.6 | 60 in 20 |",
        "## Long tail",
        "groups: a 0.5 (clean 0.8, 7 items), b 0.7 |",
        "## Efficiency",
        "milliseconds_p99: 21.25",
        "## Safety",
        "| one cluster | acc | 0.25 | – | – | – | 60 in 20 | worst_group: group email, value 0.5 |",
        f"refusal was left out: {NASTY}.",
    ):
        assert expected in plain, expected
    assert "## Regression" not in plain, "an axis without a task is left out"


def test_a_comparison_has_verdict_differences_and_items() -> None:
    text = comparison_markdown(comparison(), {}, [flip(0, task="same"), *(flip(n) for n in range(FLIPS_OF_A_TASK + 1))])
    plain = unmarked(text)
    for expected in (
        f"# Regressed: {NASTY}",
        "against baseline main no. 3 (`0123456789ab`)",
        "| same | no difference shown | 0.7 | 0.71 | 0.01 (–) | 0.004 | – |",
        "| regressed | 0.7 | 0.5 | -0.2 (-0.25 to -0.15) | 0.004 | 0.07 |",
        f"* old: {NASTY}",
        "## Missing",
        f"| {FLIPS_OF_A_TASK - 1} | 1 x",
    ):
        assert expected in plain, expected
    assert f"| {FLIPS_OF_A_TASK} | 1 x" not in plain and "x" * 200 not in plain, "neither all items nor all their text"
    assert plain.index(f"| {NASTY} | 0 | 1 x") < plain.index("| same | 0 | 1 x"), "what regressed comes first"


def test_each_has_one_small_picture() -> None:
    for text in (evaluation_markdown(evaluation(), MEASUREMENTS), comparison_markdown(comparison(), {})):
        (picture,) = PICTURE.findall(text)
        assert base64.b64decode(picture).startswith(b"\x89PNG") and len(picture) < 100_000


def test_no_name_and_no_text_is_markdown() -> None:
    text = comparison_markdown(comparison(), {}, [flip(0)]) + evaluation_markdown(evaluation(), MEASUREMENTS)
    assert not re.search(r"(?<!\\)<script|(?<!\\)\]\(javascript", text)
    for line in text.splitlines():
        if line.startswith("|"):
            cells = len(re.findall(r"(?<!\\)\|", line)) - 1
            assert cells in (4, 7, 8), line


@pytest.mark.parametrize(
    "more, measured, words",
    [
        ({}, {}, f"Regressed: {NASTY}"),
        ({"regressed": []}, {"regressed": ["speed"]}, "Regressed: speed"),
        ({"regressed": []}, {}, "Improved: c; nothing regressed"),
        ({"regressed": [], "improved": []}, {}, "No difference shown"),
        ({"regressed": [], "improved": [], "tasks": {}}, {}, "Nothing could be compared"),
    ],
)
def test_the_verdict_is_a_sentence(more: dict[str, object], measured: dict[str, object], words: str) -> None:
    assert verdict_words(comparison(**more), measured) == words


def test_nothing_to_compare_and_a_model_from_outside_have_pages_too() -> None:
    empty = comparison(regressed=[], improved=[], tasks={})
    assert "Nothing could be compared" in comparison_markdown(empty, {})
    outside = evaluation() | {"tasks": {}, "bits_per_byte": {}, "baselines": {}}
    outside["model"] = {"stage": "adopt", "key": "0" * 12, "step": None, "tokens_seen": None, "form": ""}
    assert "Not trained here." in evaluation_markdown(outside, {})
    outside["model"] |= {"stage": "export", "form": "gguf-q4_0"}
    assert "# Evaluation of export `000000000000` as gguf-q4_0" in evaluation_markdown(outside, {})
