"""How surprising a text is, in bits per byte, to a small n-gram model of clean text.

The model is of triples of tokens (data/text/model_tokens.py), interpolated modified Kneser-Ney (Chen and Goodman 1998,
section 3); a token outside its vocabulary costs what the unknown token costs there, and besides its spelling by a model
of pairs of bytes. White space, letter case and the values of digits cost nothing, so it is no measure of compression:
it orders texts. Trained by `python -m stages.curate.train perplexity`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from data.errors import InputError
from data.reading.tables import text_buffers
from data.text.model_file import ModelKind, read_model, write_model

TABLES = {"vocabulary": "uint64", "pairs": "uint64", "triples": "uint64"}
KIND = ModelKind(
    name="n-gram model",
    version=1,
    arrays={"spelling": "uint16", "words": "uint32", **TABLES},
    command="python -m stages.curate.train perplexity",
)
SPELLING_SYMBOLS = 257


@dataclass(frozen=True, kw_only=True)
class NgramModel:
    """The arrays are those of `ngram_kernels.costs`. report: what was counted in training, and the bits per byte of
    texts that were held out of it."""

    vocabulary: np.ndarray
    spelling: np.ndarray
    words: np.ndarray
    pairs: np.ndarray
    triples: np.ndarray
    report: dict[str, Any]

    def bits_per_byte(self, texts: pa.LargeStringArray) -> np.ndarray:
        """float32[n]: bits that a text costs, of each of its bytes; 0 for an empty one. Texts hold no nulls."""
        from data.quality.ngram_kernels import COST_UNIT, costs

        values, offsets = text_buffers(texts)
        out = np.empty(len(texts), np.int64)
        costs(values, offsets, self.vocabulary, self.spelling, self.words, self.pairs, self.triples, out)
        return (out / COST_UNIT / np.maximum(np.diff(offsets), 1)).astype(np.float32)

    def save(self, path: Path) -> None:
        """The same bytes for the same model. Raises InputError if the place cannot be written."""
        write_model(path, KIND, {"report": self.report}, {name: getattr(self, name) for name in KIND.arrays})

    @classmethod
    def load(cls, path: Path) -> "NgramModel":
        """Raises InputError if the file is missing, damaged or no n-gram model."""
        settings, arrays = read_model(path, KIND)
        sound = len(arrays["spelling"]) == SPELLING_SYMBOLS**2 and len(arrays["words"]) >= 2
        for name in TABLES:
            size = len(arrays[name])
            # A search ends at an empty place, so each table has one.
            sound = sound and size >= 2 and size & (size - 1) == 0 and bool((arrays[name] == 0).any())
        if not sound or int((arrays["vocabulary"] & np.uint64((1 << 21) - 1)).max()) >= len(arrays["words"]):
            raise InputError(f"{KIND.name} {path} holds no tables that belong together; train it anew")
        return cls(**arrays, report=settings.get("report", {}))
