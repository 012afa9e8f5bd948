"""A quality classifier: how much a text resembles the good ones of two sets that it was trained on.

It is a logistic regression over hashed tokens and pairs of tokens (data/quality/classifier_kernels.py), as fastText's
classifier is over its word n-grams, without the layer between. Trained by `python -m stages.curate.train classifier`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from data.errors import InputError
from data.reading.tables import text_buffers
from data.text.model_file import ModelKind, read_model, write_model

KIND = ModelKind(
    name="quality classifier",
    version=1,
    arrays={"weights": "float32"},
    command="python -m stages.curate.train classifier",
)
MIN_BITS, MAX_BITS = 4, 28


@dataclass(frozen=True, kw_only=True)
class Classifier:
    """weights: float32[2**bits]. report: what was measured of it on texts held out of its training."""

    bits: int
    bias: float
    weights: np.ndarray
    report: dict[str, Any]

    def score(self, texts: pa.LargeStringArray) -> np.ndarray:
        """float32[n] in [0, 1]: the probability that a text is good if good and bad are equally frequent. Texts hold no
        nulls."""
        from data.quality.classifier_kernels import score

        values, offsets = text_buffers(texts)
        out = np.empty(len(texts), np.float32)
        score(values, offsets, self.weights, self.bits, self.bias, out)
        return out

    def save(self, path: Path) -> None:
        """The same bytes for the same classifier. Raises InputError if the place cannot be written."""
        settings = {"bits": self.bits, "bias": self.bias, "report": self.report}
        write_model(path, KIND, settings, {"weights": self.weights})

    @classmethod
    def load(cls, path: Path) -> "Classifier":
        """Raises InputError if the file is missing, damaged or no classifier."""
        settings, arrays = read_model(path, KIND)
        bits, bias, weights = settings.get("bits"), settings.get("bias"), arrays["weights"]
        if (
            not isinstance(bits, int)
            or not MIN_BITS <= bits <= MAX_BITS
            or len(weights) != 1 << bits
            or not isinstance(bias, float)
            or not np.isfinite(weights).all()
        ):
            raise InputError(f"{KIND.name} {path} holds no weights of 2**{bits} buckets; train it anew")
        return cls(bits=bits, bias=bias, weights=weights, report=settings.get("report", {}))
