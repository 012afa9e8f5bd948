"""Training an n-gram model (data/quality/ngram_model.py): counts of triples of tokens, and from them interpolated
modified Kneser-Ney (Chen and Goodman 1998, section 3).

Pairs and triples that occur once are not kept; what they would have had goes to the shorter context, so each
distribution still sums to one. A twentieth of the texts, chosen by their hash, is held out and measured. The same texts
in any order give the same model.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from data.errors import InputError
from data.quality.ngram_model import SPELLING_SYMBOLS, NgramModel
from data.reading.tables import text_buffers
from data.text.text_sample import text_hashes

HELD_OUT_ONE_IN = 20
LEAST_TOKENS = 1000
LEAST_COUNT = 2  # of a kept pair or triple
FIRST_WORD_ID = 2  # behind the ids of what is unknown and of the beginning
SPELLING_PRIOR = 16.0  # how many bytes behind a byte the distribution of all bytes counts for
COUNTED_BYTES = 32 << 20  # of text at a time
QUANTILES = (0.5, 0.9, 0.99)

Counts = tuple[np.ndarray, np.ndarray]  # distinct keys, ascending: uint64[n]; how often: int64[n]


@dataclass(frozen=True, kw_only=True)
class NgramSettings:
    """A token that occurs less often than least_word_count is unknown, and there are at most max_words known ones."""

    least_word_count: int = 2
    max_words: int = 500_000

    def __post_init__(self) -> None:
        if self.least_word_count < 1 or not 1 <= self.max_words <= 2_000_000:
            raise InputError(
                f"least word count {self.least_word_count}, at most {self.max_words} words: "
                "choose at least 1, and 1 to 2,000,000"
            )


def train_ngrams(texts: pa.LargeStringArray, settings: NgramSettings) -> NgramModel:
    """Raises InputError if there is too little text."""
    is_held = text_hashes(texts) % np.uint64(HELD_OUT_ONE_IN) == 0
    training, held = (texts.filter(pa.array(mask)) for mask in (~is_held, is_held))
    parts = _parts(training)
    counts: Counts = (np.zeros(0, np.uint64), np.zeros(0, np.int64))
    for part in parts:
        counts = _merged(counts, _distinct(_hashes(part)[0]))
    hashes, often = counts
    num_tokens = int(often.sum())
    if num_tokens < LEAST_TOKENS:
        raise InputError(f"{num_tokens} tokens are too few to train on; give {LEAST_TOKENS} at least")
    order = np.lexsort((hashes, -often))[: settings.max_words]
    words = hashes[order[often[order] >= settings.least_word_count]]
    model = _estimate(words, len(hashes) - len(words), parts)
    report = {"texts": len(training), "tokens": num_tokens, "words": len(words)}
    report |= {f"kept_{name}": int((getattr(model, name) != 0).sum()) for name in ("pairs", "triples")}
    return NgramModel(**{**vars(model), "report": report | _measured(model, held)})


def _measured(model: NgramModel, held: pa.LargeStringArray) -> dict[str, Any]:
    """Of texts that were held out: their number, the bits per byte of them all, and by how many bits per byte the given
    shares of them are bounded."""
    if not len(held):
        return {"held_out": 0, "held_out_bits_per_byte": 0.0, "held_out_quantiles": []}
    each, num_bytes = model.bits_per_byte(held).astype(np.float64), np.diff(text_buffers(held)[1])
    return {
        "held_out": len(held),
        "held_out_bits_per_byte": round(float((each * num_bytes).sum() / max(1, num_bytes.sum())), 4),
        "held_out_quantiles": [[share, round(float(np.quantile(each, share)), 4)] for share in QUANTILES],
    }


def _parts(texts: pa.LargeStringArray) -> list[pa.LargeStringArray]:
    """Slices of about COUNTED_BYTES."""
    _, offsets = text_buffers(texts)
    steps = (offsets[:-1] - offsets[0]) // COUNTED_BYTES
    bounds = [*np.flatnonzero(np.diff(steps, prepend=-1)).tolist(), len(texts)]
    return [texts.slice(a, b - a) for a, b in zip(bounds, bounds[1:], strict=False)]


def _hashes(texts: pa.LargeStringArray) -> tuple[np.ndarray, np.ndarray]:
    """(uint64[num_tokens], int64[n]: where each text ends in them)."""
    from data.quality.ngram_kernels import all_hashes

    values, offsets = text_buffers(texts)
    out, ends = np.empty(int(offsets[-1] - offsets[0]) + 1, np.uint64), np.empty(len(texts), np.int64)
    return out[: all_hashes(values, offsets, out, ends)], ends


def _distinct(keys: np.ndarray) -> Counts:
    found, counts = np.unique(keys, return_counts=True)
    return found, counts


def _merged(a: Counts, b: Counts) -> Counts:
    keys, back = np.unique(np.concatenate([a[0], b[0]]), return_inverse=True)
    counts = np.zeros(len(keys), np.int64)
    np.add.at(counts, back, np.concatenate([a[1], b[1]]))
    return keys, counts


def _table(num_entries: int) -> np.ndarray:
    """Room for a table that is at most half full."""
    return np.zeros(max(2, 1 << (2 * num_entries).bit_length()), np.uint64)


def _estimate(word_hashes: np.ndarray, num_rare: int, parts: list[pa.LargeStringArray]) -> NgramModel:
    """word_hashes: of the words of the vocabulary; num_rare: how many words are outside it."""
    from data.quality.ngram_kernels import ID_BITS, fill, fill_vocabulary

    vocabulary = _table(len(word_hashes))
    fill_vocabulary(vocabulary, word_hashes, FIRST_WORD_ID)
    num_words = len(word_hashes) + FIRST_WORD_ID
    shift, last_mask, pair_mask = (np.uint64(bits) for bits in (ID_BITS, (1 << ID_BITS) - 1, (1 << 2 * ID_BITS) - 1))

    triple_keys, triple_counts = _count_triples(parts, vocabulary)
    pair_keys, pair_counts = _distinct(triple_keys & pair_mask)  # how many tokens stand before a pair
    pairs_of_triples = np.searchsorted(pair_keys, triple_keys & pair_mask)
    often = np.bincount(pairs_of_triples, triple_counts, minlength=len(pair_keys))
    last_words = (pair_keys & last_mask).astype(np.int64)

    single_mass = _discounted(np.bincount(last_words, minlength=num_words)) / len(pair_keys)
    singles = single_mass + (1 - single_mass.sum()) / num_words
    kept = often >= LEAST_COUNT
    pair_masses, word_fallbacks = _masses(pair_counts, kept, (pair_keys >> shift).astype(np.int64), num_words)
    pairs = pair_masses + word_fallbacks[(pair_keys >> shift).astype(np.int64)] * singles[last_words]
    words = (_costs(singles) << 16 | _costs(word_fallbacks)).astype(np.uint32)

    # The two pairs of a kept triple occur as often as it does at least, so they are kept. At the beginning of a text no
    # pair stands before a token: the first tokens of texts are told by pairs alone.
    first_pairs = np.minimum(np.searchsorted(pair_keys, triple_keys >> shift), len(pair_keys) - 1)
    follows = pair_keys[first_pairs] == triple_keys >> shift
    triple_keys, triple_counts, pairs_of_triples, first_pairs = (
        column[follows] for column in (triple_keys, triple_counts, pairs_of_triples, first_pairs)
    )
    kept_triples = triple_counts >= LEAST_COUNT
    triple_masses, pair_fallbacks = _masses(triple_counts, kept_triples, first_pairs, len(pair_keys))
    triples = triple_masses + pair_fallbacks[first_pairs] * pairs[pairs_of_triples]

    pair_table, triple_table = _table(int(kept.sum())), _table(int(kept_triples.sum()))
    fill(pair_table, pair_keys[kept], _costs(pairs[kept]), _costs(pair_fallbacks[kept]))
    fill(triple_table, triple_keys[kept_triples], _costs(triples[kept_triples]), np.zeros(len(triples), np.int64))
    return NgramModel(
        vocabulary=vocabulary,
        spelling=_spelling(parts, vocabulary, num_rare),
        words=words,
        pairs=pair_table,
        triples=triple_table,
        report={},
    )


def _masses(counts: np.ndarray, kept: np.ndarray, contexts: np.ndarray, num_contexts: int) -> Counts:
    """(float64[n]: the discounted share that each count has of its context, 0 where it is not kept;
    float64[num_contexts]: what is left in each context for the shorter one)."""
    totals = np.bincount(contexts, counts, minlength=num_contexts)
    masses = np.where(kept, _discounted(counts), 0) / totals[contexts]
    return masses, 1 - np.bincount(contexts, masses, minlength=num_contexts)


def _count_triples(parts: list[pa.LargeStringArray], vocabulary: np.ndarray) -> Counts:
    """Each token with the two before it: uint64 keys of three ids. Before a text stand two BEGIN."""
    from data.quality.ngram_kernels import BEGIN, ID_BITS, ids_of

    counts: Counts = (np.zeros(0, np.uint64), np.zeros(0, np.int64))
    shift = np.uint64(ID_BITS)
    for part in parts:
        hashes, ends = _hashes(part)
        ids = np.empty(len(hashes), np.int64)
        ids_of(hashes, vocabulary, ids)
        begins = np.concatenate([[0], ends[:-1]])
        one_before, two_before = (np.concatenate([np.full(k, BEGIN), ids[:-k]])[: len(ids)] for k in (1, 2))
        one_before[begins[begins < ends]] = BEGIN
        two_before[begins[begins < ends]] = BEGIN
        two_before[(begins + 1)[begins + 1 < ends]] = BEGIN
        keys = (two_before.astype(np.uint64) << shift | one_before.astype(np.uint64)) << shift | ids.astype(np.uint64)
        counts = _merged(counts, _distinct(keys))
    return counts


def _discounted(counts: np.ndarray) -> np.ndarray:
    """float64[n]: counts less the discounts of modified Kneser-Ney, which follow from how many counts are 1, 2, 3, 4
    (Chen and Goodman 1998, equation 17). Where there are too few of these to tell, a half is taken off."""
    ones, twos, threes, fours = (int((counts == k).sum()) for k in (1, 2, 3, 4))
    discounts = np.array([0, 0.5, 0.5, 0.5])
    if ones and twos and threes and fours:
        share = ones / (ones + 2 * twos)
        found = [1 - 2 * share * twos / ones, 2 - 3 * share * threes / twos, 3 - 4 * share * fours / threes]
        discounts[1:] = np.clip(found, 0.05, [0.95, 1.9, 2.85])
    return counts - discounts[np.minimum(counts, 3)]


def _costs(probability: np.ndarray) -> np.ndarray:
    """int64[n]: -log2 in units of the kernels."""
    from data.quality.ngram_kernels import COST_UNIT, MOST_COST

    bits = -np.log2(np.clip(probability, 1e-30, 1))
    return np.minimum(np.rint(bits * COST_UNIT), MOST_COST).astype(np.int64)


def _spelling(parts: list[pa.LargeStringArray], vocabulary: np.ndarray, num_rare: int) -> np.ndarray:
    """Flat uint16[257 * 257]: the cost of a byte, or of the end, behind a byte, or the beginning, of a rare word."""
    from data.quality.ngram_kernels import spell_unknown

    counts = np.zeros((SPELLING_SYMBOLS, SPELLING_SYMBOLS), np.int64)
    seen = _table(num_rare)
    for part in parts:
        spell_unknown(*text_buffers(part), vocabulary, seen, counts)
    anywhere = (counts.sum(axis=0) + 1) / (counts.sum() + SPELLING_SYMBOLS)
    smoothed = (counts + SPELLING_PRIOR * anywhere) / (counts.sum(axis=1, keepdims=True) + SPELLING_PRIOR)
    return _costs(smoothed).astype(np.uint16).reshape(-1)
