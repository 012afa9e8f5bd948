"""datatrove: its four steps of MinHash (14 bands of 8 rows, word 5-grams, its defaults), from Parquet to Parquet.

The steps are called directly, one after the other, without an executor and its manager process.
"""

from collections import deque
from pathlib import Path
from typing import Any

from datatrove.pipeline.dedup.minhash import (
    MinhashConfig,
    MinhashDedupBuckets,
    MinhashDedupCluster,
    MinhashDedupFilter,
    MinhashDedupSignature,
)
from datatrove.pipeline.readers import ParquetReader
from datatrove.pipeline.writers import ParquetWriter
from datatrove.utils.logging import logger

from tests.benchmarks.peers.curation.measured import kept_ids, main


class DatatroveDedup:
    def __init__(self) -> None:
        logger.remove()
        self._config = MinhashConfig()
        assert (self._config.num_buckets, self._config.hashes_per_bucket, self._config.n_grams) == (14, 8, 5)

    def prepare(self, folder: Path) -> Path:
        return folder

    def run(self, prepared: Path, out: Path, scratch: Path) -> None:
        signatures, buckets, removed = (str(scratch / name) for name in ("signatures", "buckets", "removed"))
        MinhashDedupSignature(output_folder=signatures, config=self._config).run(self._documents(prepared))
        for bucket in range(self._config.num_buckets):
            step = MinhashDedupBuckets(input_folder=signatures, output_folder=buckets, config=self._config)
            step.run(rank=bucket, world_size=self._config.num_buckets)
        MinhashDedupCluster(input_folder=buckets, output_folder=removed, config=self._config).run()
        kept = MinhashDedupFilter(input_folder=removed).run(self._documents(prepared))
        deque(ParquetWriter(str(out), compression="zstd").run(kept), maxlen=0)

    def _documents(self, folder: Path) -> Any:
        return ParquetReader(str(folder), glob_pattern="*.parquet").run()

    def found(self, prepared: Path, result: None, out: Path) -> dict[str, Any]:
        return {"kept": kept_ids(out)}


if __name__ == "__main__":
    main(DatatroveDedup())
