import xml.etree.ElementTree as ElementTree

import pytest

from eval.charts.compared import Difference, Drop, differences, drops
from eval.charts.corpus import funnel
from eval.charts.exports import export_forms
from eval.charts.frame import INK, Point, as_svg
from eval.charts.history import over_time
from eval.charts.scaling import bits_by_tokens, gain_per_doubling
from eval.charts.scores import BIGRAM, CHANCE, PROMOTED, Score, bits_per_byte, score_lines, task_scores
from eval.charts.training import curves, learning_rate, loss_curve, throughput, time_spent
from eval.charts.trend import fit

POINTS = [Point(x=1e6 * i, value=3 - i / 5, low=2.9 - i / 5, high=3.2 - i / 5) for i in (3, 1, 2)]
HALVING = [Point(x=2.0**n, value=3 * 2 ** (-n / 4), low=0, high=9) for n in range(10, 15)]
RUNS = [f"run {n}" for n in range(9)]
FIGURES = {
    "loss": lambda: loss_curve(range(1, 1001), [9 / i for i in range(1, 1001)], [(500, 3.0), (1000, 2.5)]),
    "rate": lambda: learning_rate([1, 2], [0.1, 0.2], [1.0, 0.0]),
    "rate of fp16": lambda: learning_rate([1, 2, 3], [0.1, 0.2, 0.3], [None, 2.0, 1.0]),
    "throughput": lambda: throughput([1, 2, 3], [10.0, 12.0, 11.0]),
    "norms": lambda: curves({"a": {"x": ([1, 2], [0.1, 3.0]), "y": ([2], [1.0])}, "b": {"x": ([1], [2])}}, log=True),
    "shares": lambda: curves({"mfu": {"": ([1, 2], [0.1, 0.0])}}, log=False),
    "bits": lambda: bits_per_byte({"code": POINTS, "a <b> & $c": POINTS[:1]}, {"code": {"gzip-9": 2.5, "zstd": 2.4}}),
    "tasks": lambda: task_scores({"x": POINTS, "y": POINTS}, {"x": {CHANCE: 0.5, PROMOTED: 0.75}}, {"x": "acc"}),
    "score lines": lambda: score_lines(
        {
            "acc": [Score(name="a $b$", value=0.5, low=0.4, high=0.7, marks={CHANCE: 0.25, BIGRAM: 0.3})],
            "bits": [Score(name=f"task {n}", value=n, low=n, high=n) for n in range(40)],
        }
    ),
    "differences": lambda: differences(
        {
            "acc": [
                Difference(name="a $b$", value=-0.2, low=-0.3, high=-0.1, verdict="regressed", detectable=0.07),
                Difference(name="b", value=0.0, low=0.0, high=0.0, verdict="no_difference"),
            ],
            "seconds": [Difference(name="c", value=0.2, low=0.1, high=0.3, verdict="improved")],
        }
    ),
    "drops": lambda: drops({"acc": [Drop(name="typos", clean=0.8, perturbed=0.6, low=0.5, high=0.7, worst_group=0.4)]}),
    "scaling": lambda: bits_by_tokens({"$a$": HALVING, "b": HALVING[:2]}, {"$a$": fit(HALVING, logarithmic=True)}),
    "gains": lambda: gain_per_doubling({"$a$": fit(HALVING, logarithmic=False)}),
    "history": lambda: over_time(
        {"$a$": {f"run {n}": [Point(x=1.7e9 + n, value=n, low=n, high=n + 1)] for n in range(9)}}, [1.7e9], RUNS
    ),
    "history of a moment": lambda: over_time({"a": {"run 1": POINTS[:1]}}, [], RUNS),
    "funnel": lambda: funnel(
        ["read", "clean"],
        {"documents": {"a $b$": [90, 9], "c": [10, 0]}, "bytes": {"a $b$": [9e6, 5e6], "c": [1e6, 0]}},
    ),
    "time": lambda: time_spent(90.0, {f"a $cause$ {n}": 1.0 + n for n in range(9)}),
    "no time": lambda: time_spent(0.0, {}),
    "forms": lambda: export_forms({"hf": 4_000_000, "q4": 700_000}, {"hf": 0.0, "q4": 0.09}, ["q4"]),
}


@pytest.mark.parametrize("name", FIGURES)
def test_a_chart_is_well_formed_inline_svg_in_the_inks_of_the_page(name: str) -> None:
    svg = as_svg(FIGURES[name](), 'what "it" shows <&>')
    root = ElementTree.fromstring(svg)
    assert root.tag.endswith("svg") and root.get("aria-label") == 'what "it" shows <&>'
    assert root.get("viewBox") and root.get("width") is None, "it takes the width of its column"
    assert "var(--chart-ink" in svg and INK not in svg.replace("var(--chart-ink, #333334)", "")
    assert svg == as_svg(FIGURES[name](), 'what "it" shows <&>'), "the same figure has the same text"
    links = [value for element in root.iter() for key, value in element.attrib.items() if key.endswith(("href", "src"))]
    assert all(link.startswith("#") for link in links)


def text_of(svg: str) -> str:
    return " ".join(
        element.text or "" for element in ElementTree.fromstring(svg).iter() if element.tag.endswith("text")
    )


def test_axes_have_units_and_series_have_names() -> None:
    loss = text_of(as_svg(FIGURES["loss"](), ""))
    assert "nats per token" in loss and "step" in loss and "held-out" in loss
    bits = text_of(as_svg(FIGURES["bits"](), ""))
    assert "bits per byte" in bits and "tokens seen" in bits and "gzip-9" in bits and "a <b> & $c" in bits
    tasks = text_of(as_svg(FIGURES["tasks"](), ""))
    assert all(name in tasks for name in ("model, 95 % interval", "chance", "promoted baseline", "acc", "tokens seen"))
    compared = text_of(as_svg(FIGURES["differences"](), ""))
    assert all(name in compared for name in ("regressed", "no difference shown", "would be missed", "better", "worse"))
    assert "others" in text_of(as_svg(FIGURES["history"](), "")), "runs beyond the colours share one"
    assert "q4 (refused)" in text_of(as_svg(FIGURES["forms"](), ""))


def test_lost_time_is_shown_of_all_time_and_of_itself() -> None:
    text = text_of(as_svg(time_spent(90.0, {"down": 7.5, "starting": 2.5}), ""))
    for expected in ("productive", "90%", "8%", "75%", "25%", "down", "starting"):
        assert expected in text, expected
    assert "3 others" in text_of(as_svg(FIGURES["time"](), ""))


def test_a_funnel_adds_its_groups_up() -> None:
    text = text_of(as_svg(FIGURES["funnel"](), ""))
    for expected in ("100 · 100%", "9 · 9%", "10M · 100%", "5M · 50%", "a $b$", "c", "documents", "bytes", "clean"):
        assert expected in text, expected
    assert "others" not in text


def test_groups_beyond_the_colours_are_one() -> None:
    values = {f"g{n}": [float(n), n - 0.001] for n in range(1, 10)}
    text = text_of(as_svg(funnel(["read", "kept"], {"documents": values}), ""))
    assert "g9" in text and "g5" in text and "g4" not in text and "4 others" in text
    assert "45 · 99.98%" in text, "what is not all does not read 100 %"


def test_nothing_at_all_has_a_funnel() -> None:
    assert "clean" in text_of(as_svg(funnel(["read", "clean"], {"documents": {"a": [0, 0]}}), ""))


def test_a_long_curve_is_thinned_and_keeps_its_spike() -> None:
    """What matters in a loss curve is the one step that went wrong."""
    losses = [3.0] * 50_000
    losses[31_234] = 777.0
    svg = as_svg(loss_curve(range(1, 50_001), losses), "")
    assert len(svg) < 60_000
    assert "700" in text_of(svg), "the axis reaches up to the spike"


@pytest.mark.parametrize(("apart_seconds", "label"), [(0, "2023-11-14\\n22:00"), (86_400, "2023-11-1"), (1e7, "2024-")])
def test_dates_are_whole_whatever_time_a_history_spans(apart_seconds: float, label: str) -> None:
    points = [Point(x=1.7e9 + i * apart_seconds, value=1, low=0, high=2) for i in range(5)]
    (axes,) = over_time({"a": {"run": points}}, [], ["run"]).axes
    axes.figure.draw_without_rendering()
    labels = [text.get_text().replace("\n", "\\n") for text in axes.get_xticklabels()]
    assert 2 <= len(labels) <= 4 and any(text.startswith(label) for text in labels), labels


def test_a_history_of_hundreds_of_models_stays_small() -> None:
    few, many = (
        as_svg(
            over_time(
                {"a": {"run": [Point(x=1.7e9 + 9e4 * i, value=i % 7, low=0, high=9) for i in range(size)]}}, [], ["run"]
            ),
            "",
        )
        for size in (40, 400)
    )
    assert len(many) < 2 * len(few)
