"""polars: regular expressions (Rust's regex) for e-mail addresses, IP addresses and phone numbers, on a column in
memory.

An expression finds shapes only: whether an address is public or a number is one that can be dialled is not checked.
"""

from pathlib import Path
from typing import Any

import polars as pl

from tests.benchmarks.peers.curation.measured import main, read_texts

OCTET = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
PATTERNS = {
    "<EMAIL>": r"[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}",
    "<IP>": rf"\b(?:{OCTET}\.){{3}}{OCTET}\b",
    "<PHONE>": r"(?:\+\d{1,3}[ .-]?)?\(?\b\d{3}\)?[ .-]\d{3}[ .-]\d{4}\b",
}


class PolarsPii:
    def prepare(self, folder: Path) -> pl.Series:
        return pl.Series("text", read_texts(folder)).rechunk()

    def run(self, prepared: pl.Series, out: Path, scratch: Path) -> pl.Series:
        column = pl.col("text")
        for placeholder, pattern in PATTERNS.items():
            column = column.str.replace_all(pattern, placeholder)
        return prepared.to_frame().select(column).to_series()

    def found(self, prepared: pl.Series, result: pl.Series, out: Path) -> dict[str, Any]:
        return {
            "documents": len(prepared),
            "bytes": int(prepared.str.len_bytes().sum()),
            "changed": int((prepared != result).sum()),
        }


if __name__ == "__main__":
    main(PolarsPii())
