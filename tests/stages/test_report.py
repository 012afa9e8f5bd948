"""The page: whole, safe to open, and with what a reader looks for."""

import re
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest

from stages.base import Job, execute
from stages.curate.tables import SAMPLES
from stages.pretrain.config import ModelConfig, PretrainConfig
from stages.report import STAGE, ReportConfig, curation, view
from stages.report.rendering import count, seconds, size
from stages.report.training import machine_panels, norm_panels
from stages.store import Artifact, Store
from tests.stages.export.made import publish
from tests.stages.reported_run import NASTY, corpus_facts, made_run, pretrain_files


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Artifact, ...]]:
    return made_run(Store(tmp_path_factory.mktemp("report")))


def report(artifacts: dict[str, tuple[Artifact, ...]], **settings: Any) -> Artifact:
    store = Store(artifacts["corpus"][0].path.parents[2])
    return execute(
        Job(stage=STAGE, config=ReportConfig(**settings), externals={}, inputs=artifacts, label="made"), store
    )


class Page(HTMLParser):
    """What a browser would load, and the text that it would show."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loaded: list[str] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(source)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loaded += [
            value or "" for name, value in attributes if name in ("src", "href", "xlink:href", "data", "srcset")
        ]
        if tag not in ("meta", "link", "br", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"{tag} closes what was not opened last"

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)
        self.open = self.open[:-1]

    def handle_data(self, data: str) -> None:
        self.text += data + " "


def test_the_page_is_whole_and_loads_nothing(artifacts: dict[str, tuple[Artifact, ...]]) -> None:
    source = (report(artifacts).path / "report.html").read_text(encoding="utf-8")
    page = Page(source)
    assert page.open == [] and page.tags.count("svg") == 17
    assert (
        "script" not in page.tags and "link" not in page.tags and "img" not in page.tags and "iframe" not in page.tags
    )
    assert all(reference.startswith("#") for reference in page.loaded)
    assert not re.search(r"@import|url\((?!#)", source)
    assert "prefers-color-scheme: dark" in source and 'name="viewport"' in source


def test_curves_of_norms_and_of_the_machine_are_those_of_the_lines(artifacts: dict[str, tuple[Artifact, ...]]) -> None:
    (pretrain,) = artifacts["pretrain"]
    assert norm_panels(pretrain) == {
        "Gradient norm by group": {"attention": ([1, 3, 4], [0.6] * 3), "norm": ([1, 3, 4], [0.8] * 3)},
        "Norm of an update over that of the weights": {"attention": ([3], [0.125])},
    }
    assert machine_panels(pretrain) == {
        "Model FLOPs utilisation": {"": ([1, 2, 3, 4], [0.25] * 4)},
        "Exposed communication, share of the step": {"": ([3], [0.125])},
    }


def test_text_from_data_is_shown_and_never_markup(artifacts: dict[str, tuple[Artifact, ...]]) -> None:
    source = (report(artifacts, title=NASTY).path / "report.html").read_text(encoding="utf-8")
    assert "<script" not in source and Page(source).text.count(NASTY) >= 6


def test_what_a_reader_looks_for_is_on_the_page(artifacts: dict[str, tuple[Artifact, ...]]) -> None:
    text = " ".join(Page((report(artifacts).path / "report.html").read_text(encoding="utf-8")).text.split())
    for expected in (
        "1,000 parameters",
        "below gzip -9",
        "above gzip -9",
        "2.500",
        "exact duplicate of training text 4 15.38% 54 B",
        "quality: too short: 1 of 2",
        "d0 · code · en · 3 B · measured 1 · bound 5 · repeats kept-1 <script>",
        "d1 · code · en · 3 B · bound 5 so short",
        "repeated lines -4 B",
        "email 31",
        "held-out text 4 1 2 lambada 500 17 3",
        "Nothing was compared with boolq: the recipe waives it",
        "zu 3 0 0.00% 30 B 0 B 0.00% 1",
        "en 13 10 76.92% 1.03 kB 1.00 kB 96.81% 0 exact duplicate",
        "a.jsonl (jsonl) 26 2.07 kB 7 5 NUL: 2 code",
        "16 MinHash bands of 6 rows, expected to find 99.23% of the pairs at the threshold; 41 documents share",
        "12.50% 300 1.25 1.26 capped; its weight asks for 8.50",
        "a warning of the plan",
        "-50.00%",
        "not applicable",
        "word_order was left out: no sentence",
        "refused: bits per byte rise",
        "refused: does not fit",
        "shipped",
        "12",
        "nats per token",
        "1.23% of the time of the steps was spent waiting for data",
        "Packing: length-buckets. No document attends to another.",
        "300 7 4 1.25% 2",
        "1,234 tokens of <script>",
        "Step 3 was not finite twice",
        "85.00% of 2 h 00 min was training: steps that were kept. 3 attempts, 2 incidents",
        "down 10 min 8.33% no supervisor was there",
        "replayed: kill 5 min 4.17% steps made again, or cut off, by an end of this kind: kill",
        "1 kill 2 1 1 – 12.5 s <script>",
        "2 hang 3 – – 80.0 s – rank 1",
        "local 31 400.00 MB 12 ms 0 ms 1.5 s 0.0 s",
        "the tokenizer's own library: a unigram model",
        "en 5 77 3.25 1.50",
        "made",
    ):
        assert expected in text, expected
    for name in ("corpus", "tokenizer", "tokens", "plan", "preflight", "pretrain", "comparisons", "export"):
        assert artifacts[name][0].key in text, "the lineage names every artifact"


def test_the_last_checkpoint_is_the_one_with_most_tokens_whatever_the_order(
    artifacts: dict[str, tuple[Artifact, ...]],
) -> None:
    facts = report(artifacts).facts
    assert facts["bits_per_byte"] == {NASTY: 2.0, "code": 2.0} and facts["num_evaluations"] == 2


def test_scores_of_two_versions_of_a_task_are_not_joined(artifacts: dict[str, tuple[Artifact, ...]]) -> None:
    series = view.task_series(view.by_tokens(artifacts["evaluations"]))
    assert [point["value"] for point in series["indent"]] == [0.5, 0.75]
    assert [point["x"] for point in series["old"]] == [400]


def test_data_rows_add_up(artifacts: dict[str, tuple[Artifact, ...]]) -> None:
    rows = curation.data_rows(artifacts["corpus"][0].facts, artifacts["tokens"][0].facts)
    for row in rows:
        for unit in ("documents", "bytes"):
            edited = row["bytes_edited"] if unit == "bytes" else 0
            assert row[f"{unit}_in"] == row[f"{unit}_train"] + row[f"{unit}_heldout"] + row[f"{unit}_dropped"] + edited
    assert rows[-1]["domain"] == "all" and rows[-1]["documents_in"] == 26 and rows[-1]["tokens_train"] == 600
    assert [
        (row["reason"], row["documents"], row["bytes"], row["domains"], len(row["samples"]))
        for row in curation.drop_rows(artifacts["corpus"][0].facts, curation.read_samples(artifacts["corpus"][0]))
    ] == [
        ("exact duplicate of training text", 4, 54, [NASTY, "code"], 1),
        ("quality: too short", 2, 6, [NASTY, "code"], 1),
    ]


def test_tokens_of_early_steps_follow_from_bytes_and_what_was_measured(
    artifacts: dict[str, tuple[Artifact, ...]],
) -> None:
    """A domain by its own tokens per byte, a language by the tokenizer's, or where it has none by those of all text."""
    corpus, tokens, tokenizer = (artifacts[name][0].facts for name in ("corpus", "tokens", "tokenizer"))
    found = curation.funnels(corpus, tokens, tokenizer)
    assert found["domains"]["documents"]["code"] == [13, 13, 13, 12, 10, 10, 10]
    code = found["domains"][curation.TOKENS]["code"]
    assert code[-1] == pytest.approx(333) and code[0] == pytest.approx(333 * 1.033)
    languages = found["languages"][curation.TOKENS]
    assert languages["en"][0] == pytest.approx(1033 / 3.25) and languages["zu"][0] == pytest.approx(30 * 0.333)
    nameless = corpus | {"languages": {}, "funnel": corpus["funnel"] | {"languages": {}}}
    assert set(curation.funnels(nameless, tokens, tokenizer)) == {"domains"}


def test_a_language_with_nothing_left_is_told_from_one_that_was_not_there(
    artifacts: dict[str, tuple[Artifact, ...]],
) -> None:
    rows = curation.language_rows(artifacts["corpus"][0].facts)
    assert [(row["language"], row["wiped_out"]) for row in rows] == [("en", False), ("zu", True)]
    assert rows[0]["kept_bytes_share"] == 1000 / 1033


def test_languages_that_are_not_wanted_are_one_reason_and_alarm_nobody() -> None:
    facts = corpus_facts()
    gone = {f"language: {code} not wanted": {"documents": 2, "bytes": 5000} for code in ("fi", "sv")}
    facts["domains"] = {name: found | {"dropped": found["dropped"] | gone} for name, found in facts["domains"].items()}
    for code in ("fi", "sv"):
        facts["languages"][code] = {
            "documents_in": 2, "bytes_in": 5000, "kept_documents": 0, "kept_bytes": 0,
            "dropped": {f"language: {code} not wanted": gone[f"language: {code} not wanted"]},
        }  # fmt: skip
        facts["funnel"]["languages"][code] = [[2, 5000], [2, 5000]] + [[0, 0]] * 5
    rows = curation.language_rows(facts)
    assert [(row["language"], row["wanted"], row["wiped_out"]) for row in rows] == [
        ("en", True, False), ("zu", True, True), ("fi", False, False), ("sv", False, False),
    ]  # fmt: skip
    assert [row["group"] for row in curation.left_rows(facts, "languages")] == ["en", "zu", "fi", "sv"]
    samples = {reason: [{"id": f"{reason} {n}"} for n in range(15)] for reason in (*gone, "quality: too short")}
    drops = curation.drop_rows(facts, samples)
    assert [row["reason"] for row in drops] == [
        "languages not wanted (2)", "exact duplicate of training text", "quality: too short",
    ]  # fmt: skip
    assert (drops[0]["documents"], drops[0]["bytes"], drops[0]["domains"]) == (8, 20000, [NASTY, "code"])
    assert [sample["id"] for sample in drops[0]["samples"]][:3] == [
        "language: fi not wanted 0", "language: sv not wanted 0", "language: fi not wanted 1",
    ]  # fmt: skip
    assert len(drops[0]["samples"]) == curation.FOLDED_SAMPLES


def test_a_corpus_without_languages_and_drops_has_a_page_too(
    artifacts: dict[str, tuple[Artifact, ...]], tmp_path: Path
) -> None:
    facts = corpus_facts()
    for domain in facts["domains"].values():
        domain |= {"dropped": {}, "edited": {}}
    facts |= {"languages": {}, "funnel": facts["funnel"] | {"languages": {}}, "pii": {}}
    empty = publish(
        Store(tmp_path), "curate",
        lambda folder: pq.write_table(SAMPLES.empty_table(), folder / "samples.parquet"), facts,
    )  # fmt: skip
    text = Page((report({**artifacts, "corpus": (empty,)}).path / "report.html").read_text(encoding="utf-8")).text
    assert "Languages were not identified" in text and "Why text was dropped" not in text


def test_curves_leave_out_a_step_without_a_target_and_time_every_step(
    artifacts: dict[str, tuple[Artifact, ...]],
) -> None:
    steps = view.read_steps(artifacts["pretrain"][0])
    assert steps.steps == (1, 3, 4) and steps.losses == (5.0, 4.0, 3.5)
    assert steps.timed_steps == (1, 2, 3, 4) and steps.tokens_per_second == (200.0,) * 4


def test_a_run_without_evaluations_has_a_page_too(artifacts: dict[str, tuple[Artifact, ...]]) -> None:
    source = (report({**artifacts, "evaluations": ()}).path / "report.html").read_text(encoding="utf-8")
    assert "No checkpoint of this run has been evaluated" in source


def test_a_training_that_kept_no_account_has_a_page_too(
    artifacts: dict[str, tuple[Artifact, ...]], tmp_path: Path
) -> None:
    (pretrain,) = artifacts["pretrain"]
    bare = publish(Store(tmp_path), "pretrain", pretrain_files, pretrain.facts | {"final_loss": 3.25})
    source = (report({**artifacts, "pretrain": (bare,)}).path / "report.html").read_text(encoding="utf-8")
    assert "what took the time" not in source


def test_settings_that_are_not_the_defaults_are_named() -> None:
    config = PretrainConfig(
        model=ModelConfig(family="qwen3"), precision="fp16", batch_ramp=({"from_step": 9, "batch_sequences": 16},)
    )
    made: Any = SimpleNamespace(manifest=SimpleNamespace(config=config.model_dump(mode="json")))
    assert view.chosen_settings(made) == {
        "model.family": '"qwen3"',
        "pretrain.precision": '"fp16"',
        "pretrain.batch_ramp": '[{"from_step": 9, "batch_sequences": 16}]',
    }


def test_numbers_are_printed_with_their_units() -> None:
    assert [count(1234567), count(None), size(999), size(1_530_000), size(2.5e12)] == [
        "1,234,567",
        "–",
        "999 B",
        "1.53 MB",
        "2.50 TB",
    ]
    assert [seconds(3.21), seconds(3600), seconds(60 * 119.6), seconds(None)] == [
        "3.2 s",
        "1 h 00 min",
        "2 h 00 min",
        "–",
    ]
