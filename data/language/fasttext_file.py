"""Reading a compressed fastText classifier (.ftz): the file's bytes become plain arrays, and nothing of it is run.

The format is fastText's own (version 12), little-endian and without alignment: sizes and options of the training; the
vocabulary, words first and labels behind them; the kept buckets of character n-grams; the input matrix, which is
product-quantised (Joulin et al. 2016, "FastText.zip"); the output matrix. Only what language identification needs is
understood: a quantised input, a dense output, hierarchical softmax, no word n-grams. Everything else is refused.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data.errors import InputError

MAGIC, VERSION = 793712314, 12
HIERARCHICAL_SOFTMAX, SUPERVISED = 1, 3
NUM_CENTROIDS = 256
LABEL_PREFIX = "__label__"
END_OF_LINE = b"</s>"
MOST_ELEMENTS = 1 << 28  # of one matrix, and buckets: a damaged size must not ask for all memory
LEAF = -1


@dataclass(frozen=True, kw_only=True)
class FastTextModel:
    """A classifier as arrays.

    words: the vocabulary, one row of `rows` each. buckets: int64[num_kept], ascending: the buckets of character n-grams
    that have a row; bucket i of them has row len(words) + i. rows: float32[len(words) + num_kept, dimension]. labels:
    without their prefix. left, right: int32[2 * num_labels - 1], the children of each node of the label tree or LEAF;
    node i < num_labels is label i, the last one is the root, and node num_labels + i is decided by row i of output:
    float32[num_labels, dimension]. n-grams have least_characters to most_characters characters and fall into
    num_buckets buckets.
    """

    words: tuple[bytes, ...]
    buckets: np.ndarray
    rows: np.ndarray
    labels: tuple[str, ...]
    left: np.ndarray
    right: np.ndarray
    output: np.ndarray
    num_buckets: int
    least_characters: int
    most_characters: int


def read_fasttext(path: Path) -> FastTextModel:
    """Raises InputError if the file cannot be read, is damaged, or is of a kind that this reader does not know."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; install the package again that brings this model") from None
    try:
        return _parse(_Cursor(content))
    except _Damaged as error:
        raise InputError(
            f"{path} is not a compressed fastText classifier that can be used here: {error}; "
            "install the package again that brings this model"
        ) from None


class _Damaged(ValueError):
    pass


class _Cursor:
    """A place in the file's bytes. Reading beyond the end raises _Damaged."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._place = 0

    def array(self, dtype: str, count: int) -> np.ndarray:
        size = np.dtype(dtype).itemsize * count
        if not 0 <= count <= MOST_ELEMENTS or self._place + size > len(self._content):
            raise _Damaged(f"{count} numbers are said to follow byte {self._place} of {len(self._content)}")
        found = np.frombuffer(self._content, dtype, count, self._place)
        self._place += size
        return found

    def number(self, dtype: str) -> int:
        return int(self.array(dtype, 1)[0])

    def string(self) -> bytes:
        end = self._content.find(b"\0", self._place)
        if end < 0:
            raise _Damaged(f"the string at byte {self._place} has no end")
        begin, self._place = self._place, end + 1
        return self._content[begin:end]

    def require_end(self) -> None:
        if self._place != len(self._content):
            raise _Damaged(f"{len(self._content) - self._place} bytes are left over")


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise _Damaged(what)


def _parse(cursor: _Cursor) -> FastTextModel:
    _require(cursor.number("<i4") == MAGIC, "it does not begin as such a file does")
    version = cursor.number("<i4")
    _require(version == VERSION, f"its format has version {version}, not {VERSION}")
    options = cursor.array("<i4", 12)
    cursor.array("<f8", 1)  # the sampling threshold of the training
    dimension, word_ngrams, loss, kind = (int(options[i]) for i in (0, 5, 6, 7))
    num_buckets, least, most = (int(options[i]) for i in (8, 9, 10))
    _require(kind == SUPERVISED and loss == HIERARCHICAL_SOFTMAX, "it was not trained with hierarchical softmax")
    _require(word_ngrams == 1, f"it counts {word_ngrams} words together")
    _require(1 <= dimension <= 4096 and 1 <= least <= most <= 16 and 1 <= num_buckets <= MOST_ELEMENTS, "its options")

    num_entries, num_words, num_labels = (int(size) for size in cursor.array("<i4", 3))
    _, num_kept = (int(size) for size in cursor.array("<i8", 2))
    _require(
        num_words >= 1 and num_labels >= 2 and num_entries == num_words + num_labels, "the sizes of its vocabulary"
    )
    _require(num_kept >= 0, "its n-grams are not pruned")
    words, labels, label_counts = _vocabulary(cursor, num_words, num_labels)
    pairs = cursor.array("<i4", 2 * num_kept).reshape(num_kept, 2)
    order = np.argsort(pairs[:, 0], kind="stable")
    buckets = pairs[order, 0].astype(np.int64)
    _require(
        num_kept == 0 or buckets[0] >= 0 and buckets[-1] < num_buckets and bool((np.diff(buckets) > 0).all()),
        "its kept n-grams",
    )
    _require(bool((np.sort(pairs[:, 1]) == np.arange(num_kept)).all()), "the rows of its kept n-grams")

    _require(cursor.number("?") == 1, "its input matrix is not quantised")
    rows = _quantised(cursor, dimension)
    _require(len(rows) >= len(words) + num_kept, f"{len(rows)} rows for {len(words)} words and {num_kept} n-grams")
    _require(cursor.number("?") == 0, "its output matrix is quantised")
    num_rows, num_columns = cursor.number("<i8"), cursor.number("<i8")
    _require((num_rows, num_columns) == (len(labels), dimension), "the shape of its output matrix")
    output = cursor.array("<f4", num_rows * num_columns).reshape(num_rows, num_columns)
    cursor.require_end()
    _require(bool(np.isfinite(rows).all() and np.isfinite(output).all()), "a number is not finite")
    left, right = _label_tree(label_counts)
    return FastTextModel(
        words=words,
        buckets=buckets,
        rows=np.concatenate([rows[: len(words)], rows[len(words) + pairs[order, 1]]]),
        labels=labels,
        left=left,
        right=right,
        output=output,
        num_buckets=num_buckets,
        least_characters=least,
        most_characters=most,
    )


def _vocabulary(
    cursor: _Cursor, num_words: int, num_labels: int
) -> tuple[tuple[bytes, ...], tuple[str, ...], list[int]]:
    """(words, labels without prefix, number of training lines of each label)."""
    words, labels, counts = [], [], []
    for place in range(num_words + num_labels):
        entry, count, is_label = cursor.string(), cursor.number("<i8"), cursor.number("i1")
        _require(is_label == (place >= num_words) and count >= 0, f"entry {place} of its vocabulary")
        if is_label:
            labels.append(entry.decode(errors="replace").removeprefix(LABEL_PREFIX))
            counts.append(count)
        else:
            words.append(entry)
    _require(len(set(words)) == num_words and len(set(labels)) == num_labels, "its vocabulary names something twice")
    _require(END_OF_LINE in words, "its vocabulary has no end of line")
    return tuple(words), tuple(labels), counts


def _quantised(cursor: _Cursor, dimension: int) -> np.ndarray:
    """float32[num_rows, dimension] of a product-quantised matrix: a row is a norm times the centroids of its parts."""
    has_norms = cursor.number("?")
    num_rows, num_columns, num_codes = cursor.number("<i8"), cursor.number("<i8"), cursor.number("<i4")
    _require(num_columns == dimension and 0 < num_rows * num_columns <= MOST_ELEMENTS, "the shape of its input matrix")
    codes = cursor.array("u1", num_codes)
    rows = _decoded(cursor, codes, num_rows, dimension)
    if has_norms:
        rows *= _decoded(cursor, cursor.array("u1", num_rows), num_rows, 1)
    return rows


def _decoded(cursor: _Cursor, codes: np.ndarray, num_rows: int, dimension: int) -> np.ndarray:
    """float32[num_rows, dimension]: reads a quantiser, and replaces the codes by what they stand for."""
    stored, num_parts, part, last_part = (int(size) for size in cursor.array("<i4", 4))
    _require(
        stored == dimension
        and num_parts >= 1
        and 1 <= last_part <= part
        and (num_parts - 1) * part + last_part == dimension
        and len(codes) == num_rows * num_parts,
        "the shape of a quantiser",
    )
    centroids = cursor.array("<f4", dimension * NUM_CENTROIDS)
    codes = codes.reshape(num_rows, num_parts)
    rows = np.empty((num_rows, dimension), np.float32)
    for index in range(num_parts):
        size = part if index < num_parts - 1 else last_part
        begin = index * part
        table = centroids[begin * NUM_CENTROIDS : begin * NUM_CENTROIDS + size * NUM_CENTROIDS]
        rows[:, begin : begin + size] = table.reshape(NUM_CENTROIDS, size)[codes[:, index]]
    return rows


def _label_tree(counts: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """(left, right): int32[2 * num_labels - 1]. The Huffman tree of the labels, which stand in order of falling counts,
    built as in word2vec: of a label and a joint node that count the same, the joint node comes first."""
    num_labels = len(counts)
    _require(
        all(a >= b for a, b in zip(counts, counts[1:], strict=False)), "its labels are not in order of their counts"
    )
    left, right = (np.full(2 * num_labels - 1, LEAF, np.int32) for _ in range(2))
    weights = [*counts, *[10**15] * (num_labels - 1)]
    leaf, joint = num_labels - 1, num_labels
    for node in range(num_labels, 2 * num_labels - 1):
        chosen = []
        for _ in range(2):
            if leaf >= 0 and weights[leaf] < weights[joint]:
                chosen.append(leaf)
                leaf -= 1
            else:
                chosen.append(joint)
                joint += 1
        left[node], right[node] = chosen
        weights[node] = weights[chosen[0]] + weights[chosen[1]]
    return left, right
