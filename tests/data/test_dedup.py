"""Exact and near duplicates: what is removed, in whose favour, and that nothing else is."""

import json
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

from data import dedup_kernels
from data.banding import NearDuplicateSettings
from data.dedup import (
    exact_survivors,
    fingerprints,
    hash_constants,
    in_turn,
    near_duplicates,
    rank,
)
from data.errors import InputError
from data.tables import text_buffers
from data.words import hash_texts

NEAR_DUPLICATES = Path(__file__).parents[3] / "shared/data/near_duplicates"
DEFAULT = NearDuplicateSettings()


def column(texts: list[str]) -> pa.LargeStringArray:
    return pa.array(texts, pa.large_string())


class Corpus:
    """Texts with ids in shards of uneven size."""

    def __init__(self, texts: list[str], ids: list[str] | None = None, heldout: frozenset[int] = frozenset()) -> None:
        self.ids = ids or [f"{i:05}" for i in range(len(texts))]
        self.texts = texts
        every = column(texts)
        cuts = sorted({0, len(texts) // 7, len(texts) // 3, len(texts)})
        self.shards = [every.slice(a, b - a) for a, b in zip(cuts[:-1], cuts[1:], strict=True)]
        self.prints = np.concatenate([fingerprints(shard) for shard in self.shards])
        self.ranks = rank(
            num_bytes=np.array([len(text.encode()) for text in texts]),
            prints=self.prints,
            ids=pa.array(self.ids),
            is_training=np.array([i not in heldout for i in range(len(texts))]),
        )

    def exact(self) -> dict[str, str]:
        return self._named(exact_survivors(self.shards, self.prints, self.ranks))

    def near(self, config: NearDuplicateSettings = DEFAULT, run=in_turn) -> dict[str, str]:
        return self._named(near_duplicates(self.shards, self.ranks, config, run).survivor)

    def _named(self, survivor: np.ndarray) -> dict[str, str]:
        assert not np.isin(survivor[survivor >= 0], np.nonzero(survivor >= 0)[0]).any(), "a survivor was removed itself"
        return {self.ids[i]: self.ids[s] for i, s in enumerate(survivor.tolist()) if s >= 0}


def words(rng: random.Random, count: int, vocabulary: int = 50_000) -> list[str]:
    return [f"w{rng.randrange(vocabulary)}" for _ in range(count)]


def jaccard(a: str, b: str, n: int = 5) -> float:
    left, right = (set(grams.tolist()) for grams in hash_texts([a.encode(), b.encode()], n))
    return len(left & right) / max(1, len(left | right))


def pair_at(rng: random.Random, target: float, length: int = 200) -> tuple[str, str]:
    """Two texts of about the wanted Jaccard similarity: words of the second are replaced one by one."""
    first = words(rng, length)
    second = list(first)
    for place in rng.sample(range(length), length):
        if jaccard(" ".join(first), " ".join(second)) <= target:
            break
        second[place] = f"x{rng.randrange(10**9)}"
    return " ".join(first), " ".join(second)


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
    corpus = Corpus(["a  b\n", "a b", " a\tb\r\n\r\n", "ab", "a b c", "A b", "a\u00a0b", "", ""])
    assert corpus.exact() == {"00000": "00002", "00001": "00002", "00008": "00007"}


@given(st.lists(st.text(st.sampled_from(" \n\tabé"), max_size=8), max_size=12))
@settings(max_examples=200, deadline=None)
def test_exact_survivors_are_those_of_a_plain_grouping(texts):
    if not texts:
        return
    corpus = Corpus(texts)
    groups: dict[str, list[int]] = {}
    for i, text in enumerate(texts):
        groups.setdefault(" ".join(text.split()), []).append(i)
    expected = {}
    for members in groups.values():
        best = min(members, key=lambda i: (-len(texts[i].encode()), corpus.ids[i]))
        expected |= {corpus.ids[i]: corpus.ids[best] for i in members if i != best}
    assert corpus.exact() == expected


def test_equal_fingerprints_alone_do_not_make_a_duplicate():
    corpus = Corpus(["one text", "another text", "one  text"])
    corpus.prints[:] = 7
    assert corpus.exact() == {"00000": "00002"}


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


def test_texts_shorter_than_the_ngram_are_compared_exactly_only():
    texts = ["cat", "dog", "cat", "猫", "犬", "a b c d", "a b c e"]
    corpus = Corpus(texts)
    assert corpus.exact() == {"00002": "00000"} and corpus.near() == {}
    found = near_duplicates(corpus.shards, corpus.ranks, DEFAULT)
    assert found.num_too_short == 7


def test_blank_texts_crash_nothing_and_resemble_nothing():
    corpus = Corpus(["", "   ", "\n", "two words", "other words"])
    assert corpus.near() == {} and set(corpus.exact()) <= {"00000", "00001", "00002"}
    assert near_duplicates([], np.zeros(0, np.int64), DEFAULT).survivor.tolist() == []


def test_text_without_spaces_is_compared_by_its_characters():
    rng = random.Random(2)
    characters = [chr(rng.randrange(0x4E00, 0x9000)) for _ in range(600)]
    text, changed = "".join(characters), "".join(characters[:590]) + "完全不同的十个字吧好"
    unrelated = "".join(chr(rng.randrange(0x4E00, 0x9000)) for _ in range(600))
    assert list(Corpus([text, changed, unrelated]).near()) in (["00000"], ["00001"])


@pytest.mark.parametrize(("bands", "rows"), [(13, 60), (1, 8), (14, 20)])
def test_settings_that_find_too_little_are_refused_with_their_expected_recall(bands, rows):
    with pytest.raises(
        InputError, match=f"{bands} bands of {rows} rows find a pair at the threshold 0.8 with probability 0"
    ):
        NearDuplicateSettings(bands=bands, rows=rows)


@pytest.mark.parametrize(("bands", "rows"), [(14, 8), (60, 13), (6, 8)])
def test_measured_recall_is_that_of_the_formula(bands, rows):
    rng = random.Random(3)
    config = (
        NearDuplicateSettings(threshold=0.7, bands=bands, rows=rows)
        if (bands, rows) == (14, 8)
        else NearDuplicateSettings(bands=bands, rows=rows)
    )
    pairs = [pair_at(rng, config.threshold + 0.03) for _ in range(300)]
    pairs = [pair for pair in pairs if jaccard(*pair) >= config.threshold]
    assert len(pairs) > 200
    found = len(Corpus([text for pair in pairs for text in pair]).near(config))
    expected = sum(config.recall_at(jaccard(*pair)) for pair in pairs)
    variance = sum(config.recall_at(jaccard(*pair)) * (1 - config.recall_at(jaccard(*pair))) for pair in pairs)
    assert abs(found - expected) <= 4 * variance**0.5 + 1, (found, expected, len(pairs))


def near_corpus(seed: int = 4) -> Corpus:
    rng = random.Random(seed)
    texts = []
    for _ in range(40):
        base = words(rng, rng.randint(5, 120))
        texts.append(" ".join(base))
        for _ in range(rng.randint(0, 4)):
            copy = list(base)
            copy[rng.randrange(len(copy))] = "changed"
            texts.append(" ".join(copy))
    return Corpus(texts)


def test_survivors_do_not_depend_on_order_shards_or_workers():
    corpus = near_corpus()
    expected = corpus.near()
    assert len(expected) > 30
    order = list(range(len(corpus.texts)))
    for seed in range(3):
        random.Random(seed).shuffle(order)
        shuffled = Corpus([corpus.texts[i] for i in order], [corpus.ids[i] for i in order])
        assert shuffled.near() == expected
    with ThreadPoolExecutor(4) as pool:
        assert corpus.near(run=lambda f, items: list(pool.map(f, items))) == expected


def test_surviving_texts_do_not_depend_on_how_documents_are_named():
    corpus = near_corpus()
    renamed = Corpus(corpus.texts, [f"z{len(corpus.texts) - i:05}" for i in range(len(corpus.texts))])
    kept = [Counter(t for i, t in zip(c.ids, c.texts, strict=True) if i not in c.near()) for c in (corpus, renamed)]
    assert kept[0] == kept[1]


def test_held_out_text_survives_against_longer_training_text():
    rng = random.Random(5)
    base = words(rng, 80)
    corpus = Corpus([" ".join([*base, "and", "more"]), " ".join(base)], heldout=frozenset({1}))
    assert corpus.near() == {"00000": "00001"}
    assert Corpus(corpus.texts).near() == {"00001": "00000"}


@given(st.lists(st.lists(st.sampled_from("abcde"), max_size=12), min_size=1, max_size=6), st.integers(2, 4))
@settings(max_examples=100, deadline=None)
def test_signatures_are_those_of_a_plain_minhash(texts, n):
    shard = column([" ".join(text) for text in texts])
    factors, shifts = hash_constants(6)
    signatures, num_grams = np.zeros((len(texts), 6), np.uint32), np.zeros(len(texts), np.int64)
    dedup_kernels.minhash(*text_buffers(shard), n, factors, shifts, signatures, num_grams)
    for i, text in enumerate(texts):
        (grams,) = hash_texts([" ".join(text).encode()], n)
        assert num_grams[i] == max(0, len(text) - n + 1)
        for k in range(6):
            hashes = [(int(g) % 2**32 * int(factors[k]) + int(shifts[k])) % 2**32 for g in grams]
            assert signatures[i, k] == min((h ^ h >> 15 for h in hashes), default=2**32 - 1)


@given(st.sets(st.integers(0, 30)), st.sets(st.integers(0, 30)))
@settings(max_examples=200, deadline=None)
def test_jaccard_is_that_of_sets(a, b):
    found = dedup_kernels.jaccard(np.array(sorted(a), np.uint64), np.array(sorted(b), np.uint64))
    assert found == (len(a & b) / len(a | b) if a | b else 0.0)


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
        elif jaccard(*(by_id[name] for name in names)) >= DEFAULT.threshold:
            pairs["near"].append(bool(names & (set(exact) | set(near))))
    assert all(pairs["exact"]) and all(pairs["exact_ws"]) and len(pairs["exact"]) == 625
    assert len(pairs["near"]) > 900 and np.mean(pairs["near"]) >= 0.99
