"""Training a vocabulary: a SentencePiece model that gives every text back byte for byte.

    model = train_vocabulary(draw_sample({"prose": texts}, budget_bytes=10_000_000, seed=0).chunks, size=2048)
    vocabulary = SentencePieceVocabulary(model)

* Identity normalisation, no whitespace removed, byte fallback: what has no piece becomes byte pieces, so no token is
  ever unknown.
* No dummy prefix. A dummy prefix would also be lossless for whole documents, but readers of other formats put it in
  front of every fragment (llama.cpp: after each special token), which changes ids; without it a text has one encoding
  everywhere, and text encodes piece by piece.
* Newline is an ordinary character, which may be part of a piece (".\\n\\n"). As a user-defined symbol it costs 6 %
  more tokens (2.82 against 3.00 bytes per token on 12.8 MB of Python documentation and source, 2,048 pieces), and
  formats differ in how they match such symbols.

Ids: 0 (unknown, never produced), 1 (beginning, never produced), 2 (end of document), the declared special tokens in
their order, the 256 bytes, the pieces.
"""

import io
import re
from collections.abc import Sequence
from typing import Any, Literal

from data.errors import InputError
from data.vocabulary.sentencepiece import NORMAL, read_model
from data.vocabulary.training_sample import CHUNK_BYTES
from data.vocabulary.vocabulary import BEGINNING_ID, END_ID, UNKNOWN_ID

Algorithm = Literal["bpe", "unigram"]

SETTINGS: dict[str, Any] = {
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
    chunks: Sequence[str],
    *,
    size: int,
    multiple: int = 1,
    character_coverage: float = 0.9995,
    algorithm: Algorithm = "bpe",
    special_tokens: Sequence[str] = (),
) -> bytes:
    """A SentencePiece model of exactly `size` ids; the same bytes for the same input.

    chunks: texts of at most CHUNK_BYTES bytes each, without the reserved characters. character_coverage: share of the
    sample's characters that get a piece of their own; the others are spelled in bytes. special_tokens: control pieces
    that no text becomes. Raises InputError, with the sizes that are possible in multiples of `multiple`.
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
            model_type=algorithm,
            vocab_size=size,
            character_coverage=character_coverage,
            control_symbols=list(special_tokens),
            max_sentence_length=CHUNK_BYTES,
            **SETTINGS,
            num_threads=1,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise _explained(error, size, multiple) from error
    _require_unreachable(model.getvalue(), special_tokens)
    return model.getvalue()


def require_special_tokens(tokens: Sequence[str]) -> None:
    """Raise InputError unless these can be control pieces: distinct, not those that every vocabulary has, and of two
    characters at least (readers of other formats look a character up among all pieces).
    """
    taken = {"<unk>", "<s>", "</s>"}
    for token in tokens:
        problem = (
            "is declared twice" if tokens.count(token) > 1
            else "is there already" if token in taken or re.fullmatch("<0x[0-9A-F]{2}>", token)
            else "must have two characters at least" if len(token) < 2
            else "must not hold white space or U+2581" if re.search(r"\s|\u2581", token)
            else ""
        )  # fmt: skip
        if problem:
            raise InputError(f"tokenizer.special_tokens: {token!r} {problem}; write it as <|name|>")


def _require_unreachable(model: bytes, special_tokens: Sequence[str]) -> None:
    """Raise InputError for a special token that two ordinary pieces make: SentencePiece never joins them, but llama.cpp
    would.
    """
    pieces = {piece.piece for piece in read_model(model).pieces if piece.type == NORMAL}
    for token in special_tokens:
        for cut in range(1, len(token)):
            if token[:cut] in pieces and token[cut:] in pieces:
                raise InputError(
                    f"tokenizer.special_tokens: {token!r} could be read out of a text, as the pieces {token[:cut]!r} "
                    f"and {token[cut:]!r}; write it as <|name|>"
                )


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
