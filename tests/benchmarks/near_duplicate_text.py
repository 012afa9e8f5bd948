"""A corpus with planted duplicates, and the truth about them: Parquet files (id, text) and truth.jsonl.

| share | what                                                                 | Jaccard of word 5-grams  |
|-------|----------------------------------------------------------------------|--------------------------|
| 62 %  | originals: random sentences of this Python environment's documentation | near 0                 |
| 28 %  | words changed, left out or put in, here and there or in one place    | 0.3 to 0.97, as measured |
| 7 %   | exact copies                                                         | 1                        |
| 3 %   | copies with other white space                                        | 1                        |

Words are runs of letters and digits in lower case, and a run of digits counts as 0. A document has 25 sentences or
2.5 kB on average. Everything follows from the seed and the sentences.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from data.reading.documents import Document
from data.reading.python_environment import ALL_PACKAGES, PythonEnvironment

TRUTH = "truth.jsonl"
NEAR, EXACT, SPACES = "near", "exact", "spaces"
SHARES = {NEAR: 0.28, EXACT: 0.07, SPACES: 0.03}
NGRAM_WORDS = 5
SOURCE_BYTES = 25_000_000  # of the source of packages, whose docstrings give most of the sentences
LONGEST_SENTENCE_WORDS, SHORTEST_SENTENCE_WORDS = 60, 5
NUM_FILES = 4

NUMBER, WORD = re.compile(r"\d+"), re.compile(r"[^\W_]+")
SENTENCE_END = re.compile(r"(?<=[.!?:])\s+|\n\s*\n")


@dataclass(frozen=True, kw_only=True)
class Copy:
    """A planted duplicate. jaccard: of its word 5-grams and those of the original."""

    id: str
    original: str
    kind: str
    jaccard: float


@dataclass(frozen=True)
class Planted:
    """ids and texts in the order in which they are written."""

    ids: tuple[str, ...]
    texts: tuple[str, ...]
    truth: tuple[Copy, ...]


def shingles(text: str) -> set[tuple[str, ...]]:
    """The word 5-grams of a text."""
    words = WORD.findall(NUMBER.sub("0", text.lower()))
    return set(zip(*(words[start:] for start in range(NGRAM_WORDS)), strict=False))


def jaccard(left: set, right: set) -> float:
    """1 for two empty sets."""
    return len(left & right) / len(left | right) if left or right else 1.0


def sentences(source_bytes: int = SOURCE_BYTES) -> list[str]:
    """Distinct sentences of this environment's documentation, in an order that depends on nothing else.

    source_bytes: how much source of packages is parsed for its docstrings; 0: no source at all is.
    """
    environment = PythonEnvironment(packages=(ALL_PACKAGES,), package_source_bytes=source_bytes or None)
    found: dict[str, None] = {}
    for domain in ("reference", "readme") if source_bytes else ("readme",):
        for record in environment.read(domain, Counter(), lambda done, total: None):
            if isinstance(record, Document):
                found.update(dict.fromkeys(_sentences(record.text)))
    return list(found)


def _sentences(text: str) -> Iterator[str]:
    for sentence in SENTENCE_END.split(text):
        words = sentence.split()
        if SHORTEST_SENTENCE_WORDS <= len(words) <= LONGEST_SENTENCE_WORDS:
            yield " ".join(words)


def plant(pool: Sequence[str], documents: int, seed: int) -> Planted:
    """`documents` texts of sentences of `pool`."""
    random = Random(seed)
    counts = {kind: int(share * documents) for kind, share in SHARES.items()}
    texts = [_document(pool, random) for _ in range(documents - sum(counts.values()))]
    originals = len(texts)
    copies: list[tuple[int, str, float]] = []  # original, kind, jaccard
    for kind, count in counts.items():
        for _ in range(count):
            original = random.randrange(originals)
            text, similarity = _copy(texts[original], kind, pool, random)
            texts.append(text)
            copies.append((original, kind, similarity))
    places = list(range(documents))
    random.shuffle(places)
    ids = [f"d{place:07d}" for place in places]
    truth = tuple(
        Copy(id=ids[originals + i], original=ids[original], kind=kind, jaccard=similarity)
        for i, (original, kind, similarity) in enumerate(copies)
    )
    order = sorted(range(documents), key=places.__getitem__)
    return Planted(tuple(ids[i] for i in order), tuple(texts[i] for i in order), truth)


def _document(pool: Sequence[str], random: Random) -> str:
    count = min(200, max(2, round(random.lognormvariate(3.0, 0.7))))
    parts = []
    for _ in range(count):
        parts += [random.choice(pool), random.choice((" ", " ", " ", "\n\n"))]
    return "".join(parts[:-1])


def _copy(text: str, kind: str, pool: Sequence[str], random: Random) -> tuple[str, float]:
    """A copy, and its similarity to the text."""
    if kind == EXACT:
        return text, 1.0
    if kind == SPACES:
        return re.sub(r" ", lambda _: random.choice(("  ", "\n", " ", "\t")), text) + "\n", 1.0
    grams = shingles(text)
    target = random.uniform(0.3, 0.97)
    edited = _edit(text, max(1, round(len(grams) * (1 - target) / (1 + target))), pool, random)
    return edited, jaccard(grams, shingles(edited))


def _edit(text: str, lost: int, pool: Sequence[str], random: Random) -> str:
    """The text with about `lost` of its word 5-grams replaced by as many others."""
    words = text.split(" ")
    if random.random() < 0.5:
        length = min(len(words), max(1, lost - NGRAM_WORDS + 1))
        start = random.randrange(len(words) - length + 1)
        return " ".join([*words[:start], *_words(length, pool, random), *words[start + length :]])
    places = list(range(len(words)))
    random.shuffle(places)
    gone: set[int] = set()  # first words of 5-grams that an edit touches
    while len(gone) < lost and places:
        place = places.pop()
        gone.update(range(max(0, place - NGRAM_WORDS + 1), place + 1))
        change = random.random()
        if change < 0.6:
            (words[place],) = _words(1, pool, random)
        elif change < 0.8:
            words[place] = ""
        else:
            words[place] += " " + _words(1, pool, random)[0]
    return " ".join(word for word in words if word)


def _words(count: int, pool: Sequence[str], random: Random) -> list[str]:
    found: list[str] = []
    while len(found) < count:
        found += random.choice(pool).split(" ")
        random.shuffle(found)  # so that no 5-gram of the pool is among them
    return found[:count]


def write(planted: Planted, folder: Path) -> None:
    """Into NUM_FILES Parquet files and TRUTH; `folder` must not exist."""
    folder.mkdir(parents=True)
    size = -(-len(planted.ids) // NUM_FILES)
    for number, start in enumerate(range(0, len(planted.ids), size)):
        columns = {
            "id": pa.array(planted.ids[start : start + size], pa.string()),
            "text": pa.array(planted.texts[start : start + size], pa.large_string()),
        }
        table = pa.table(columns)
        pq.write_table(table, folder / f"part-{number:03d}.parquet", compression="zstd", row_group_size=5000)
    write_truth(planted.truth, folder)


def write_truth(truth: Iterable[Copy], folder: Path) -> None:
    lines = (json.dumps(asdict(copy)) for copy in truth)
    (folder / TRUTH).write_text("".join(f"{line}\n" for line in lines))


def read_texts(folder: Path, wanted: set[str] | None = None) -> dict[str, str]:
    """id -> text of all documents of a folder, or of some of them, in the order of the documents."""
    found: dict[str, str] = {}
    for path in sorted(folder.glob("*.parquet")):
        table = pq.read_table(path, columns=["id", "text"])
        if wanted is not None:
            table = table.filter(pc.is_in(table["id"], pa.array(sorted(wanted), pa.string())))
        found.update(zip(table["id"].to_pylist(), table["text"].to_pylist(), strict=True))
    return found


def read_truth(folder: Path) -> tuple[Copy, ...]:
    return tuple(Copy(**json.loads(line)) for line in (folder / TRUTH).read_text().splitlines())
