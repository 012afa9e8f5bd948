"""Documents in signed shards of uneven size, for tests of duplicate removal."""

import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from data.dedup.band_join import in_turn
from data.dedup.banding import NearDuplicateSettings
from data.dedup.duplicates import NearDuplicates, exact_duplicates, near_duplicates
from data.dedup.ranking import rank
from data.dedup.signatures import FINGERPRINT, DocumentShard, column_values, sign
from tests.data.text.ngram_sets import hash_texts

DEFAULT = NearDuplicateSettings()


def column(texts: Sequence[str]) -> pa.LargeStringArray:
    return pa.array(texts, pa.large_string())


def jaccard(a: str, b: str, n: int = 5) -> float:
    left, right = (set(grams.tolist()) for grams in hash_texts([a.encode(), b.encode()], n))
    return len(left & right) / max(1, len(left | right))


class Corpus:
    """Texts with ids; the documents numbered in `heldout` and the first num_known have their places in the rank."""

    def __init__(
        self,
        texts: list[str],
        ids: list[str] | None = None,
        *,
        heldout: frozenset[int] = frozenset(),
        quality: Sequence[float] = (),
        num_known: int = 0,
        settings: NearDuplicateSettings = DEFAULT,
        cuts: Sequence[int] = (),
        parquet: bool = False,
        run=in_turn,
    ) -> None:
        self.ids = ids or [f"{i:05}" for i in range(len(texts))]
        self.texts, self.settings, self.num_known, self.run = texts, settings, num_known, run
        self._folder = tempfile.TemporaryDirectory()
        self.folder = Path(self._folder.name)
        n = len(texts)
        bounds = sorted({0, *(cuts or (n // 7, n // 3)), n})
        self.shards = [self._shard(texts[a:b], number, parquet) for number, (a, b) in enumerate(pairwise(bounds))]
        self.prints = column_values(sign(column(texts), settings), FINGERPRINT, np.uint64)
        self.ranks = rank(
            known=np.arange(n) < num_known,
            heldout=np.array([i in heldout for i in range(n)], bool),
            quality=np.array(quality or [0.0] * n),
            num_bytes=np.array([len(text.encode()) for text in texts], np.int64),
            fingerprints=self.prints,
            ids=lambda rows: pa.array(self.ids, pa.string()).take(pa.array(rows)),
        )

    def _shard(self, texts: list[str], number: int, parquet: bool) -> DocumentShard:
        """In several batches, or row groups."""
        size = max(1, len(texts) // 3)
        table = pa.table({"number": pa.array(range(len(texts))), "text": column(texts)})
        path = self.folder / f"texts-{number}.{'parquet' if parquet else 'arrow'}"
        if parquet:
            pq.write_table(table, path, row_group_size=size)
        else:
            with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table, max_chunksize=size)
        batch = sign(table["text"].combine_chunks(), self.settings)
        signatures = self.folder / f"signatures-{number}.arrow"
        with pa.OSFile(str(signatures), "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
            writer.write_batch(batch)
        return DocumentShard(texts=path, signatures=signatures, num_documents=len(texts))

    def exact(self) -> dict[str, str]:
        return self._named(exact_duplicates(self.shards, self.ranks, self.folder, self.run))

    def find(self, alive: np.ndarray | None = None) -> NearDuplicates:
        alive = np.ones(len(self.texts), bool) if alive is None else alive
        return near_duplicates(
            self.shards, alive, self.ranks, self.settings, self.folder, self.run, num_known=self.num_known
        )

    def near(self) -> dict[str, str]:
        return self._named(self.find().survivor)

    def _named(self, survivor: np.ndarray) -> dict[str, str]:
        assert not np.isin(survivor[survivor >= 0], np.nonzero(survivor >= 0)[0]).any(), "a survivor was removed itself"
        return {self.ids[i]: self.ids[s] for i, s in enumerate(survivor.tolist()) if s >= 0}
