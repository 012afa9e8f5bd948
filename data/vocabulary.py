"""The vocabulary: a SentencePiece BPE model and exact encoding of documents.

    model = train_vocabulary(draw_sample({"prose": texts}, budget_bytes=10_000_000, seed=0).chunks, size=2048)
    tokens, offsets = Vocabulary(model).encode_documents(texts)

Every text comes back byte for byte from its tokens:

* identity normalisation, no whitespace removed, byte fallback: what has no piece becomes byte pieces, so no token is
  ever unknown;
* no dummy prefix. A dummy prefix would also be lossless for whole documents, but readers of other formats put it in
  front of every fragment (llama.cpp: after each special token), which changes ids; without it a text has one encoding
  everywhere, and text encodes piece by piece;
* newline is an ordinary character, which may be part of a piece (".\\n\\n"). As a user-defined symbol it costs 6 %
  more tokens (2.82 against 3.00 bytes per token on 12.8 MB of Python documentation and source, 2,048 pieces), and
  formats differ in how they match such symbols;
* SentencePiece writes a space as U+2581, so it cannot tell this character of a text from a space: `encode` gives its
  three byte pieces instead.

Control ids are 0 (unknown, never produced), 1 (beginning, never produced) and 2 (end of document). Text never becomes
a control id: "</s>" in a document is ordinary pieces. Every document of a training set is its tokens and one
end-of-document token.
"""

import io
import re
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from data.errors import InputError
from data.training_sample import CHUNK_BYTES

if TYPE_CHECKING:
    from data.word_table import WordTable

UNKNOWN_ID, BEGINNING_ID, END_ID = 0, 1, 2
NUM_CONTROL = 3
FIRST_BYTE_ID = NUM_CONTROL
SPACE_SYMBOL = "\u2581"  # how SentencePiece writes a space
ENCODE_BATCH_BYTES = 4_000_000
SETTINGS: dict[str, Any] = {
    "model_type": "bpe",
    "normalization_rule_name": "identity",
    "byte_fallback": True,
    "add_dummy_prefix": False,
    "remove_extra_whitespaces": False,
    "allow_whitespace_only_pieces": True,
    "split_digits": True,
    "unk_id": UNKNOWN_ID,
    "bos_id": BEGINNING_ID,
    "eos_id": END_ID,
    "pad_id": -1,
}


def train_vocabulary(
    chunks: Sequence[str], *, size: int, multiple: int = 1, character_coverage: float = 0.9995
) -> bytes:
    """A SentencePiece BPE model of exactly `size` pieces; the same bytes for the same input.

    chunks: texts of at most CHUNK_BYTES bytes each, without the reserved characters. character_coverage: share of the
    sample's characters that get a piece of their own; the others are spelled in bytes. Raises InputError, with the
    sizes that are possible in multiples of `multiple`.
    """
    import sentencepiece

    assert all(len(chunk.encode()) <= CHUNK_BYTES for chunk in chunks), (
        "a chunk that is too long would be left out by the trainer"
    )
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(chunks),
            model_writer=model,
            vocab_size=size,
            character_coverage=character_coverage,
            max_sentence_length=CHUNK_BYTES,
            **SETTINGS,
            num_threads=1,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise _explained(error, size, multiple) from error
    return model.getvalue()


class Vocabulary:
    """A trained vocabulary. Safe to use from several threads; each thread fills a table of its own."""

    def __init__(self, model: bytes) -> None:
        """model: a serialised SentencePiece model. Raises InputError if it is none, or was trained with other settings
        than ours.
        """
        import sentencepiece

        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        except RuntimeError as error:
            raise InputError(
                f"the tokenizer's model cannot be read ({error}); train it again with the tokenizer stage"
            ) from error
        processor = self._processor
        control = (processor.unk_id(), processor.bos_id(), processor.eos_id())
        has_bytes = (
            all(processor.is_byte(FIRST_BYTE_ID + value) for value in range(256))
            if processor.get_piece_size() >= 256 + NUM_CONTROL
            else False
        )
        if (
            control != (UNKNOWN_ID, BEGINNING_ID, END_ID)
            or not has_bytes
            or processor.normalize("\ufe30  a ") != "\ufe30\u2581\u2581a\u2581"
        ):
            raise InputError(
                "the tokenizer's model was not trained with this project's settings; train it again with the "
                "tokenizer stage"
            )
        self.size: int = processor.get_piece_size()
        self._tables = threading.local()

    @classmethod
    def load(cls, path: Path) -> "Vocabulary":
        """Read a model file, as `tokenizer.model` of the tokenizer stage."""
        return cls(path.read_bytes())

    @property
    def dtype(self) -> np.dtype:
        """The smallest type that holds every id: uint16 up to 65,536 pieces, else uint32."""
        return token_dtype(self.size)

    def token_bytes(self) -> np.ndarray:
        """int64[size]: how many bytes of text each id stands for; 0 for control ids. Summed over a document's tokens
        it is the text's length.
        """
        return np.array([len(piece) for piece in self.pieces()], dtype=np.int64)

    def pieces(self) -> list[bytes]:
        """The UTF-8 text of each id; b"" for control ids."""
        processor = self._processor
        found = []
        for token in range(self.size):
            if processor.is_byte(token):
                found.append(bytes([token - FIRST_BYTE_ID]))
            elif processor.is_control(token) or processor.is_unknown(token):
                found.append(b"")
            else:
                found.append(processor.id_to_piece(token).replace(SPACE_SYMBOL, " ").encode())
        return found

    def encode(self, text: str) -> list[int]:
        """Ids of one text, without an end-of-document token. Raises InputError for a lone surrogate, which UTF-8
        cannot hold.
        """
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InputError(
                f"a text cannot be written as UTF-8 ({error.reason} at character {error.start}); repair it while "
                "curating"
            ) from error
        tokens: list[int] = []
        for number, part in enumerate(text.split(SPACE_SYMBOL)):
            if number:
                tokens.extend(FIRST_BYTE_ID + value for value in SPACE_SYMBOL.encode())
            tokens.extend(self._processor.encode(part))
        return tokens

    def encode_documents(self, texts: pa.Array | Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Each document's ids followed by END_ID, as `encode` would give them, many times faster.

        texts: large_string or string array, or str. Returns tokens: uint16|uint32[n], offsets: int64[num_documents +
        1]. An empty document is one END_ID. Raises InputError for a lone surrogate.
        """
        table = self._table()
        tokens, lengths = [], []
        for batch in _batches(_as_array(texts)):
            batch_tokens, batch_lengths = table.encode(*_buffers(batch))
            tokens.append(batch_tokens)
            lengths.append(batch_lengths)
        offsets = np.zeros(len(texts) + 1, dtype=np.int64)
        np.cumsum(np.concatenate(lengths, dtype=np.int64) if lengths else [], out=offsets[1:])
        return (np.concatenate(tokens) if tokens else np.empty(0, self.dtype)), offsets

    def decode(self, tokens: Sequence[int] | np.ndarray) -> str:
        """The text of ids; control ids give nothing. Byte pieces that are no UTF-8, as a cut sequence may have, become
        U+FFFD.
        """
        return self._processor.decode([int(token) for token in tokens])

    def _table(self) -> "WordTable":
        from data.word_table import WordTable

        if not hasattr(self._tables, "words"):
            self._tables.words = WordTable(pieces=self.pieces(), encode=self.encode, end_id=END_ID, dtype=self.dtype)
        return self._tables.words


def token_dtype(size: int) -> np.dtype:
    """uint16 for vocabularies of up to 65,536 ids, else uint32."""
    return np.dtype(np.uint16 if size <= 1 << 16 else np.uint32)


def _explained(error: RuntimeError, size: int, multiple: int) -> Exception:
    """SentencePiece's refusal in words that name the setting to change."""
    message = str(error)
    if found := re.search(r"value <= (\d+)", message):
        largest = int(found[1]) // multiple * multiple
        return InputError(
            f"the training text is too small for a vocabulary of {size}: set the tokenizer's size to at most "
            f"{largest}, or add text"
        )
    if found := re.search(r"required_chars\. \d+ vs (\d+)", message):
        smallest = -(-int(found[1]) // multiple) * multiple
        return InputError(
            f"a vocabulary of {size} cannot hold every frequent character of the training text and the 256 bytes: "
            "set the tokenizer's size to at least "
            f"{smallest}, or lower its character_coverage"
        )
    if "!sentences_.empty()" in message:
        return InputError("there is no text to train the tokenizer on: the training part of the corpus is empty")
    return error


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
    ends = np.cumsum(pc.binary_length(array).to_numpy(zero_copy_only=False)) if len(array) else np.zeros(0, np.int64)
    start = 0
    while start < len(array):
        before = ends[start - 1] if start else 0
        end = max(start + 1, int(np.searchsorted(ends, before + ENCODE_BATCH_BYTES, side="right")))
        yield array[start:end]
        start = end


def _buffers(array: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """data: uint8[num_bytes], offsets: int64[num_documents + 1] of a large_string array without nulls."""
    assert array.null_count == 0, "a document without text"
    _, offset_buffer, data = array.buffers()
    offsets = np.frombuffer(offset_buffer, np.int64)[array.offset : array.offset + len(array) + 1]
    content = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]] if data is not None else np.empty(0, np.uint8)
    return content, offsets - offsets[0]
