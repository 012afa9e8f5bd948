"""datasets: load_dataset("json"), map in batches in memory, save_to_disk once.

The function that is mapped uses SentencePiece's encode_as_numpy, which is faster than the tokenizers library here.
Tokens are declared uint16; what save_to_disk adds to them are offsets of 4 bytes a document.
"""

from pathlib import Path
from typing import Any

import datasets
import numpy as np
import sentencepiece

from tests.benchmarks.peers.measured import main


class Datasets:
    def __init__(self, folder: Path, end_id: int) -> None:
        datasets.disable_progress_bars()
        datasets.disable_caching()
        self._processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
        self._end = np.array([end_id], np.int32)

    def encode(self, files: list[Path], out: Path, scratch: Path) -> None:
        names = [str(path) for path in files]
        rows = datasets.load_dataset("json", data_files=names, split="train", cache_dir=str(scratch))
        tokens = rows.map(
            self._encode_batch,
            batched=True,
            remove_columns=rows.column_names,
            features=datasets.Features({"input_ids": datasets.List(datasets.Value("uint16"))}),
            keep_in_memory=True,
            new_fingerprint="tokens",
        )
        tokens.save_to_disk(str(out))

    def _encode_batch(self, batch: dict[str, list[str]]) -> dict[str, Any]:
        encoded = self._processor.encode_as_numpy(batch["text"], num_threads=1)
        return {"input_ids": [np.concatenate([ids, self._end]).astype(np.uint16) for ids in encoded]}

    def tokens(self, out: Path) -> np.ndarray:
        column = datasets.load_from_disk(str(out)).data.column("input_ids")
        return np.concatenate([chunk.flatten().to_numpy() for chunk in column.chunks])


if __name__ == "__main__":
    main(Datasets)
