"""Decontamination: copies of judged text are found, also as one item inside a long document, and by task."""

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.heldout import decontaminate
from data.heldout.decontaminate import JudgedText, Overlap, overlaps
from data.heldout.judged_item import JudgedItem

SHARED = Path(__file__).parents[3].parent / "shared" / "data"


def column(*texts: str) -> pa.LargeStringArray:
    return pa.array(texts, pa.large_string())


def items(*texts: str, task: str = "task") -> list[JudgedItem]:
    return [JudgedItem(task, str(number), text) for number, text in enumerate(texts)]


def words(rng: random.Random, count: int) -> list[str]:
    return [f"w{rng.randrange(10**6)}" for _ in range(count)]


def same(a: Overlap, b: Overlap) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(vars(a).values(), vars(b).values(), strict=True))


def test_the_share_of_a_text_that_is_judged_text() -> None:
    rng = random.Random(0)
    judged, other = words(rng, 112), words(rng, 100)
    texts = column(" ".join(judged), " ".join(other), " ".join(judged[:62] + other), "")
    found = JudgedText(items(" ".join(judged))).overlap(texts)
    assert np.allclose(found.text_share, [1, 0, 50 / 150, 0])
    assert np.allclose(found.item_share, [1, 0, 50 / 100, 0]) and found.item.tolist() == [0, -1, 0, -1]


def test_punctuation_and_case_do_not_hide_a_copy() -> None:
    text = "It was the best of times, it was the worst of times, it was the age of wisdom."
    disguised = "IT WAS THE BEST OF TIMES -- it was the worst of times; it was the age of \n wisdom"
    assert JudgedText(items(text)).overlap(column(disguised)).text_share[0] == 1


def test_an_item_inside_a_long_document_is_found_and_named() -> None:
    rng = random.Random(1)
    judged = [" ".join(words(rng, 30)) for _ in range(20)]
    padding = " ".join(words(rng, 5000))
    half = " ".join(judged[5].split()[:21])
    found = JudgedText(items(*judged)).overlap(
        column(f"{padding} {judged[7]} {padding}", padding, f"{half} {padding} {half}")
    )
    assert found.item.tolist() == [7, -1, 5]
    assert np.allclose(found.item_share, [1, 0, 9 / 18]) and found.text_share[0] < 0.01


def test_items_that_share_ngrams_are_each_counted_whole() -> None:
    rng = random.Random(2)
    common, first, second = words(rng, 20), words(rng, 20), words(rng, 40)
    judged = JudgedText(items(" ".join(common + first), " ".join(common + second)))
    found = judged.overlap(column(" ".join(common + second), " ".join(common)))
    assert found.item.tolist() == [1, 0] and np.allclose(found.item_share, [1, 8 / 28])


def test_short_items_are_found_as_a_whole_and_shorter_ones_are_counted() -> None:
    rng = random.Random(3)
    long, twelve, eight, seven = (words(rng, count) for count in (40, 12, 8, 7))
    judged = JudgedText(
        [
            *items(" ".join(long), " ".join(eight), task="a"),
            *items(" ".join(twelve), " ".join(seven), "", task="b"),
        ]
    )
    assert judged.by_task() == {"a": {"items": 2, "too_short": 0}, "b": {"items": 3, "too_short": 2}}
    padding = words(rng, 50)
    found = judged.overlap(
        column(
            *(
                " ".join(padding + part + padding)
                for part in (eight, twelve, seven, twelve[:11], eight[:4] + eight[5:])
            ),
            ", ".join(eight).upper(),
        )
    )
    assert found.item.tolist() == [1, 2, -1, -1, -1, 1]
    assert found.item_share.tolist() == [1, 1, 0, 0, 0, 1] and not found.text_share.any(), "no n-gram is shared"


def test_nothing_to_look_for_and_nothing_to_look_into() -> None:
    assert JudgedText([]).overlap(column("a " * 20)).text_share.tolist() == [0]
    assert JudgedText([]).by_task() == {}
    assert JudgedText(items("a " * 20)).overlap(column()).item.tolist() == []


def test_tables_are_the_same_in_another_process(tmp_path: Path) -> None:
    rng = random.Random(4)
    judged = JudgedText(items(*(" ".join(words(rng, count)) for count in (5, 9, 30, 60))), ngram_words=11)
    judged.save(tmp_path / "judged")
    loaded = JudgedText.load(tmp_path / "judged")
    assert JudgedText.load(tmp_path / "judged") is loaded, "opened once"
    texts = column(*(" ".join(words(random.Random(4), count)) for count in (20, 60, 104)))
    assert same(loaded.overlap(texts), judged.overlap(texts)) and judged.overlap(texts).item_share.any()
    assert (loaded.tasks, loaded.names, loaded.by_task()) == (judged.tasks, judged.names, judged.by_task())
    script = (
        "import sys, json, pathlib, pyarrow as pa; from data.heldout.decontaminate import JudgedText\n"
        "texts = pa.array(json.load(sys.stdin), pa.large_string())\n"
        "found = JudgedText.load(pathlib.Path(sys.argv[1])).overlap(texts)\n"
        "print(json.dumps([found.text_share.tolist(), found.item_share.tolist(), found.item.tolist()]))"
    )
    argv = [sys.executable, "-c", script, str(tmp_path / "judged")]
    done = subprocess.run(argv, input=json.dumps(texts.to_pylist()), capture_output=True, text=True, check=True)
    here = judged.overlap(texts)
    assert json.loads(done.stdout) == [here.text_share.tolist(), here.item_share.tolist(), here.item.tolist()]
    JudgedText(items("x " * 30)).save(tmp_path / "other")
    (tmp_path / "judged").rename(tmp_path / "old")
    (tmp_path / "other").rename(tmp_path / "judged")
    assert JudgedText.load(tmp_path / "judged").by_task()["task"]["items"] == 1, "a replaced folder is read again"


WORDS = st.lists(st.sampled_from("abc"), max_size=14)


@given(
    st.lists(WORDS, max_size=4),
    st.lists(WORDS, min_size=1, max_size=4),
    st.integers(1, 6),
    st.integers(1, 6),
    st.data(),
)
@settings(max_examples=300, deadline=None)
def test_shares_are_those_of_plain_sets(
    judged: list[list[str]], texts: list[list[str]], n: int, short: int, data: st.DataObject
) -> None:
    def grams(text: list[str], n: int) -> list[tuple[str, ...]]:
        return [tuple(text[i : i + n]) for i in range(len(text) - n + 1)]

    def share(item: list[str], text: list[str]) -> float:
        length = min(n, len(item))
        if length < min(short, n):
            return 0.0
        runs = set(grams(item, length))
        return len(runs & set(grams(text, length))) / len(runs)

    if judged and data.draw(st.booleans()):
        texts = [*texts, texts[0] + judged[0] + texts[-1]]
    some = JudgedText(items(*map(" ".join, judged)), ngram_words=n, short_words=short)
    whole = JudgedText(items(*map(" ".join, texts)), ngram_words=n, short_words=short)
    found, in_itself = overlaps([some, whole], column(*map(" ".join, texts)))
    every = {gram for text in judged for gram in grams(text, n)}
    assert some.too_short.tolist() == [len(item) < min(short, n) for item in judged]
    for i, text in enumerate(texts):
        mine = grams(text, n)
        assert found.text_share[i] == (sum(gram in every for gram in mine) / len(mine) if mine else 0)
        shares = [share(item, text) for item in judged]
        assert found.item_share[i] == max(shares, default=0.0)
        assert found.item[i] == (shares.index(max(shares)) if max(shares, default=0) > 0 else -1)
        assert in_itself.item_share[i] == (len(text) >= min(short, n))


def suite_items() -> Iterator[JudgedItem]:
    """Items as real tasks ask them, each with its right answer."""
    for name in ("arc_easy", "piqa", "copa", "lambada", "blimp-sample", "winograd", "operators"):
        for number, line in enumerate((SHARED / "eval" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()):
            item = json.loads(line)
            if "choices" in item:
                text = f"{item['query']} {item['choices'][item['gold']]}"
            elif "context_options" in item:
                text = f"{item['context_options'][item['gold']]} {item['continuation']}"
            else:
                text = item.get("sentence_good") or f"{item['context']} {item['continuation']}"
            yield JudgedItem(name, str(number), text)


@pytest.mark.skipif(not (SHARED / "eval").is_dir(), reason="needs the shared evaluation items")
def test_real_items_planted_in_real_text_are_found_and_the_text_alone_is_clean() -> None:
    judged_items = list(suite_items())
    judged = JudgedText(judged_items)
    books = pq.read_table(SHARED / "prose" / "standardebooks.parquet", columns=["text"])["text"]
    chapters = [text.as_py() for text in books[:60]]
    clean = judged.overlap(column(*chapters))
    assert not (clean.item_share >= 0.5).any() and clean.text_share.max() < 0.01
    rng = random.Random(5)
    planted = rng.sample(np.flatnonzero(~judged.too_short).tolist(), 400)
    texts = []
    for item in planted:
        chapter = rng.choice(chapters)[:4000]
        cut = chapter.rfind(" ", 0, rng.randrange(1000, 4000))
        texts.append(f"{chapter[:cut]}\n\n{judged_items[item].text}\n\n{chapter[cut:]}")
    found = judged.overlap(column(*texts))
    assert (found.item_share == 1).all(), "no planted item is missed"
    right = [judged.tasks[f] == judged.tasks[p] for f, p in zip(found.item.tolist(), planted, strict=True)]
    assert all(right) and np.mean(found.item == planted) > 0.95, "another only where it is the same words"


def test_what_all_items_share_takes_bounded_memory_and_changes_nothing(monkeypatch) -> None:
    """A template that every item begins with, in many texts: few pairs of a run and an item are looked at together."""
    rng = random.Random(4)
    template = " ".join(words(rng, 20))
    judged = JudgedText(items(*(f"{template} {' '.join(words(rng, 15))}" for _ in range(30))))
    own = [f"{template} {' '.join(words(rng, 40))}" for _ in range(25)]
    texts = column("", *own, own[0], " ".join(words(rng, 60)), template, template + " " + template)
    whole = judged.overlap(texts)
    largest = []
    parts = decontaminate._parts

    def watched(text, num_owners):
        for part in parts(text, num_owners):
            largest.append(int(num_owners[part].sum()))
            assert len(np.unique(text[part])) == 1 or largest[-1] <= decontaminate.MOST_OWNERS
            yield part

    monkeypatch.setattr(decontaminate, "MOST_OWNERS", 600)
    monkeypatch.setattr(decontaminate, "_parts", watched)
    assert same(judged.overlap(texts), whole)
    assert len(largest) > 5 and sum(largest) > 600


def test_what_more_items_share_than_a_limit_is_nobodys() -> None:
    """One short page of a site, nearly all of it the site's template, must not cost every other page of the site."""
    rng = random.Random(5)
    template, own = " ".join(words(rng, 60)), [" ".join(words(rng, count)) for count in (15, 200, 200)]
    pages = items(*(f"{template} {text}" for text in own))
    other_page, copy = f"{template} {' '.join(words(rng, 200))}", f"{' '.join(words(rng, 400))} {own[1]}"
    texts = column(other_page, copy)
    unlimited, limited = JudgedText(pages).overlap(texts), JudgedText(pages, template_texts=2).overlap(texts)
    assert unlimited.item_share[0] > 0.6 and limited.item_share[0] == 0
    assert limited.item.tolist() == [-1, 1] and limited.item_share[1] > 0.9
    assert np.array_equal(limited.text_share, unlimited.text_share)
    assert same(JudgedText(pages, template_texts=3).overlap(texts), unlimited)
