"""datatrove: its filters for Gopher quality, Gopher repetition, C4 and FineWeb with their defaults, each on all texts.

C4's filter changes the text of a document, so each filter gets documents of its own.
"""

from pathlib import Path
from typing import Any

from datatrove.data import Document
from datatrove.pipeline.filters import (
    C4QualityFilter,
    FineWebQualityFilter,
    GopherQualityFilter,
    GopherRepetitionFilter,
)
from datatrove.utils.logging import logger

from tests.benchmarks.peers.curation.measured import main, read_texts

FILTERS = (GopherQualityFilter, GopherRepetitionFilter, C4QualityFilter, FineWebQualityFilter)


class DatatroveQuality:
    def __init__(self) -> None:
        logger.remove()
        self._filters = [kind() for kind in FILTERS]

    def prepare(self, folder: Path) -> list[str]:
        return read_texts(folder).to_pylist()

    def run(self, prepared: list[str], out: Path, scratch: Path) -> list[bool]:
        kept = [True] * len(prepared)
        for step in self._filters:
            for number, text in enumerate(prepared):
                verdict = step.filter(Document(text=text, id=str(number)))
                kept[number] &= verdict if isinstance(verdict, bool) else verdict[0]
        return kept

    def found(self, prepared: list[str], result: list[bool], out: Path) -> dict[str, Any]:
        return {"documents": len(prepared), "bytes": sum(len(text.encode()) for text in prepared), "kept": sum(result)}


if __name__ == "__main__":
    main(DatatroveQuality())
