"""datatrove: PIIFormatter, which replaces e-mail addresses and public IP addresses, on texts in memory."""

from pathlib import Path
from typing import Any

from datatrove.pipeline.formatters import PIIFormatter
from datatrove.utils.logging import logger

from tests.benchmarks.peers.curation.measured import main, read_texts


class DatatrovePii:
    def __init__(self) -> None:
        logger.remove()
        self._formatter = PIIFormatter()

    def prepare(self, folder: Path) -> list[str]:
        return read_texts(folder).to_pylist()

    def run(self, prepared: list[str], out: Path, scratch: Path) -> list[str]:
        return [self._formatter.format(text) for text in prepared]

    def found(self, prepared: list[str], result: list[str], out: Path) -> dict[str, Any]:
        changed = sum(after != before for before, after in zip(prepared, result, strict=True))
        return {
            "documents": len(prepared),
            "bytes": sum(len(text.encode()) for text in prepared),
            "changed": changed,
        }


if __name__ == "__main__":
    main(DatatrovePii())
