"""datatrove: JsonlReader and DocumentTokenizer, without the shuffling of documents, which would only cost time.

The steps are called directly, without an executor and its manager process. The tokenizer, with its cache of words, is
kept from one text to the next.
"""

from pathlib import Path

import numpy as np
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.tokens import DocumentTokenizer
from datatrove.utils.logging import logger
from tokenizers import Tokenizer

from tests.benchmarks.peers.measured import main


class Datatrove:
    def __init__(self, folder: Path, end_id: int) -> None:
        logger.remove()
        self._path = str(folder / "tokenizer.json")
        self._end = Tokenizer.from_file(self._path).id_to_token(end_id)
        self._tokenizer = self._step(folder).tokenizer
        self._tokenizer.encode_special_tokens = True  # "</s>" in a text is text

    def encode(self, files: list[Path], out: Path, scratch: Path) -> None:
        reader = JsonlReader(str(files[0].parent), glob_pattern="*.jsonl", add_file_path=False)
        step = self._step(out)
        step.tokenizer = self._tokenizer
        step.run(reader.run(), rank=0, world_size=1)

    def _step(self, out: Path) -> DocumentTokenizer:
        return DocumentTokenizer(
            output_folder=str(out), tokenizer_name_or_path=self._path, eos_token=self._end, shuffle_documents=False
        )

    def tokens(self, out: Path) -> np.ndarray:
        (path,) = out.glob("*.ds")
        return np.fromfile(path, np.uint16)


if __name__ == "__main__":
    main(Datatrove)
