"""What a vocabulary is, wherever it comes from: text to ids and back, and one end token to each document.

    vocabulary = Vocabulary.load_folder(folder)
    tokens, offsets = vocabulary.encode_documents(texts, token_dtype(vocabulary.size))

A folder holds `tokenizer.model` (SentencePiece: data/vocabulary/sentencepiece.py) or `tokenizer.json` (the tokenizers
library: data/vocabulary/huggingface.py), and beside either a `tokenizer_config.json` may name the end token. Nothing in
these files is code, and none of it is unpickled.

Text never becomes a control id: "</s>" in a document is ordinary pieces. Every document of a training set is its tokens
and one end token.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa

from data.errors import InputError

Method = Literal["word table", "plain"]

MODEL_FILE, JSON_FILE, CONFIG_FILE = "tokenizer.model", "tokenizer.json", "tokenizer_config.json"
SPACE_SYMBOL = "\u2581"  # how SentencePiece writes a space
UNKNOWN_ID, BEGINNING_ID, END_ID = 0, 1, 2  # of every vocabulary that is trained here
NUM_CONTROL = 3
ENCODE_BATCH_BYTES = 1_000_000


class Vocabulary(ABC):
    """Ids 0 to size - 1, one of which ends documents. Safe to use from several threads.

    method: how documents are encoded. "word table": distinct words once, all others looked up; "plain": each document
    by its library. Both give the same ids; `why` says in a sentence what decided.
    """

    size: int
    end_id: int
    method: Method
    why: str

    @staticmethod
    def load_folder(folder: Path) -> "Vocabulary":
        """The vocabulary of a folder. Raises InputError if there is none, or it cannot be used."""
        return Vocabulary.load(vocabulary_file(folder), configured_end_token(folder))

    @staticmethod
    def load(path: Path, end_token: str = "") -> "Vocabulary":
        """The vocabulary of a .model or .json file. end_token: the piece that ends a document; "": the model's own.

        Raises InputError if it cannot be read, has no such piece, or could read its end token out of a text.
        """
        if path.suffix == ".json":
            from data.vocabulary.huggingface import HuggingFaceVocabulary

            return HuggingFaceVocabulary(path.read_bytes(), end_token)
        from data.vocabulary.sentencepiece import SentencePieceVocabulary

        return SentencePieceVocabulary(path.read_bytes(), end_token)

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """Ids of one text, without an end token. Raises InputError for a lone surrogate, which UTF-8 cannot hold."""

    @abstractmethod
    def decode(self, tokens: Sequence[int] | np.ndarray) -> str:
        """The text of ids; control ids give nothing. Bytes that are no UTF-8, as a cut sequence may have, become
        U+FFFD.
        """

    @abstractmethod
    def token_bytes(self) -> np.ndarray | None:
        """int64[size]: how many bytes of text each id stands for; 0 for control ids. Summed over a document's tokens
        it is the text's length. None: not every text comes back byte for byte, so ids have no such length.
        """

    @abstractmethod
    def special_pieces(self) -> dict[str, int]:
        """Piece -> id of those that text never becomes."""

    @abstractmethod
    def ordinary_pieces(self) -> dict[int, str]:
        """Id -> piece of those that text is made of, single bytes apart."""

    def encode_documents(
        self, texts: pa.Array | Sequence[str], dtype: np.dtype | type = np.uint32
    ) -> tuple[np.ndarray, np.ndarray]:
        """Each document's ids, as `encode` gives them, followed by `end_id`.

        texts: large_string or string array, or str. dtype: of the tokens, wide enough for every id. Returns tokens:
        dtype[n], offsets: int64[num_documents + 1]. An empty document is one end token. Raises InputError for a lone
        surrogate.
        """
        dtype = np.dtype(dtype)
        assert self.size - 1 <= np.iinfo(dtype).max, f"{dtype} cannot hold {self.size} ids"
        tokens, lengths = [], []
        for batch in _batches(_as_array(texts)):
            batch_tokens, batch_lengths = self._encode_batch(batch, dtype)
            tokens.append(batch_tokens)
            lengths.append(batch_lengths)
        offsets = np.zeros(len(texts) + 1, dtype=np.int64)
        np.cumsum(np.concatenate(lengths, dtype=np.int64) if lengths else [], out=offsets[1:])
        return (np.concatenate(tokens) if tokens else np.empty(0, dtype)), offsets

    def _encode_batch(self, texts: pa.LargeStringArray, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
        """tokens: dtype[n] with an end token after each document, lengths: int64[num_documents], which count it."""
        ids = self._encode_many(texts.to_pylist())
        lengths = np.array([len(document) + 1 for document in ids], np.int64)
        tokens = np.full(int(lengths.sum()), self.end_id, dtype)
        start = 0
        for document in ids:
            tokens[start : start + len(document)] = document
            start += len(document) + 1
        if int((tokens == self.end_id).sum()) != len(ids):
            raise end_token_error("the tokenizer reads its end token out of ordinary text", list(self.special_pieces()))
        return tokens, lengths

    @abstractmethod
    def _encode_many(self, texts: list[str]) -> list[list[int]]:
        """`encode` of each text."""


def vocabulary_file(folder: Path) -> Path:
    """The file in `folder` that is the vocabulary. Raises InputError if there is none."""
    found = [folder / name for name in (MODEL_FILE, JSON_FILE) if (folder / name).is_file()]
    if not found:
        raise InputError(f"{folder} holds neither {MODEL_FILE} nor {JSON_FILE}; run the tokenizer stage again")
    return found[0]


def configured_end_token(folder: Path) -> str:
    """The end token that `tokenizer_config.json` of a folder names, or ""."""
    path = folder / CONFIG_FILE
    if not path.is_file():
        return ""
    try:
        token = json.loads(path.read_bytes()).get("eos_token")
    except (ValueError, AttributeError) as error:
        raise InputError(f"{path} cannot be read ({error}); mend it, or remove it") from error
    if token is None:
        return ""
    text = token.get("content") if isinstance(token, dict) else token
    if not isinstance(text, str):
        raise InputError(
            f'{path}: eos_token is {json.dumps(token)}, neither a string nor an object with a string "content"; mend '
            "it, or remove the file"
        )
    return text


def token_dtype(size: int) -> np.dtype:
    """uint16 for vocabularies of up to 65,536 ids, else uint32. size: what ids are padded to."""
    return np.dtype(np.uint16 if size <= 1 << 16 else np.uint32)


def require_unicode(text: str) -> str:
    """The text itself. Raises InputError for a lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"a text cannot be written as UTF-8 ({error.reason} at character {error.start}); repair it while curating"
        ) from error
    return text


def end_token_error(problem: str, pieces: Sequence[str]) -> InputError:
    """What a user hears whose end token cannot be used. pieces: those that can."""
    known = ", ".join(map(repr, pieces[:20])) or "none"
    return InputError(f"{problem}; set tokenizer.end_token to one of its special pieces: {known}")


def _as_array(texts: pa.Array | Sequence[str]) -> pa.Array:
    if isinstance(texts, pa.Array):
        return texts.cast(pa.large_string())
    try:
        return pa.array(texts, pa.large_string())
    except UnicodeEncodeError as error:
        number = next(i for i, text in enumerate(texts) if any("\ud800" <= c <= "\udfff" for c in text))
        raise InputError(
            f"document {number} cannot be written as UTF-8 (a lone surrogate); repair it while curating"
        ) from error


def _batches(array: pa.Array) -> Iterator[pa.Array]:
    """Slices of about ENCODE_BATCH_BYTES bytes of text each, and at least one document."""
    import pyarrow.compute as pc  # here, since it takes longest of all that a look-up of a key imports

    ends = np.cumsum(pc.binary_length(array).to_numpy(zero_copy_only=False)) if len(array) else np.zeros(0, np.int64)
    start = 0
    while start < len(array):
        before = ends[start - 1] if start else 0
        end = max(start + 1, int(np.searchsorted(ends, before + ENCODE_BATCH_BYTES, side="right")))
        yield array[start:end]
        start = end
