"""Exact and near duplicates: what is removed, in whose favour, and that nothing else is."""

import dataclasses
import json
import pickle
import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.dedup import band_join
from data.dedup.banding import NearDuplicateSettings
from data.dedup.duplicates import exact_duplicates, near_clusters, near_duplicates
from tests.data.dedup.signed import DEFAULT, Corpus, jaccard

NEAR_DUPLICATES = Path(__file__).parents[4] / "shared/data/near_duplicates"


def words(rng: random.Random, count: int, vocabulary: int = 50_000) -> list[str]:
    return [f"w{rng.randrange(vocabulary)}" for _ in range(count)]


def pair_at(rng: random.Random, target: float, length: int = 200) -> tuple[str, str]:
    """Two texts of about the wanted Jaccard similarity: words of the second are replaced one by one."""
    first = words(rng, length)
    second = list(first)
    for place in rng.sample(range(length), length):
        if jaccard(" ".join(first), " ".join(second)) <= target:
            break
        second[place] = f"x{rng.randrange(10**9)}"
    return " ".join(first), " ".join(second)


def clusters_of_texts(seed: int = 4) -> list[str]:
    rng = random.Random(seed)
    texts = []
    for _ in range(40):
        base = words(rng, rng.randint(5, 120))
        texts.append(" ".join(base))
        for _ in range(rng.randint(0, 4)):
            copy = list(base)
            copy[rng.randrange(len(copy))] = "changed"
            texts.append(rng.choice([" ", "  ", "\n"]).join(copy))
    return texts


@pytest.mark.parametrize("mode", ["exact", "near"])
def test_every_cluster_keeps_exactly_one_whatever_the_ids_and_the_order(mode):
    rng = random.Random(0)
    texts = {name: " ".join(words(rng, 60)) for name in "ABCD"}
    rows = [(str(1000 + 7 * i), texts[name]) for i, name in enumerate("AAABBCD")]
    for _ in range(5):
        corpus = Corpus([text for _, text in rows], [name for name, _ in rows])
        assert getattr(corpus, mode)() == {"1007": "1000", "1014": "1000", "1028": "1021"}
        rng.shuffle(rows)


def test_exact_duplicates_differ_in_white_space_only():
    corpus = Corpus(["a  b\n", "a b", " a\tb\r\n\r\n", "ab", "a b c", "A b", "a\u00a0b", "", " "])
    assert corpus.exact() == {"00000": "00002", "00001": "00002", "00007": "00008"}


@given(st.lists(st.text(st.sampled_from(" \n\tabé"), max_size=9), min_size=1, max_size=12), st.booleans())
@settings(max_examples=40, deadline=None)
def test_exact_survivors_are_those_of_a_plain_grouping(texts, parquet):
    corpus = Corpus(texts, parquet=parquet)
    groups: dict[str, list[int]] = {}
    for i, text in enumerate(texts):
        groups.setdefault(" ".join(text.split()), []).append(i)
    expected = {}
    for members in groups.values():
        best = min(members, key=lambda i: (-len(texts[i].encode()), corpus.ids[i]))
        expected |= {corpus.ids[i]: corpus.ids[best] for i in members if i != best}
    assert corpus.exact() == expected


def test_a_chain_of_neighbours_does_not_collapse_and_random_texts_stay():
    rng = random.Random(1)
    stream = words(rng, 400)
    chain = [" ".join(stream[10 * i : 10 * i + 100]) for i in range(11)]
    common = [
        " ".join("".join(rng.choice("etaoin") for _ in range(rng.randint(2, 7))) for _ in range(400))
        for _ in range(200)
    ]
    corpus = Corpus(chain + common)
    removed = corpus.near()
    by_id = dict(zip(corpus.ids, corpus.texts, strict=True))
    assert jaccard(chain[0], chain[1]) > 0.8 and jaccard(chain[0], chain[10]) == 0
    assert removed and set(removed) <= set(corpus.ids[:11]), "a random text was removed, or no neighbour"
    assert min(jaccard(by_id[name], by_id[kept]) for name, kept in removed.items()) >= 0.8
    ends = [removed.get(corpus.ids[i], corpus.ids[i]) for i in (0, 10)]
    assert ends[0] != ends[1]


def test_the_similarity_is_that_with_the_survivor():
    corpus = Corpus(clusters_of_texts())
    found = corpus.find()
    removed = np.nonzero(found.survivor >= 0)[0]
    assert len(removed) > 30 and found.num_compared >= len(removed) and found.num_candidates >= 2 * len(removed) / 5
    for row in range(len(corpus.texts)):
        kept = found.survivor[row]
        expected = jaccard(corpus.texts[row], corpus.texts[kept]) if kept >= 0 else 0
        assert found.similarity[row] == expected and (kept < 0 or expected >= DEFAULT.threshold)


def test_a_pair_exactly_at_the_threshold_is_removed_and_one_below_is_not():
    base = [f"w{i}" for i in range(94)]
    at, below = [*base[:84], *"0123456789"], [*base[:83], *"0123456789x"]
    for text, expected in ((at, 0.8), (below, 79 / 101)):
        assert jaccard(" ".join(base), " ".join(text)) == expected
        corpus = Corpus([" ".join(base), " ".join(text)], settings=NearDuplicateSettings(recall=0.9999999))
        assert len(corpus.near()) == (expected >= 0.8)


def test_texts_shorter_than_the_ngram_are_compared_exactly_only():
    corpus = Corpus(["cat", "dog", "cat", "猫", "犬", "a b c d", "a b c e"])
    assert corpus.exact() == {"00002": "00000"} and corpus.near() == {}
    assert corpus.find().num_too_short == 7


def test_blank_texts_crash_nothing_and_resemble_nothing(tmp_path):
    corpus = Corpus(["", "   ", "\n", "two words", "other words"])
    assert corpus.near() == {} and set(corpus.exact()) <= {"00000", "00001", "00002"}
    nothing = np.zeros(0, np.int64)
    found = near_duplicates([], nothing.astype(bool), nothing, DEFAULT, tmp_path, band_join.in_turn)
    assert found.survivor.tolist() == exact_duplicates([], nothing, tmp_path, band_join.in_turn).tolist() == []


def test_text_without_spaces_is_compared_by_its_characters():
    rng = random.Random(2)
    for first, last in ((0x4E00, 0x9000), (0x0E01, 0x0E2E), (0x3041, 0x3090)):
        characters = [chr(rng.randrange(first, last)) for _ in range(600)]
        text, changed = "".join(characters), "".join(characters[:590] + [chr(first)] * 10)
        unrelated = "".join(chr(rng.randrange(first, last)) for _ in range(600))
        assert list(Corpus([text, changed, unrelated]).near()) in (["00000"], ["00001"])


@pytest.mark.parametrize(
    ("shape", "threshold"), [(None, 0.8), (None, 0.7), ((14, 8), 0.7), ((60, 13), 0.8), ((6, 8), 0.8)]
)
def test_measured_recall_is_that_of_the_formula(shape, threshold):
    rng = random.Random(3)
    chosen = NearDuplicateSettings(threshold=threshold)
    if shape:
        chosen = NearDuplicateSettings.explicit(threshold=threshold, bands=shape[0], rows=shape[1])
    pairs = [pair_at(rng, threshold + 0.03) for _ in range(300)]
    pairs = [pair for pair in pairs if jaccard(*pair) >= threshold]
    assert len(pairs) > 200
    found = len(Corpus([text for pair in pairs for text in pair], settings=chosen).near())
    recalls = np.array([chosen.recall_at(jaccard(*pair)) for pair in pairs])
    deviation = np.sqrt((recalls * (1 - recalls)).sum())
    assert abs(found - recalls.sum()) <= 4 * deviation + 1, (found, recalls.sum(), len(pairs))


def test_survivors_do_not_depend_on_order_shards_files_or_workers():
    texts = clusters_of_texts()
    corpus = Corpus(texts)
    expected = corpus.near(), corpus.exact()
    assert len(expected[0]) > 30
    order = list(range(len(texts)))
    for seed, cuts in enumerate([(), (1, 2, 3, 50, 51), tuple(range(1, len(texts)))]):
        random.Random(seed).shuffle(order)
        shuffled = Corpus([texts[i] for i in order], [corpus.ids[i] for i in order], cuts=cuts, parquet=bool(seed % 2))
        assert (shuffled.near(), shuffled.exact()) == expected
    with ThreadPoolExecutor(4) as pool:
        threaded = Corpus(texts, run=lambda function, items: list(pool.map(function, items)))
        assert (threaded.near(), threaded.exact()) == expected


def test_survivors_do_not_depend_on_groups_ranges_and_tasks(monkeypatch):
    texts = clusters_of_texts()
    expected = Corpus(texts).near(), Corpus(texts).exact()
    for name, value in (("GROUP_DOCUMENTS", (7, 7)), ("RANGE_DOCUMENTS", 16), ("TASK_DOCUMENTS", (5, 9))):
        monkeypatch.setattr(band_join, name, value)
        corpus = Corpus(texts, cuts=range(1, len(texts), 3))
        assert (corpus.near(), corpus.exact()) == expected
    assert not [path for path in corpus.folder.iterdir() if path.is_dir()], "a folder of scratch files is left"


def test_what_is_mapped_and_what_is_mapped_over_can_be_sent_to_another_process():
    def run(function, items):
        return [pickle.loads(pickle.dumps(function))(pickle.loads(pickle.dumps(item))) for item in items]

    texts = clusters_of_texts()
    assert Corpus(texts, run=run).near() == Corpus(texts).near()


def test_a_search_that_was_broken_off_starts_over():
    texts = clusters_of_texts()
    corpus = Corpus(texts)
    for most in range(5):
        calls = []

        def run(function, items, most=most, calls=calls):
            calls.append(function)
            if len(calls) > most:
                raise InterruptedError
            return band_join.in_turn(function, items)

        corpus.run = run
        for search in (corpus.exact, corpus.near):
            calls.clear()
            if most < 4:
                with pytest.raises(InterruptedError):
                    search()
    corpus.run = band_join.in_turn
    assert (corpus.near(), corpus.exact()) == (Corpus(texts).near(), Corpus(texts).exact())


def test_a_shard_that_is_not_what_was_signed_is_refused():
    """Rows are numbered through the shards: a step that saw other rows would remove the wrong ones."""
    texts = clusters_of_texts()
    for part in ("texts", "signatures"):
        corpus, other = Corpus(texts), Corpus(texts[1:])
        corpus.shards[2] = dataclasses.replace(corpus.shards[2], **{part: getattr(other.shards[1], part)})
        for search in (corpus.exact, corpus.near):
            with pytest.raises(AssertionError):
                search()
    corpus, other = Corpus(texts), Corpus(texts[::-1])
    corpus.shards[0] = dataclasses.replace(corpus.shards[0], texts=other.shards[0].texts)
    with pytest.raises(AssertionError, match="not the texts that were signed"):
        corpus.near()


def test_surviving_texts_do_not_depend_on_how_documents_are_named():
    texts = clusters_of_texts()
    renamed = Corpus(texts, [f"z{len(texts) - i:05}" for i in range(len(texts))])
    kept = []
    for corpus in (Corpus(texts), renamed):
        removed = corpus.near()
        kept.append(Counter(text for name, text in zip(corpus.ids, corpus.texts, strict=True) if name not in removed))
    assert kept[0] == kept[1]


def test_documents_that_are_not_alive_take_no_part():
    rng = random.Random(6)
    text = words(rng, 80)
    corpus = Corpus([" ".join([*text, "x"]), " ".join([*text, "y"]), " ".join([*text, "z"])])
    assert sum(corpus.find().survivor >= 0) == 2
    found = corpus.find(np.array([True, False, True]))
    assert found.survivor[1] == -1 and sum(found.survivor >= 0) == 1 and 1 not in found.survivor.tolist()


def test_the_survivor_follows_the_rank():
    rng = random.Random(5)
    base = " ".join(words(rng, 80))
    longer = base + " and more"
    assert Corpus([longer, base]).near() == {"00001": "00000"}
    assert Corpus([longer, base], heldout=frozenset({1})).near() == {"00000": "00001"}
    assert Corpus([longer, base], quality=(0.25, 0.5)).near() == {"00000": "00001"}
    assert Corpus([longer, base], quality=(0.25, 0.25 + 1e-9)).near() == {"00001": "00000"}, "rounded to six digits"
    assert Corpus([longer, base], heldout=frozenset({1}), quality=(0.5, 0.25)).near() == {"00000": "00001"}
    assert Corpus([base, longer], heldout=frozenset({1}), num_known=1).near() == {"00001": "00000"}
    assert Corpus([base, base], ["b", "a"]).exact() == {"b": "a"}


def test_known_documents_stay_and_each_of_them_removes_what_resembles_it():
    rng = random.Random(7)
    stream = words(rng, 200)
    known = [" ".join(stream[:100]), " ".join(stream[10:110])]
    new = " ".join(stream[20:120])
    assert jaccard(*known) >= 0.8 > jaccard(known[0], new) and jaccard(known[1], new) >= 0.8
    assert Corpus([*known, new], num_known=2).near() == {"00002": "00001"}


def test_clusters_follow_chains_of_similar_texts():
    rng = random.Random(1)
    stream = words(rng, 400)
    chain = [" ".join(stream[10 * i : 10 * i + 100]) for i in range(11)]
    texts = [" ".join(words(rng, 60)), *chain[:6], "short", *chain[6:]]
    chosen = NearDuplicateSettings(recall=0.9999)
    corpus = Corpus(texts, settings=chosen)
    found = near_clusters(corpus.shards, chosen, corpus.folder, corpus.run)
    assert found.tolist() == [0, *[1] * 6, 7, *[1] * 5]


@pytest.mark.skipif(not NEAR_DUPLICATES.is_dir(), reason="needs ../shared/data/near_duplicates")
def test_recall_and_precision_on_planted_duplicates():
    table = pa.concat_tables([pq.read_table(file) for file in sorted(NEAR_DUPLICATES.glob("*.parquet"))])
    corpus = Corpus(table["text"].to_pylist(), [str(name) for name in table["id"].to_pylist()])
    exact, near = corpus.exact(), corpus.near()
    by_id = dict(zip(corpus.ids, corpus.texts, strict=True))
    assert min(jaccard(by_id[name], by_id[kept]) for name, kept in near.items()) >= DEFAULT.threshold
    pairs: dict[str, list[bool]] = {"exact": [], "exact_ws": [], "near": []}
    for line in (NEAR_DUPLICATES / "truth.jsonl").read_text().splitlines():
        pair = json.loads(line)
        names = {str(pair["id"]), str(pair["orig"])}
        if pair["kind"] != "near":
            pairs[pair["kind"]].append(bool(names & set(exact)))
        elif pair["jac"] >= DEFAULT.threshold:
            pairs["near"].append(bool(names & (set(exact) | set(near))))
    assert all(pairs["exact"]) and all(pairs["exact_ws"]) and len(pairs["exact"]) == 625
    assert len(pairs["near"]) > 900 and np.mean(pairs["near"]) >= 0.99
    clusters = near_clusters(corpus.shards, DEFAULT, corpus.folder, corpus.run)
    row = {name: i for i, name in enumerate(corpus.ids)}
    assert all(clusters[row[name]] == clusters[row[kept]] for name, kept in near.items())
