"""The tokenizer of a model that was trained elsewhere, used as lm-eval uses it.

Start tokens are the tokenizer's business: it puts one before a text or it does not. A text that begins with the start
token already, as a chat template may write it, gets no second one.
"""

from collections.abc import Sequence
from typing import Any

from data.errors import InputError


class PretrainedTokenizer:
    """`tokenizer`: of transformers. prefix_id: what a model reads before a text of which nothing is known, the start
    token or, without one, the end token. end_ids: what ends a generated text. Raises InputError if it names neither.
    """

    def __init__(self, tokenizer: Any, end_ids: Sequence[int] = ()) -> None:
        self._tokenizer = tokenizer
        start, end = tokenizer.bos_token_id, tokenizer.eos_token_id
        if start is None and end is None:
            raise InputError(
                "the tokenizer names neither a start token nor an end token, one of which must stand before a text: "
                "add bos_token or eos_token to its tokenizer_config.json"
            )
        self.prefix_id = int(end if start is None else start)
        self.end_ids = tuple(dict.fromkeys([*(() if end is None else (int(end),)), *end_ids]))
        self._prefix = str(tokenizer.convert_ids_to_tokens(self.prefix_id))

    @property
    def size(self) -> int:
        return len(self._tokenizer)

    @property
    def puts_start(self) -> bool:
        """Whether it puts the start token before every text."""
        return list(self.encode("a"))[:1] == [self.prefix_id]

    def encode(self, text: str) -> Sequence[int]:
        """Raises InputError for a lone surrogate, which UTF-8 cannot hold."""
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InputError("a text holds a lone surrogate, which is no character and has no tokens") from None
        has_prefix = text.startswith(self._prefix)
        return self._tokenizer.encode(text, add_special_tokens=not has_prefix)

    def decode(self, tokens: Sequence[int]) -> str:
        return self._tokenizer.decode(list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False)
