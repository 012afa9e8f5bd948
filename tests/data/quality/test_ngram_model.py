"""The n-gram model against a plain-Python modified Kneser-Ney, and what it is for: clean text costs less than text in
disorder, in another language or with noise."""

import math
import random
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.errors import InputError
from data.quality.ngram_kernels import _find, _place_shift, fill, mixed
from data.quality.ngram_model import KIND, SPELLING_SYMBOLS, NgramModel
from data.quality.ngram_training import HELD_OUT_ONE_IN, LEAST_TOKENS, NgramSettings, _discounted, train_ngrams
from data.text.model_file import write_model
from data.text.text_sample import text_hashes
from tests.data.text.test_model_tokens import reference_tokens

PROSE = Path(__file__).parents[4] / "shared" / "data" / "prose"
UNKNOWN, BEGIN = "unknown word", "beginning"


def column(texts: list[str]) -> pa.LargeStringArray:
    return pa.array(texts, pa.large_string())


def tales(count: int, seed: int = 0) -> list[str]:
    """Texts of a small grammar, whose counts fall off as those of a language do."""
    drawn = random.Random(seed)
    names = [f"{a}{b}" for a in ("ann", "bor", "cel", "dor") for b in ("a", "is", "ek", "ovan", "ys")]
    verbs = ["saw", "met", "heard", "found", "lost", "drew", "sold"]
    things = ["river", "house", "letter", "horse", "lamp", "garden", "map", "7 coins", "Straße", "猫"]

    def pick(words: list[str]) -> str:
        return words[min(int(drawn.expovariate(0.4)), len(words) - 1)]

    def sentence() -> str:
        odd = f" near {''.join(drawn.choices('abcdefgh', k=5))}" if drawn.random() < 0.1 else ""
        return f"{pick(names).capitalize()} {pick(verbs)} the {pick(things)}{odd}."

    return [" ".join(sentence() for _ in range(drawn.randint(1, 8))) for _ in range(count)]


class Reference:
    """Modified Kneser-Ney over token strings, with dictionaries."""

    def __init__(self, texts: list[str], settings: NgramSettings) -> None:
        documents = [reference_tokens(text) for text in texts]
        often = Counter(token for document in documents for token in document)
        self.words = {word for word, count in often.items() if count >= settings.least_word_count}
        self.triples: Counter[tuple[str, str, str]] = Counter()
        for document in documents:
            padded = [BEGIN, BEGIN, *(self.known(token) for token in document)]
            self.triples.update(zip(padded, padded[1:], padded[2:], strict=False))
        self.raw_pairs: Counter[tuple[str, str]] = Counter()
        self.pairs: Counter[tuple[str, str]] = Counter()
        for (_, b, c), count in self.triples.items():
            self.raw_pairs[b, c] += count
            self.pairs[b, c] += 1
        self.singles = Counter(c for _, c in self.pairs)
        self.vocabulary = [*self.words, UNKNOWN, BEGIN]
        following = Counter({key: count for key, count in self.triples.items() if key[:2] in self.raw_pairs})
        self.discounts = [self.discounts_of(counts) for counts in (self.singles, self.pairs, following)]
        self.pair_totals, self.triple_totals = Counter(), Counter()
        self.pair_mass, self.triple_mass = defaultdict(float), defaultdict(float)
        for (b, c), count in self.pairs.items():
            self.pair_totals[b] += count
            self.pair_mass[b] += self.raised(1, count) if self.raw_pairs[b, c] >= 2 else 0
        for (a, b, _), count in self.triples.items():
            self.triple_totals[a, b] += count
            self.triple_mass[a, b] += self.raised(2, count) if count >= 2 and (a, b) in self.raw_pairs else 0
        spelled = {token for document in documents for token in document if token not in self.words}
        self.bytes = Counter()
        for token in spelled:
            symbols = [256, *token.encode(), 256]
            self.bytes.update(zip(symbols, symbols[1:], strict=False))

    def known(self, token: str) -> str:
        return token if token in self.words else UNKNOWN

    @staticmethod
    def discounts_of(counts: Counter) -> list[float]:
        n = Counter(counts.values())
        if not all(n[k] for k in (1, 2, 3, 4)):
            return [0.5, 0.5, 0.5]
        y = n[1] / (n[1] + 2 * n[2])
        found = [1 - 2 * y * n[2] / n[1], 2 - 3 * y * n[3] / n[2], 3 - 4 * y * n[4] / n[3]]
        return [min(max(d, 0.05), most) for d, most in zip(found, (0.95, 1.9, 2.85), strict=True)]

    def raised(self, order: int, count: int) -> float:
        return count - self.discounts[order][min(count, 3) - 1] if count else 0

    def single(self, c: str) -> float:
        total = sum(self.singles.values())
        left = 1 - sum(self.raised(0, count) for count in self.singles.values()) / total
        return self.raised(0, self.singles[c]) / total + left / len(self.vocabulary)

    def pair(self, b: str, c: str) -> float:
        if not self.pair_totals[b]:
            return self.single(c)
        mass = self.raised(1, self.pairs[b, c]) if self.raw_pairs[b, c] >= 2 else 0
        return (mass + (self.pair_totals[b] - self.pair_mass[b]) * self.single(c)) / self.pair_totals[b]

    def triple(self, a: str, b: str, c: str) -> float:
        if self.raw_pairs[a, b] < 2:
            return self.pair(b, c)
        mass = self.raised(2, self.triples[a, b, c]) if self.triples[a, b, c] >= 2 else 0
        return (mass + (self.triple_totals[a, b] - self.triple_mass[a, b]) * self.pair(b, c)) / self.triple_totals[a, b]

    def spelled(self, token: str) -> float:
        bits = 0.0
        symbols = [256, *token.encode(), 256]
        behind, ahead = Counter(), Counter()
        for (before, symbol), count in self.bytes.items():
            behind[before] += count
            ahead[symbol] += count
        for before, symbol in zip(symbols, symbols[1:], strict=False):
            anywhere = (ahead[symbol] + 1) / (sum(self.bytes.values()) + 257)
            bits -= math.log2((self.bytes[before, symbol] + 16 * anywhere) / (behind[before] + 16))
        return bits

    def bits(self, text: str) -> float:
        a, b, bits = BEGIN, BEGIN, 0.0
        for token in reference_tokens(text):
            c = self.known(token)
            bits += self.spelled(token) if c == UNKNOWN else 0
            bits -= math.log2(self.triple(a, b, c))
            a, b = b, c
        return bits


SETTINGS = NgramSettings(least_word_count=2)


@pytest.fixture(scope="module")
def trained() -> tuple[NgramModel, Reference]:
    texts = tales(400)
    model = train_ngrams(column(texts), SETTINGS)
    held = text_hashes(column(texts)) % np.uint64(HELD_OUT_ONE_IN) == 0
    assert 0 < held.sum() < 60 and model.report["held_out"] == held.sum()
    return model, Reference([text for text, out in zip(texts, held, strict=True) if not out], SETTINGS)


def test_costs_are_those_of_the_reference(trained: tuple[NgramModel, Reference]) -> None:
    model, reference = trained
    odd = [
        "",
        " ",
        "x",
        "the the the",
        "Anna saw the river.",
        "river the saw Anna",
        "猫猫 Straße 12 34!",
        "\u2028é\u00a0b",
    ]
    texts = tales(60, seed=9) + odd + [" ".join(tales(60, seed=3))]
    found = model.bits_per_byte(column(texts))
    assert found.dtype == np.float32
    for text, bits in zip(texts, found, strict=True):
        num_tokens = len(reference_tokens(text))
        assert bits * len(text.encode()) == pytest.approx(reference.bits(text), abs=0.01 + 0.004 * num_tokens), text


@given(st.lists(st.sampled_from(["Anna ", "saw ", "the ", "river", ". ", "x", "猫", "é", "7", "\n"]), max_size=12))
@settings(max_examples=60, deadline=None)
def test_costs_of_any_text_are_those_of_the_reference(trained: tuple[NgramModel, Reference], pieces: list[str]) -> None:
    model, reference = trained
    text = "".join(pieces)
    num_bytes = len(text.encode())
    assert float(model.bits_per_byte(column([text]))[0]) * num_bytes == pytest.approx(reference.bits(text), abs=0.2)


def test_each_distribution_sums_to_one(trained: tuple[NgramModel, Reference]) -> None:
    _, reference = trained
    assert sum(map(reference.single, reference.vocabulary)) == pytest.approx(1)
    contexts = list(reference.raw_pairs)[::7] + [(BEGIN, BEGIN), (UNKNOWN, "never")]
    for a, b in contexts:
        assert sum(reference.pair(b, c) for c in reference.vocabulary) == pytest.approx(1)
        assert sum(reference.triple(a, b, c) for c in reference.vocabulary) == pytest.approx(1)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=200))
@settings(max_examples=100, deadline=None)
def test_discounts_are_those_of_the_paper(counts: list[int]) -> None:
    discounts = Reference.discounts_of(Counter(dict(enumerate(counts))))
    expected = [count - discounts[min(count, 3) - 1] for count in counts]
    assert _discounted(np.array(counts)) == pytest.approx(expected)


@given(st.sets(st.integers(0, 2**63 - 1), max_size=40), st.sets(st.integers(0, 2**63 - 1), max_size=20))
@settings(max_examples=50, deadline=None)
def test_a_table_gives_what_was_put_in(there: set[int], others: set[int]) -> None:
    keys = np.array(sorted(there), np.uint64)
    table = np.zeros(64, np.uint64)
    fill(table, keys, np.arange(len(keys)), 100 + np.arange(len(keys)))
    shift = _place_shift(table)
    for key in [*there, *others - there]:
        h = np.uint64(mixed(np.uint64(key)))
        entry = int(_find(table, shift, h, table[int(h) >> int(shift)]))
        expected = sorted(there).index(key) if key in there else None
        assert (entry == 0) == (expected is None)
        if expected is not None:
            assert (entry >> 16 & 0xFFFF, entry & 0xFFFF) == (expected, 100 + expected)


def test_any_order_and_any_parts_give_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = tales(250)
    train_ngrams(column(texts), SETTINGS).save(tmp_path / "a")
    monkeypatch.setattr("data.quality.ngram_training.COUNTED_BYTES", 700)
    train_ngrams(column(texts[::-1]), SETTINGS).save(tmp_path / "b")
    train_ngrams(column(texts + texts[:40]), SETTINGS).save(tmp_path / "c")
    a, b, c = ((tmp_path / name).read_bytes() for name in "abc")
    assert a == b != c
    model = NgramModel.load(tmp_path / "a")
    whole = column(texts)
    assert (model.bits_per_byte(whole)[20:30] == model.bits_per_byte(whole.slice(20, 10))).all()
    assert len(model.bits_per_byte(column([]))) == 0
    assert model.report["texts"] + model.report["held_out"] == 250


def test_rare_words_are_spelled_and_no_more_words_are_known_than_allowed() -> None:
    texts = column(tales(250))
    few = train_ngrams(texts, NgramSettings(max_words=5))
    assert few.report["words"] == 5 and len(few.words) == 7
    assert few.report["held_out_bits_per_byte"] > train_ngrams(texts, SETTINGS).report["held_out_bits_per_byte"]


def test_too_little_text_and_settings_without_sense_are_refused() -> None:
    with pytest.raises(InputError, match=f"{LEAST_TOKENS} at least"):
        train_ngrams(column(["a b c"] * 100), SETTINGS)
    with pytest.raises(InputError, match=f"{LEAST_TOKENS} at least"):
        train_ngrams(column([]), SETTINGS)
    for wrong in ({"least_word_count": 0}, {"max_words": 0}, {"max_words": 1 << 21}):
        with pytest.raises(InputError, match="choose"):
            NgramSettings(**wrong)


def test_tables_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    table = np.zeros(4, np.uint64)
    whole = {
        "spelling": np.zeros(SPELLING_SYMBOLS**2, np.uint16), "words": np.zeros(2, np.uint32),
        "vocabulary": table, "pairs": table, "triples": table,
    }  # fmt: skip
    write_model(tmp_path / "whole", KIND, {}, whole)
    NgramModel.load(tmp_path / "whole")
    cases = [
        {"spelling": np.zeros(9, np.uint16)}, {"words": np.zeros(1, np.uint32)}, {"pairs": table[:3]},
        {"triples": table + np.uint64(1)}, {"vocabulary": table[:0]}, {"vocabulary": np.array([0, 2], np.uint64)},
    ]  # fmt: skip
    for changed in cases:
        write_model(tmp_path / "odd", KIND, {}, whole | changed)
        with pytest.raises(InputError, match="train it anew"):
            NgramModel.load(tmp_path / "odd")
    with pytest.raises(InputError, match="stages.curate.train perplexity"):
        NgramModel.load(tmp_path / "missing")


def test_clean_prose_costs_less_than_text_in_disorder_noise_or_another_language() -> None:
    if not PROSE.exists():
        pytest.skip("the prose is not here")
    table = pq.read_table(PROSE / "openstax.parquet")
    pieces = [text[i : i + 3000] for text in table["text"].to_pylist() for i in range(0, len(text), 3000)]
    model = train_ngrams(column([piece for i, piece in enumerate(pieces) if i % 4]), NgramSettings())
    clean = [piece for piece in pieces[::80] if len(piece) > 1500]
    drawn = random.Random(0)

    def shuffled(text: str) -> str:
        words = text.split()
        drawn.shuffle(words)
        return " ".join(words)

    def noisy(text: str) -> str:
        return "".join(drawn.choice("abcdefghijklmnopqrstuvwxyz ") if drawn.random() < 0.1 else c for c in text)

    foreign = (
        "Der Fluss war breit und langsam, und niemand im Dorf erinnerte sich an eine Zeit, in der es anders war.",
        "Река была широкой и медленной, и никто в деревне не помнил, чтобы когда-нибудь было иначе.",
        "川は広くてゆっくりと流れ、村の誰もそうでなかった時代を覚えていなかった。",
    )
    costs = model.bits_per_byte(column(clean))
    assert (costs < model.bits_per_byte(column([shuffled(text) for text in clean]))).all()
    assert costs.max() < model.bits_per_byte(column([noisy(text) for text in clean])).min()
    assert costs.max() < model.bits_per_byte(column(list(foreign))).min()
    bound = dict(model.report["held_out_quantiles"])[0.9]
    assert 0.8 < (costs <= bound).mean() < 1, "what was held out tells of other texts of the kind"
