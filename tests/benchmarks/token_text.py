"""Text for `make bench-tokens`, all of it found on this machine, and no document twice.

| domain    | documents                                                                  | share of a text |
|-----------|----------------------------------------------------------------------------|-----------------|
| prose     | books and manuals of ../shared/data/prose, where it is present             | at most 25 %    |
| reference | docstrings of the standard library and of packages, data/python_environment | at most 12 %   |
| readme    | descriptions of the installed packages                                     | at most 2 %     |
| licence   | their licence files                                                        | at most 1 %     |
| code      | source files of packages of which no docstring was taken                   | the rest        |

A document with U+2581 is left out: SentencePiece and tokenizers read it as a space, so peers cannot give it the ids
that it has here. Documents are drawn by a hash of their text, so a text is the same wherever the environment is.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pyarrow.parquet as pq

from data.errors import InputError
from data.reading.documents import Document
from data.reading.python_environment import ALL_PACKAGES, PythonEnvironment
from data.vocabulary.vocabulary import SPACE_SYMBOL

PROSE = Path("../shared/data/prose")
MOST = {"prose": 0.25, "reference": 0.12, "readme": 0.02, "licence": 0.01, "code": 1.0}
PARSED_PER_BYTE = 2  # source that is parsed for its docstrings, for each byte of text that is asked for
NUM_FEW = 4
OTHERS = (
    *("</s>", "<s>", "<unk>", "<0x41>", "<|im_start|>", SPACE_SYMBOL, "\0", "\ufeff", "\ufffd", "\u2028", "\u200d"),
    *(" ", "  ", "\n", "\n\n", "\t", "\r\n", "...", "====", "1234567890", "e\u0301", "\U0001f468\u200d\U0001f469"),
)


@dataclass(frozen=True, kw_only=True)
class Texts:
    """Folders with a .jsonl file for each domain. sample: a part of first. few: NUM_FEW of each domain."""

    first: Path
    second: Path
    sample: Path
    few: Path


def prose() -> Iterator[str]:
    """Every document of PROSE; none where it is absent."""
    for path in sorted(PROSE.glob("*.parquet")):
        yield from pq.read_table(path, columns=["text"]).column("text").to_pylist()


def write_texts(folder: Path, *, text_bytes: int, sample_bytes: int) -> Texts:
    """Two texts of `text_bytes` bytes of UTF-8 each. Raises InputError if there is not enough."""
    drawn = _draw(text_bytes)
    folders = {name: folder / name for name in ("first", "second", "sample", "few")}
    _write(folders["first"], drawn[0])
    _write(folders["second"], drawn[1])
    _write(folders["sample"], {d: _part(t, sample_bytes / text_bytes) for d, t in drawn[0].items()})
    _write(folders["few"], {domain: documents[:NUM_FEW] for domain, documents in drawn[0].items()})
    return Texts(**folders)


def _draw(text_bytes: int) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Two texts: domain -> documents. Other domains come first, and code fills what is left."""
    texts: tuple[dict[str, list[str]], dict[str, list[str]]] = ({}, {})
    left = [text_bytes, text_bytes]
    seen: set[bytes] = set()
    for domain, documents in _domains(PARSED_PER_BYTE * text_bytes):
        waiting = _distinct(documents, seen)
        for i, text in enumerate(texts):
            wanted = min(left[i], int(MOST[domain] * text_bytes))
            text[domain] = []
            while wanted > 0 and waiting:
                text[domain].append(waiting.pop())
                size = len(text[domain][-1].encode())
                wanted, left[i] = wanted - size, left[i] - size
    if max(left) > 0:
        raise InputError(
            f"this Python environment has {max(left) / 1e6:.0f} MB of text too little for two texts of "
            f"{text_bytes / 1e6:.0f} MB; give a smaller --megabytes"
        )
    return texts


def _domains(parsed_bytes: int) -> Iterator[tuple[str, Iterable[str]]]:
    environment = PythonEnvironment(packages=(ALL_PACKAGES,), package_source_bytes=parsed_bytes)
    yield "prose", prose()
    parsed: set[str] = set()
    for domain in ("reference", "readme", "licence"):
        records = environment.read(domain, Counter(), lambda done, total: None)
        documents = [record for record in records if isinstance(record, Document)]
        parsed.update(document.group for document in documents)
        yield domain, (document.text for document in documents)
    yield "code", _sources(environment, parsed)


def _sources(environment: PythonEnvironment, parsed: set[str]) -> Iterator[str]:
    for distribution in environment.distributions.values():
        for entry in distribution.files or ():
            if entry.suffix == ".py" and str(entry) not in parsed and ".." not in entry.parts:
                path = Path(str(entry.locate()))
                if path.is_file():
                    yield path.read_bytes().decode(errors="ignore")


def _distinct(documents: Iterable[str], seen: set[bytes]) -> list[str]:
    """Those not met before, in the order of their hashes."""
    found = {}
    for text in documents:
        digest = hashlib.sha256(text.encode()).digest()
        if text.strip() and SPACE_SYMBOL not in text and digest not in seen:
            found[digest] = text
    seen.update(found)
    return [found[digest] for digest in sorted(found)]


def _part(documents: list[str], share: float) -> list[str]:
    return [text for i, text in enumerate(documents) if int((i + 1) * share) > int(i * share)]


def _write(folder: Path, texts: dict[str, list[str]]) -> None:
    folder.mkdir()
    for domain, documents in texts.items():
        if documents:
            with open(folder / f"{domain}.jsonl", "w", encoding="utf-8", newline="\n") as file:
                for i, text in enumerate(documents):
                    file.write(json.dumps({"id": f"{domain}/{i}", "text": text}, ensure_ascii=False) + "\n")


def read_texts(folder: Path) -> dict[str, list[str]]:
    """Domain -> documents, as they were written."""
    return {
        path.stem: [json.loads(line)["text"] for line in path.read_text(encoding="utf-8").split("\n") if line]
        for path in sorted(folder.glob("*.jsonl"))
    }


def fuzzed(count: int, texts: list[str], seed: int) -> Iterator[str]:
    """Strings that a tokenizer may stumble over: cuts of real text, any characters, what looks special, repetitions."""
    random = Random(seed)
    kinds = (
        lambda: _cut(random, random.choice(texts)),
        lambda: "".join(map(_character, random.choices(range(0x110000 - 0x800), k=random.randint(1, 6)))),
        lambda: "".join(map(chr, random.choices(range(0x20, 0x250), k=random.randint(1, 12)))),
        lambda: random.choice(OTHERS),
        lambda: random.choice(OTHERS) * random.randint(1, 40),
        lambda: _cut(random, random.choice(texts)).replace(" ", random.choice(OTHERS)),
    )
    for _ in range(count):
        yield "".join(random.choice(kinds)() for _ in range(random.randint(1, 20)))


def _cut(random: Random, text: str) -> str:
    start = random.randrange(len(text))
    return text[start : start + random.randint(1, 40)]


def _character(number: int) -> str:
    """Any character but a surrogate."""
    return chr(number if number < 0xD800 else number + 0x800)
