"""The bench's corpus says of itself what is so, its scores are those of the plain definition, and a small run works."""

import contextlib
import importlib.util
import io
import json
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.benchmarks import curate, harness
from tests.benchmarks.clustering_score import recall, score
from tests.benchmarks.near_duplicate_text import (
    EXACT,
    NEAR,
    SHARES,
    SPACES,
    Copy,
    Planted,
    jaccard,
    plant,
    read_texts,
    read_truth,
    shingles,
    write,
)

SCORER = Path(__file__).parents[3] / "shared" / "tools" / "score_clusters.py"


def word(number: int) -> str:
    """In letters, since digits do not tell words apart."""
    return "".join(chr(ord("a") + int(digit)) for digit in str(number))


POOL = tuple(
    " ".join(word((sentence * 31 + place * (sentence + 7)) % 9973) for place in range(5 + sentence % 20)) + "."
    for sentence in range(2000)
)


@pytest.fixture(scope="module")
def planted() -> Planted:
    return plant(POOL, 300, seed=3)


def test_the_corpus_follows_from_the_seed(planted: Planted) -> None:
    assert plant(POOL, 300, seed=3) == planted
    assert plant(POOL, 300, seed=4) != planted


def test_the_shares_are_those_that_are_promised(planted: Planted) -> None:
    kinds = [copy.kind for copy in planted.truth]
    assert {kind: kinds.count(kind) for kind in SHARES} == {kind: int(share * 300) for kind, share in SHARES.items()}
    assert len(set(planted.ids)) == len(planted.ids) == 300


def test_the_truth_is_true(planted: Planted) -> None:
    texts = dict(zip(planted.ids, planted.texts, strict=True))
    for copy in planted.truth:
        text, original = texts[copy.id], texts[copy.original]
        assert copy.jaccard == jaccard(shingles(text), shingles(original))
        if copy.kind == EXACT:
            assert text == original
        if copy.kind == SPACES:
            assert text.split() == original.split() and copy.jaccard == 1
    similarities = [copy.jaccard for copy in planted.truth if copy.kind == NEAR]
    assert min(similarities) < 0.5 and max(similarities) > 0.9


def test_originals_have_little_in_common(planted: Planted) -> None:
    copies = {copy.id for copy in planted.truth}
    originals = [shingles(text) for id, text in zip(planted.ids, planted.texts, strict=True) if id not in copies]
    assert max(jaccard(left, right) for left in originals[:40] for right in originals[40:80]) < 0.3


def test_what_is_written_is_read(planted: Planted, tmp_path: Path) -> None:
    write(planted, tmp_path / "corpus")
    assert list(read_texts(tmp_path / "corpus").items()) == list(zip(planted.ids, planted.texts, strict=True))
    assert read_texts(tmp_path / "corpus", {planted.ids[7]}) == {planted.ids[7]: planted.texts[7]}
    assert read_truth(tmp_path / "corpus") == planted.truth


def test_a_score_counts_what_is_found_and_what_is_taken_without_reason() -> None:
    words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    texts = {
        "a": " ".join(words),
        "same": " ".join(words),
        "near": " ".join([*words[:-1], "other"]),  # 5 of 7 5-grams
        "strange": "entirely different words stand in this document",
    }
    truth = [
        Copy(id="same", original="a", kind=EXACT, jaccard=1.0),
        Copy(id="near", original="a", kind=NEAR, jaccard=5 / 7),
    ]
    found = score({"a": 0, "same": 0, "near": 1, "strange": 1}, truth, lambda wanted: texts)
    assert (found.recall_high, found.recall_exact, found.recall_low) == (1.0, 1.0, 0.0)
    assert (found.removed, found.precision_low) == (2, 0.5)  # `same` for `a`, and `strange` for `near`
    found = score({"a": 0, "same": 1, "near": 0, "strange": 2}, truth, lambda wanted: texts)
    assert (found.recall_high, found.recall_low, found.removed) == (0.0, 1.0, 1)
    assert (found.precision_low, found.precision_high) == (1.0, 0.0)


def test_a_pair_counts_as_found_unless_both_are_kept() -> None:
    truth = [
        Copy(id="b", original="a", kind=NEAR, jaccard=0.8),
        Copy(id="c", original="a", kind=NEAR, jaccard=0.9),
        Copy(id="d", original="b", kind=NEAR, jaccard=0.7),
    ]
    assert recall({"a", "b"}, truth, 0.8) == 0.5
    assert recall({"b", "c", "d"}, truth, 0.8) == 1
    assert recall({"a", "b", "c", "d"}, truth, 0.8) == 0
    assert recall({"b", "d"}, truth, 0.7) == pytest.approx(2 / 3)


def shared_scorer() -> ModuleType:
    if not SCORER.exists():
        pytest.skip("../shared is not here")
    spec = importlib.util.spec_from_file_location("score_clusters", SCORER)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@settings(max_examples=5, deadline=None)
@given(assigned=st.lists(st.integers(0, 40), min_size=60, max_size=60))
def test_scores_are_those_of_the_shared_tool(assigned: list[int], tmp_path_factory: pytest.TempPathFactory) -> None:
    """On the same texts, truth and clusters; ids are numbers there."""
    module = shared_scorer()
    small = plant(POOL, 60, seed=5)
    number = {id: place for place, id in enumerate(small.ids)}
    folder = tmp_path_factory.mktemp("scored")
    (folder / "found").mkdir()
    pq.write_table(pa.table({"id": range(60), "text": small.texts}), folder / "docs.parquet")
    kinds = {NEAR: "near", EXACT: "exact", SPACES: "exact_ws"}
    with (folder / "truth.jsonl").open("w") as file:
        for copy in small.truth:
            line = {"id": number[copy.id], "orig": number[copy.original], "kind": kinds[copy.kind], "jac": copy.jaccard}
            file.write(json.dumps(line) + "\n")
    clusters = {id: assigned[place] for place, id in enumerate(small.ids)}
    for copy in small.truth[::2]:  # else hardly any are found
        clusters[copy.id] = clusters[copy.original]
    pq.write_table(
        pa.table({"id": range(60), "cluster": list(clusters.values())}), folder / "found" / "clusters.parquet"
    )
    shown = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(shown):
        patch.setattr("sys.argv", ["", str(folder / "found" / "clusters.parquet"), "--docs", str(folder)])
        module.main()
    theirs = json.loads(shown.getvalue())
    texts = dict(zip(small.ids, small.texts, strict=True))
    ours = score(clusters, small.truth, lambda wanted: texts)
    assert round(ours.recall_high, 4) == theirs["recall"]["J>=0.8"]
    assert round(ours.recall_low, 4) == theirs["recall"].get("J0.7-0.8", 1.0)
    assert round(ours.precision_low, 4) == theirs["precision"]["J>=0.7"]
    assert round(ours.precision_high, 4) == theirs["precision"]["J>=0.8"]
    assert (ours.removed, ours.largest) == (theirs["removed"], theirs["largest"])


def test_a_quick_run_shows_the_figures_and_records_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    curate.main(["--quick"])
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    figures = result["figures"]
    assert result["bench"] == "curate"
    assert figures["recall_exact"] == figures["recall_white_space"] == 1
    assert figures["recall_at_0.8"] > 0.9 and figures["precision_at_0.7"] > 0.9
    assert figures["near_dedup_documents_per_cpu_second"]["median"] > 0
    assert figures["peak_memory_mb"] > 0
    assert not list(tmp_path.iterdir())
