"""The tokenizer of an exported model: tokenizer.json for Hugging Face, and the token list of a GGUF file.

The loaders that convert a SentencePiece model by guessing give other ids for leading spaces and for "</s>" written in a
text, so both forms are built here from the model's own pieces, and `differences` compares what was exported with the
vocabulary itself. A tokenizer.json goes into the Hugging Face form as it is, less what would add to a text.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data.errors import InputError
from data.vocabulary.sentencepiece import (
    BPE,
    CONTROL,
    NORMAL,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    losing_settings,
    read_model,
)
from data.vocabulary.vocabulary import (
    CONFIG_FILE,
    JSON_FILE,
    MODEL_FILE,
    SPACE_SYMBOL,
    Vocabulary,
    configured_end_token,
)

EDGE_TEXTS = (
    *(
        "",
        " ",
        "  ",
        "a",
        " a",
        "  a",
        "a ",
        "a  b",
        "\n",
        "\n\n\n",
        "a\nb",
        " \n ",
        "\t",
        "a\r\nb",
        "1234567890",
        "...",
        "====",
    ),
    *("def f(x):\n    return x\n", "use </s> to end", "</s>", "<s>a</s>", "<unk>", "<0x41>", "<|im_start|>user"),
    *("Za\u017c\u00f3\u0142\u0107 \uae30 \U0001f680 \x07", "a\0b", "\0", "\u00e9e\u0301", "\ufeffa", "\u202eabc"),
    *("\U0001f468\u200d\U0001f469\u200d\U0001f467", "\x7f\x85\u2028\u2029", "\ud7ff\ue000\U0010ffff"),
)


@dataclass(frozen=True, kw_only=True)
class Piece:
    """One entry of the vocabulary, as SentencePiece has it."""

    text: str
    score: float
    kind: int


@dataclass(frozen=True, kw_only=True)
class SentencePieceModel:
    """What an exporter needs to know of a SentencePiece model."""

    pieces: tuple[Piece, ...]
    unk_id: int
    eos_id: int


def unfit(source: Path, *, gguf: bool) -> list[str]:
    """Why this tokenizer has no exact form, one sentence each; known before any work. source: tokenizer.model or
    tokenizer.json; gguf: the form is a GGUF file, not Hugging Face's.
    """
    if source.suffix == ".json":
        return ["its tokenizer is a tokenizer.json; GGUF files are written from SentencePiece models"] if gguf else []
    proto = read_model(source.read_bytes())
    reasons = losing_settings(proto)
    if proto.trainer_spec.model_type != BPE:
        reasons.insert(0, "is not BPE, and readers of other formats round its scores in other ways")
    if any(piece.type == UNUSED for piece in proto.pieces):
        reasons.append("has unused pieces, which readers of other formats do not take apart")
    return [f"its tokenizer {reason}" for reason in reasons]


def read_sentencepiece(path: Path) -> SentencePieceModel:
    """Raises InputError for a model that the exported forms could not reproduce exactly: another algorithm than BPE, a
    normaliser that rewrites text, a dummy prefix (which readers also put after each special token), no byte pieces.
    """
    reasons = unfit(path, gguf=True)
    if reasons:
        raise InputError(
            f"tokenizer {path.name} cannot be exported exactly ({'; '.join(reasons)}); take the form out of "
            "export.forms, or train the tokenizer with the tokenizer stage"
        )
    vocabulary = Vocabulary.load(path, configured_end_token(path.parent))
    proto = read_model(path.read_bytes())
    pieces = tuple(Piece(text=piece.piece, score=piece.score, kind=piece.type) for piece in proto.pieces)
    unknown = next(number for number, piece in enumerate(pieces) if piece.kind == UNKNOWN)
    return SentencePieceModel(pieces=pieces, unk_id=unknown, eos_id=vocabulary.end_id)


def require_rows(vocabulary_rows: int, num_ids: int) -> None:
    """Raise InputError unless the model has exactly one row for each id: a row without one could be generated."""
    if vocabulary_rows != num_ids:
        raise InputError(
            f"the model has {vocabulary_rows} vocabulary rows and the tokenizer {num_ids} pieces; "
            "they must be equal: train the model on the tokens of this tokenizer"
        )


def merges(pieces: Sequence[Piece]) -> list[tuple[str, str]]:
    """The merges of a BPE vocabulary, best first: every way to put a piece together from two others, in the order of
    the pieces' scores. Control, unknown and byte pieces take no part, so that no text can become one.
    """
    index = {piece.text: number for number, piece in enumerate(pieces) if piece.kind == NORMAL}
    found = []
    for piece in sorted((p for p in pieces if p.kind == NORMAL), key=lambda p: -p.score):
        splits = ((piece.text[:cut], piece.text[cut:]) for cut in range(1, len(piece.text)))
        found += sorted(
            (split for split in splits if split[0] in index and split[1] in index),
            key=lambda split: (index[split[0]], index[split[1]]),
        )
    return found


def tokenizer_json(model: SentencePieceModel) -> str:
    """The content of tokenizer.json, in the format of the tokenizers library."""
    from tokenizers import AddedToken, Tokenizer, decoders, normalizers
    from tokenizers.models import BPE

    vocabulary = {piece.text: number for number, piece in enumerate(model.pieces)}
    tokenizer = Tokenizer(
        BPE(
            vocab=vocabulary,
            merges=merges(model.pieces),
            unk_token=model.pieces[model.unk_id].text,
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    tokenizer.normalizer = normalizers.Replace(" ", SPACE_SYMBOL)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(SPACE_SYMBOL, " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    tokenizer.add_special_tokens(
        [AddedToken(p.text, special=True, normalized=False) for p in model.pieces if p.kind in (CONTROL, UNKNOWN)]
    )
    tokenizer.add_tokens(
        [AddedToken(p.text, special=False, normalized=False) for p in model.pieces if p.kind == USER_DEFINED]
    )
    return tokenizer.to_str(pretty=False)


def plain_json(content: bytes) -> str:
    """A tokenizer.json without what would add to a text or cut it: a post-processor's tokens, padding, truncation."""
    values = json.loads(content)
    keeps = (values.get("post_processor") or {}).get("type") in (None, "ByteLevel")
    if keeps and not values.get("padding") and not values.get("truncation"):
        return content.decode()
    changed = {"padding": None, "truncation": None, **({} if keeps else {"post_processor": None})}
    return json.dumps(values | changed, ensure_ascii=False)


def tokenizer_config(end_token: str, unknown_token: str | None, max_length: int) -> dict[str, Any]:
    """The content of tokenizer_config.json. `split_special_tokens`: a special token that stands in a text is ordinary
    text, as it was in training.
    """
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_length,
        "bos_token": end_token,  # a document follows the end of another
        "eos_token": end_token,
        "unk_token": unknown_token,
        "add_bos_token": False,
        "add_eos_token": False,
        "split_special_tokens": True,
        "clean_up_tokenization_spaces": False,
    }


def write_tokenizer(source: Path, directory: Path, *, vocabulary_rows: int, max_length: int) -> None:
    """tokenizer.json and tokenizer_config.json in `directory`, and tokenizer.model if `source` is one.

    Raises InputError as `require_rows` and `read_sentencepiece`.
    """
    if source.suffix == ".json":
        vocabulary = Vocabulary.load(source, configured_end_token(source.parent))
        require_rows(vocabulary_rows, vocabulary.size)
        end_token = next(piece for piece, token in vocabulary.special_pieces().items() if token == vocabulary.end_id)
        content, unknown = plain_json(source.read_bytes()), None
    else:
        model = read_sentencepiece(source)
        require_rows(vocabulary_rows, len(model.pieces))
        end_token, unknown = model.pieces[model.eos_id].text, model.pieces[model.unk_id].text
        content = tokenizer_json(model)
        (directory / MODEL_FILE).write_bytes(source.read_bytes())
    (directory / JSON_FILE).write_text(content, encoding="utf-8")
    config = json.dumps(tokenizer_config(end_token, unknown, max_length), indent=2, ensure_ascii=False)
    (directory / CONFIG_FILE).write_text(config + "\n", encoding="utf-8")


def load_tokenizer(directory: Path) -> Any:
    """The exported tokenizer, as a user of transformers gets it."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(directory, local_files_only=True, trust_remote_code=False)


def differences(
    reference: Callable[[str], Sequence[int]],
    exported: Callable[[str], Sequence[int]],
    texts: Iterable[str],
    most: int = 5,
) -> list[str]:
    """Up to `most` texts whose ids differ, with the first place where they do, one sentence each."""
    found = []
    for text in texts:
        wanted, got = list(reference(text)), list(exported(text))
        if wanted != got:
            place = next(
                (i for i, (a, b) in enumerate(zip(wanted, got, strict=False)) if a != b), min(len(wanted), len(got))
            )
            around = slice(max(0, place - 2), place + 4)
            found.append(
                f"{text[:60]!r}: at token {place} SentencePiece gives {wanted[around]}, the export {got[around]}"
            )
            if len(found) == most:
                break
    return found
