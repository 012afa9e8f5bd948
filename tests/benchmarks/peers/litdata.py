"""litdata: `optimize` with one worker for a TokensLoader, which needs tokens of one type without a header: uint16.

The function encodes with SentencePiece's encode_as_numpy, which is faster than the tokenizers library here. The worker
is forked: spawned, the default, it would import torch again.
"""

import json
import os
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path

os.environ["LITDATA_DISABLE_VERSION_CHECK"] = "1"

import litdata
import numpy as np
import sentencepiece
import torch

from tests.benchmarks.peers.measured import main

BATCH = 1_000


class Litdata:
    def __init__(self, folder: Path, end_id: int) -> None:
        self._model = str(folder / "tokenizer.model")
        self._end_id = end_id

    def encode(self, files: list[Path], out: Path, scratch: Path) -> None:
        os.environ["DATA_OPTIMIZER_CACHE_FOLDER"] = str(scratch / "cache")
        os.environ["DATA_OPTIMIZER_DATA_CACHE_FOLDER"] = str(scratch / "data")
        litdata.optimize(
            fn=partial(documents, model=self._model, end_id=self._end_id),
            inputs=[str(path) for path in files],
            output_dir=str(out),
            chunk_bytes="64MB",
            num_workers=1,
            reorder_files=False,
            keep_data_ordered=True,
            item_loader=litdata.TokensLoader(),
            start_method="fork",
            verbose=False,
        )

    def tokens(self, out: Path) -> np.ndarray:
        """A chunk is the number of its items, their offsets in the file, and their bytes."""
        found = []
        for chunk in json.loads((out / "index.json").read_text())["chunks"]:
            content = np.fromfile(out / chunk["filename"], np.uint8)
            num_items = int(content[:4].view(np.uint32)[0])
            offsets = content[4 : 4 + 4 * (num_items + 1)].view(np.uint32)
            found.append(content[offsets[0] : offsets[-1]].view(np.uint16))
        return np.concatenate(found)


def documents(path: str, model: str, end_id: int) -> Iterator[torch.Tensor]:
    processor = sentencepiece.SentencePieceProcessor(model_file=model)
    with open(path, encoding="utf-8") as lines:
        texts = (json.loads(line)["text"] for line in lines)
        while batch := list(islice(texts, BATCH)):
            for ids in processor.encode_as_numpy(batch, num_threads=1):
                yield torch.from_numpy(np.append(ids, end_id).astype(np.uint16))


if __name__ == "__main__":
    main(Litdata)
