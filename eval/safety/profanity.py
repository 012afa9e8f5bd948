"""A classifier of offensive text whose weights come from the package alt-profanity-check (MIT licence): calibrated
linear support vector machines over the TF-IDF of words.

The package holds its weights as joblib pickles of scikit-learn objects. They are read once, without running anything
(`joblib_reader`), into an .npz of plain arrays in the user's cache folder; every later run loads that.

Probability (scikit-learn's CalibratedClassifierCV with the sigmoid of Platt 1999): the mean over the folds of
1 / (1 + exp(a * margin + b)), margin = weights . tfidf + intercept. TF-IDF: counts of the words of two letters and
more, in lower case, times their idf, at length 1.
"""

import hashlib
import os
import re
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import metadata
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from data.errors import InputError
from eval.safety.joblib_reader import UnreadableError, read_inert

PACKAGE = "alt-profanity-check"
FOLDER, FILES = "profanity_check/data", ("vectorizer.joblib", "model.joblib")
ADVICE = "install 1.9.1, or uninstall it"
WORD = re.compile(r"\b\w\w+\b")
FORMAT = 1  # of the .npz


@dataclass(frozen=True, kw_only=True)
class ProfanityClassifier:
    """words: in the order of the columns. idf: float64[words]. weights: float64[folds, words]. intercepts, slopes,
    offsets: float64[folds].
    """

    words: tuple[str, ...]
    idf: np.ndarray
    weights: np.ndarray
    intercepts: np.ndarray
    slopes: np.ndarray
    offsets: np.ndarray

    @cached_property
    def _columns(self) -> dict[str, int]:
        return {word: column for column, word in enumerate(self.words)}

    def probabilities(self, texts: Sequence[str]) -> np.ndarray:
        """float64[texts], that each is offensive."""
        return np.array([self._probability(text) for text in texts], np.float64)

    def _probability(self, text: str) -> float:
        counts = Counter(self._columns[word] for word in WORD.findall(text.lower()) if word in self._columns)
        columns = np.fromiter(counts.keys(), np.int64, len(counts))
        values = np.fromiter(counts.values(), np.float64, len(counts)) * self.idf[columns]
        length = np.linalg.norm(values)
        margins = self.weights[:, columns] @ (values / length if length else values) + self.intercepts
        return float(np.mean(1 / (1 + np.exp(self.slopes * margins + self.offsets))))


def version() -> str | None:
    """The installed version of the package, None if it is not."""
    try:
        return metadata.version(PACKAGE)
    except metadata.PackageNotFoundError:
        return None


@cache
def classifier() -> ProfanityClassifier | None:
    """The classifier, None if the package is not installed. Raises InputError for a version whose files are others than
    those of a calibrated linear model.
    """
    if version() is None:
        return None
    folder = Path(str(metadata.distribution(PACKAGE).locate_file(FOLDER)))
    try:
        digest = hashlib.sha256(b"".join((folder / name).read_bytes() for name in FILES)).hexdigest()
    except OSError as error:
        raise InputError(f"{PACKAGE} {version()} cannot be read: {error}; {ADVICE}") from None
    path = cache_folder() / f"profanity-{FORMAT}-{digest[:16]}.npz"
    with suppress(OSError, ValueError, LookupError, TypeError, BadZipFile):  # not there, or damaged: it is made again
        return load(path)
    made = convert(folder)
    with suppress(OSError):  # where nothing can be kept, every run reads the package
        save(made, path)
    return made


def cache_folder() -> Path:
    """Where the user's programs keep what they can make again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "longhaul"


def convert(folder: Path) -> ProfanityClassifier:
    """The classifier of the package's data folder. Raises InputError."""
    try:
        vectorizer, model = (read_inert(folder / name) for name in FILES)
        if not (vectorizer["use_idf"] and vectorizer["norm"] == "l2" and vectorizer["ngram_range"] == (1, 1)):
            raise UnreadableError(f"{folder}: its words are weighed in another way")
        if vectorizer["sublinear_tf"] or vectorizer["token_pattern"] != f"(?u){WORD.pattern}":
            raise UnreadableError(f"{folder}: its words are counted in another way")
        columns: dict[str, int] = {str(word): int(column) for word, column in vectorizer["vocabulary_"].items()}
        folds = model["calibrated_classifiers_"]
        calibrators = [fold["calibrators"][0] for fold in folds]
        made = ProfanityClassifier(
            words=tuple(sorted(columns, key=columns.__getitem__)),
            idf=vectorizer["_tfidf"]["idf_"],
            weights=np.concatenate([fold["estimator"]["coef_"] for fold in folds]),
            intercepts=np.concatenate([fold["estimator"]["intercept_"] for fold in folds]),
            slopes=np.array([calibrator["a_"] for calibrator in calibrators], np.float64),
            offsets=np.array([calibrator["b_"] for calibrator in calibrators], np.float64),
        )
        if sorted(columns.values()) != list(range(len(columns))) or made.weights.shape != (len(folds), len(columns)):
            raise UnreadableError(f"{folder}: its words and weights do not belong together")
        if made.idf.shape != made.weights.shape[1:] or made.intercepts.shape != made.weights.shape[:1]:
            raise UnreadableError(f"{folder}: its weights do not belong together")
        return made
    except (ValueError, LookupError, TypeError, AttributeError) as error:  # of another make, it may lack anything
        raise InputError(f"{PACKAGE} {version()} cannot be used: {type(error).__name__}: {error}; {ADVICE}") from None


def save(made: ProfanityClassifier, path: Path) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        np.savez_compressed(
            Path(folder) / path.name,
            words=np.frombuffer("\n".join(made.words).encode(), np.uint8),
            idf=made.idf,
            weights=made.weights,
            intercepts=made.intercepts,
            slopes=made.slopes,
            offsets=made.offsets,
        )
        os.replace(Path(folder) / path.name, path)


def load(path: Path) -> ProfanityClassifier:
    """What `save` wrote."""
    with np.load(path, allow_pickle=False) as arrays:
        found = {name: arrays[name] for name in arrays.files}
    return ProfanityClassifier(words=tuple(found.pop("words").tobytes().decode().split("\n")), **found)
