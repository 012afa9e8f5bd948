"""Real text that every Python installation carries, and a vocabulary trained on it."""

import textwrap
from functools import cache
from pathlib import Path
from pydoc_data.topics import topics

from data.vocabulary.sentencepiece import SentencePieceVocabulary
from data.vocabulary.training import train_vocabulary

AWKWARD = (
    "",
    " ",
    "\n",
    "def f():\n\treturn  1\n\n",
    "one\r\ntwo\r\n\r\n",
    "  leading",
    "trailing  ",
    "\t\t tabs \t",
    "a\0b",
    "\0",
    "\ufe30 \u0140 \u2460 \ufb01 \u338f e\u0301",
    "use </s> to end, <|endoftext|> too, <s> <unk> <0x41>",
    "Za\u017c\u00f3\u0142\u0107 \uae70 \U0001f680 \x07 \u4e2d\u6587",
    "\u2581x\u2581\u2581 y \u2581",
    "\u2585\u2585 progress",
    "\u2028\u2029\x85\x0b\x0c",
    "\ufeffmark",
    "123 4567890",
    "=" * 300,
)


@cache
def prose() -> tuple[str, ...]:
    """The language reference: 80 documents, about 700 kB."""
    return tuple(topics[name] for name in sorted(topics))


@cache
def code() -> tuple[str, ...]:
    """A dozen modules of the standard library."""
    folder = Path(textwrap.__file__).parent
    return tuple(path.read_text(encoding="utf-8") for path in sorted(folder.glob("[a-d]*.py"))[:12])


@cache
def model(size: int = 600) -> bytes:
    chunks = [text[start : start + 1000] for text in prose()[:40] for start in range(0, len(text), 1000)]
    return train_vocabulary(chunks, size=size)


@cache
def vocabulary(size: int = 600) -> SentencePieceVocabulary:
    return SentencePieceVocabulary(model(size))
