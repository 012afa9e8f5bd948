"""A vocabulary from a SentencePiece model: our own, or one that was trained elsewhere.

What the model's own settings prove decides how it is used:

* It is lossless if its normaliser changes nothing, no white space is added or removed and each byte has a piece. Then
  every text comes back byte for byte, and an id stands for a fixed number of bytes. SentencePiece writes a space as
  U+2581, so it cannot tell this character of a text from a space: a lossless vocabulary gives its three byte pieces.
* A lossless BPE model is encoded through a table of words (data/vocabulary/word_table.py says why that is exact); any
  other is given whole documents, and its ids are SentencePiece's.
"""

import threading
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from data.errors import InputError
from data.vocabulary.vocabulary import SPACE_SYMBOL, Vocabulary, end_token_error, require_unicode

if TYPE_CHECKING:
    from data.vocabulary.merge_kernels import Merges
    from data.vocabulary.word_table import WordTable

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6  # kinds of pieces; GGUF counts the same
ALGORITHMS = {1: "unigram", 2: "BPE", 3: "word", 4: "character"}
BPE = 2
MAX_TABLE_SIZE = 1 << 20  # what merge_kernels.ID_BITS holds; that module brings numba, which is slow to import


class SentencePieceVocabulary(Vocabulary):
    """Each thread fills a table of words of its own."""

    def __init__(self, model: bytes, end_token: str = "") -> None:
        """model: a serialised SentencePiece model. Raises InputError as `Vocabulary.load`."""
        import sentencepiece

        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        except RuntimeError as error:
            raise InputError(
                f"the tokenizer's model cannot be read ({error}); give another file, or train it with the tokenizer "
                "stage"
            ) from error
        proto = read_model(model)
        self._texts = [piece.piece for piece in proto.pieces]
        self._kinds = [piece.type for piece in proto.pieces]
        self._scores = [piece.score for piece in proto.pieces]
        self._byte_ids = _byte_ids(self._texts, self._kinds)
        self.size = len(self._texts)
        self.end_id = self._find_end(end_token)
        losses = losing_settings(proto)
        self.lossless = not losses
        algorithm = ALGORITHMS[proto.trainer_spec.model_type]
        if losses:
            self.method, self.why = "plain", f"the model {', '.join(losses)}"
        elif proto.trainer_spec.model_type != BPE:
            self.method, self.why = (
                "plain",
                f"the best {algorithm} segmentation of a word depends on rounding around it",
            )
        elif self.size > MAX_TABLE_SIZE:
            self.method, self.why = "plain", f"a word table holds no more than {MAX_TABLE_SIZE} ids"
        else:
            self.method, self.why = "word table", "a BPE piece never spans two bytes that no piece holds side by side"
        self._tables = threading.local()

    def special_pieces(self) -> dict[str, int]:
        pairs = zip(self._texts, self._kinds, strict=True)
        return {text: number for number, (text, kind) in enumerate(pairs) if kind == CONTROL}

    def ordinary_pieces(self) -> dict[int, str]:
        pairs = enumerate(zip(self._texts, self._kinds, strict=True))
        return {number: text for number, (text, kind) in pairs if kind in (NORMAL, USER_DEFINED)}

    def token_bytes(self) -> np.ndarray | None:
        if not self.lossless:
            return None
        return np.array([len(piece) for piece in self.pieces()], dtype=np.int64)

    def pieces(self) -> list[bytes]:
        """The UTF-8 text of each id; b"" for control and unknown ids."""
        found = []
        for text, kind in zip(self._texts, self._kinds, strict=True):
            if kind == BYTE:
                found.append(bytes([int(text[3:5], 16)]))
            else:
                found.append(b"" if kind in (CONTROL, UNKNOWN) else text.replace(SPACE_SYMBOL, " ").encode())
        return found

    def encode(self, text: str) -> list[int]:
        parts = require_unicode(text).split(SPACE_SYMBOL) if self.lossless else [text]
        tokens: list[int] = self._processor.encode(parts[0])
        for part in parts[1:]:
            tokens.extend(self._byte_ids[value] for value in SPACE_SYMBOL.encode())
            tokens.extend(self._processor.encode(part))
        return tokens

    def decode(self, tokens: Sequence[int] | np.ndarray) -> str:
        return self._processor.decode([int(token) for token in tokens])

    def _encode_many(self, texts: list[str]) -> list[list[int]]:
        found: list[list[int]] = self._processor.encode(texts, num_threads=1)
        if self.lossless:
            for number, text in enumerate(texts):
                if SPACE_SYMBOL in text:
                    found[number] = self.encode(text)
        return found

    def _encode_batch(self, texts: pa.LargeStringArray, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
        if self.method == "plain":
            return super()._encode_batch(texts, dtype)
        if not hasattr(self._tables, "words"):
            self._tables.words = self._make_table()
        return self._tables.words.encode(*_buffers(texts), dtype)

    def _make_table(self) -> "WordTable":
        from data.vocabulary.word_table import WordTable

        return WordTable(joined=self._joined, merges=self._merges, encode=self.encode, end_id=self.end_id)

    @cached_property
    def _joined(self) -> np.ndarray:
        from data.vocabulary.word_table import joined_pairs

        return joined_pairs(self.pieces())

    @cached_property
    def _merges(self) -> "Merges":
        """None if some pieces are matched before others are merged, or merged and taken apart again."""
        from data.vocabulary.merge_kernels import NO_MERGES, merges_of

        if {USER_DEFINED, UNUSED} & set(self._kinds):
            return NO_MERGES
        normal = [number for number, kind in enumerate(self._kinds) if kind == NORMAL]
        return merges_of(
            [self._texts[number].replace(SPACE_SYMBOL, " ") for number in normal],
            normal,
            [self._scores[number] for number in normal],
            [self._byte_ids[value] for value in range(256)],
        )

    def _find_end(self, end_token: str) -> int:
        special = self.special_pieces()
        if end_token:
            if end_token not in special:
                raise end_token_error(f"the tokenizer has no special piece {end_token!r}", list(special))
            return special[end_token]
        end = self._processor.eos_id()
        if end < 0 or self._kinds[end] != CONTROL:
            raise end_token_error("the tokenizer's model names no piece that ends a document", list(special))
        return end


def read_model(model: bytes) -> Any:
    """The model as a protocol buffer message."""
    from sentencepiece import sentencepiece_model_pb2

    proto = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]
    proto.ParseFromString(model)
    return proto


def losing_settings(proto: Any) -> list[str]:
    """What keeps a model from giving every text back byte for byte, as predicates of "the model"."""
    normalizer = proto.normalizer_spec
    kinds = [piece.type for piece in proto.pieces]
    found = {
        "has a normaliser that rewrites text": normalizer.name != "identity" or normalizer.precompiled_charsmap != b"",
        "adds a dummy prefix": normalizer.add_dummy_prefix,
        "removes white space": normalizer.remove_extra_whitespaces,
        "does not escape white space": not normalizer.escape_whitespaces,
        "has no byte pieces": kinds.count(BYTE) != 256 or not proto.trainer_spec.byte_fallback,
        "rewrites decoded text": proto.denormalizer_spec.precompiled_charsmap != b"",
    }
    return [loss for loss, there in found.items() if there]


def _byte_ids(texts: Sequence[str], kinds: Sequence[int]) -> dict[int, int]:
    """Byte value -> id."""
    pairs = enumerate(zip(texts, kinds, strict=True))
    return {int(text[3:5], 16): number for number, (text, kind) in pairs if kind == BYTE}


def _buffers(array: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """data: uint8[num_bytes], offsets: int64[num_documents + 1] of a large_string array without nulls."""
    assert array.null_count == 0, "a document without text"
    _, offset_buffer, data = array.buffers()
    offsets = np.frombuffer(offset_buffer, np.int64)[array.offset : array.offset + len(array) + 1]
    content = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]] if data is not None else np.empty(0, np.uint8)
    return content, offsets - offsets[0]
