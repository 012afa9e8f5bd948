"""rensa: word 5-grams made in Python, rensa's matrix of 112 hashes, a join by bands (14 of 8 rows) and union-find, from
Parquet to Parquet. Of a cluster the first document is kept.

Words are those of near_duplicate_text.py. What rensa does itself is a small part of it; the rest is what its user has
to write, as fast as NumPy and Python's regular expressions make it.
"""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rensa import RMinHash

from tests.benchmarks.peers.curation.measured import kept_ids, main, parquet_files

BANDS, ROWS, NGRAM_WORDS = 14, 8, 5
NUMBER, WORD = re.compile(r"\d+"), re.compile(r"[^\W_]+")


def shingles(text: str) -> list[str]:
    words = WORD.findall(NUMBER.sub("0", text.lower()))
    return list({" ".join(words[i : i + NGRAM_WORDS]) for i in range(len(words) - NGRAM_WORDS + 1)})


class RensaDedup:
    def prepare(self, folder: Path) -> list[Path]:
        return parquet_files(folder)

    def run(self, prepared: list[Path], out: Path, scratch: Path) -> None:
        tables = [pq.read_table(path) for path in prepared]
        signatures, empty = zip(*(self._sign(table.column("text").to_pylist()) for table in tables), strict=True)
        keep = self._first_of_clusters(np.concatenate(signatures), np.concatenate(empty))
        first = 0
        for number, table in enumerate(tables):
            kept = table.filter(pa.array(keep[first : first + len(table)]))
            pq.write_table(kept, out / f"{number:03d}.parquet", compression="zstd")
            first += len(table)

    def _sign(self, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """uint32[n, 112], and bool[n]: texts without an n-gram."""
        sets = [shingles(text) for text in texts]
        matrix = RMinHash.digest_matrix_from_token_sets(sets, BANDS * ROWS, 1)
        return np.array(matrix.to_rows(), np.uint32), np.array([not found for found in sets])

    def _first_of_clusters(self, signatures: np.ndarray, empty: np.ndarray) -> np.ndarray:
        parents = list(range(len(signatures)))

        def root(document: int) -> int:
            while parents[document] != document:
                parents[document] = parents[parents[document]]
                document = parents[document]
            return document

        documents = np.flatnonzero(~empty)
        for band in range(BANDS):
            rows = np.ascontiguousarray(signatures[documents, band * ROWS : (band + 1) * ROWS])
            keys = rows.view(f"V{rows.itemsize * ROWS}").ravel()
            _, first, group = np.unique(keys, return_index=True, return_inverse=True)
            firsts = first[group]
            for member in np.flatnonzero(firsts != np.arange(len(documents))).tolist():
                left, right = root(int(documents[firsts[member]])), root(int(documents[member]))
                parents[max(left, right)] = min(left, right)
        return np.array([root(document) == document for document in range(len(parents))])

    def found(self, prepared: list[Path], result: None, out: Path) -> dict[str, Any]:
        return {"kept": kept_ids(out)}


if __name__ == "__main__":
    main(RensaDedup())
