"""Ours: fastText's model lid.176.ftz evaluated over a column in memory, on the first 1,000 characters."""

from pathlib import Path
from typing import Any

import pyarrow as pa

from data.language.identification import identify_column
from tests.benchmarks.peers.curation.measured import main, read_texts


class OurLanguage:
    def prepare(self, folder: Path) -> pa.LargeStringArray:
        return read_texts(folder).combine_chunks()

    def run(self, prepared: pa.LargeStringArray, out: Path, scratch: Path) -> pa.DictionaryArray:
        return identify_column(prepared)[0]

    def found(self, prepared: pa.LargeStringArray, result: pa.DictionaryArray, out: Path) -> dict[str, Any]:
        return {"documents": len(prepared), "labels": result.to_pylist()}


if __name__ == "__main__":
    main(OurLanguage())
