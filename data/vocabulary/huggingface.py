"""A vocabulary from a tokenizer.json, through the tokenizers library, as data: nothing in it is code.

What would add to a text or take from it is switched off: the post-processor's special tokens, truncation and padding.
A special token that stands in a text is ordinary text. Documents are encoded whole.
"""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from data.errors import InputError
from data.vocabulary.vocabulary import Vocabulary, end_token_error, require_unicode


class HuggingFaceVocabulary(Vocabulary):
    """The ids of a tokenizer.json. `size` is one more than the largest id."""

    method = "plain"
    why = "a tokenizer.json may split a text by what stands around a word, so documents are encoded whole"

    def __init__(self, content: bytes, end_token: str) -> None:
        """content: of a tokenizer.json. end_token: the piece that ends a document, which the file does not name.

        Raises InputError as `Vocabulary.load`.
        """
        from tokenizers import Tokenizer

        try:
            self._tokenizer = Tokenizer.from_str(content.decode())
            self._values = json.loads(content)
        except Exception as error:  # the library raises no class of its own
            raise InputError(f"the tokenizer.json cannot be read ({error}); give another file") from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = True
        self.size = max(self._tokenizer.get_vocab().values()) + 1
        special = self.special_pieces()
        if not end_token:
            raise end_token_error("a tokenizer.json does not say which piece ends a document", list(special))
        if end_token not in special:
            raise end_token_error(f"the tokenizer has no special piece {end_token!r}", list(special))
        self.end_id = special[end_token]
        if any(self.end_id in self.encode(text) for text in (end_token, f"a {end_token} b", f"a{end_token}b")):
            raise end_token_error(f"the tokenizer reads its piece {end_token!r} out of ordinary text", list(special))

    def special_pieces(self) -> dict[str, int]:
        added = self._tokenizer.get_added_tokens_decoder()
        return {token.content: number for number, token in sorted(added.items()) if token.special}

    def ordinary_pieces(self) -> dict[int, str]:
        from tokenizers import pre_tokenizers

        special, alphabet = set(self.special_pieces().values()), set(pre_tokenizers.ByteLevel.alphabet())
        bytes_alone = alphabet | {f"<0x{value:02X}>" for value in range(256)}
        pieces = sorted((number, piece) for piece, number in self._tokenizer.get_vocab().items())
        return {number: piece for number, piece in pieces if number not in special and piece not in bytes_alone}

    def encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(require_unicode(text), add_special_tokens=False).ids

    def decode(self, tokens: Sequence[int] | np.ndarray) -> str:
        return self._tokenizer.decode([int(token) for token in tokens], skip_special_tokens=True)

    def token_bytes(self) -> np.ndarray | None:
        """Known of byte-level BPE alone, where each character of a piece is a byte."""
        if not _is_byte_level(self._values):
            return None
        found = np.zeros(self.size, np.int64)
        for piece, number in self._tokenizer.get_vocab(with_added_tokens=False).items():
            found[number] = len(piece)
        for number, token in self._tokenizer.get_added_tokens_decoder().items():
            if not token.special and (token.lstrip or token.rstrip or self.decode([number]) != token.content):
                return None
            found[number] = 0 if token.special else len(token.content.encode())
        return found

    def _encode_many(self, texts: list[str]) -> list[list[int]]:
        return [found.ids for found in self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)]


def _is_byte_level(values: dict[str, Any]) -> bool:
    """Whether a tokenizer.json is BPE over bytes that neither adds, changes nor drops one."""
    from tokenizers import pre_tokenizers

    model, normalizer = values["model"], values.get("normalizer")
    splitter, decoder = values.get("pre_tokenizer") or {}, values.get("decoder") or {}
    steps = splitter.get("pretokenizers", [splitter])
    keeps = {
        "ByteLevel": lambda step: not step["add_prefix_space"],
        "Split": lambda step: step["behavior"] != "Removed",
        "Digits": lambda step: True,
    }
    return (
        model.get("type") == "BPE"
        and not (model.get("dropout") or model.get("continuing_subword_prefix") or model.get("end_of_word_suffix"))
        and set(pre_tokenizers.ByteLevel.alphabet()) <= set(model["vocab"])
        and normalizer is None
        and all(step.get("type") in keeps and keeps[step["type"]](step) for step in steps)
        and [step["type"] for step in steps].count("ByteLevel") == 1
        and decoder.get("type") == "ByteLevel"
    )
