"""The tokenizer of an exported model: tokenizer.json for Hugging Face, and the token list of a GGUF file, both from the
SentencePiece model.

The loaders that convert a SentencePiece model by guessing give other ids for leading spaces and for "</s>" written in a
text, so both forms are built here from the model's own pieces, and `differences` compares what was exported with
SentencePiece itself.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data.errors import InputError
from data.vocabulary import SPACE_SYMBOL
from stages.tokenizer import MODEL_FILE

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6  # of SentencePiece; GGUF counts the same

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
    encode: Callable[[str], list[int]]


def read_sentencepiece(path: Path) -> SentencePieceModel:
    """Raises InputError for a model that the exported forms could not reproduce exactly: another algorithm than BPE, a
    normaliser that rewrites text, a dummy prefix (which readers also put after each special token), no byte pieces.
    """
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2

    proto = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]
    proto.ParseFromString(path.read_bytes())
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    kinds = {piece.type for piece in proto.pieces}
    refused = {
        "is not BPE": proto.trainer_spec.model_type != 2,
        "has a normaliser that rewrites text": proto.normalizer_spec.name != "identity"
        or proto.normalizer_spec.precompiled_charsmap != b"",
        "adds a dummy prefix": proto.normalizer_spec.add_dummy_prefix,
        "removes white space": proto.normalizer_spec.remove_extra_whitespaces,
        "has no byte pieces": BYTE not in kinds,
        "has no end-of-document piece": processor.eos_id() < 0,
    }
    if any(refused.values()):
        reasons = ", ".join(reason for reason, found in refused.items() if found)
        raise InputError(
            f"tokenizer {path.name} cannot be exported exactly: it {reasons}; train it with the tokenizer stage"
        )
    pieces = tuple(Piece(text=piece.piece, score=piece.score, kind=piece.type) for piece in proto.pieces)
    return SentencePieceModel(
        pieces=pieces, unk_id=processor.unk_id(), eos_id=processor.eos_id(), encode=processor.encode
    )


def require_rows(vocabulary_rows: int, model: SentencePieceModel) -> None:
    """Raise InputError unless the model has exactly one row for each piece: a row without one could be generated."""
    if vocabulary_rows != len(model.pieces):
        raise InputError(
            f"the model has {vocabulary_rows} vocabulary rows and the tokenizer {len(model.pieces)} pieces; "
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


def tokenizer_config(model: SentencePieceModel, max_length: int) -> dict[str, Any]:
    """The content of tokenizer_config.json. `split_special_tokens`: a special token that stands in a text is ordinary
    text, as it was in training.
    """
    end = model.pieces[model.eos_id].text
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_length,
        "bos_token": end,
        "eos_token": end,
        "unk_token": model.pieces[model.unk_id].text,
        "add_bos_token": False,
        "add_eos_token": False,
        "split_special_tokens": True,
        "clean_up_tokenization_spaces": False,
    }


def write_tokenizer(source: Path, directory: Path, *, vocabulary_rows: int, max_length: int) -> None:
    """tokenizer.json, tokenizer_config.json and tokenizer.model in `directory`. Raises InputError as `require_rows`."""
    model = read_sentencepiece(source)
    require_rows(vocabulary_rows, model)
    (directory / "tokenizer.json").write_text(tokenizer_json(model), encoding="utf-8")
    config = json.dumps(tokenizer_config(model, max_length), indent=2, ensure_ascii=False)
    (directory / "tokenizer_config.json").write_text(config + "\n", encoding="utf-8")
    (directory / MODEL_FILE).write_bytes(source.read_bytes())


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
