"""Tokenizers as other people make them."""

import io
from collections.abc import Callable
from functools import cache
from typing import Any

from data.vocabulary.sentencepiece import read_model
from tests.data.texts import model, prose


def sentencepiece_model(**settings: Any) -> bytes:
    """A SentencePiece model with the trainer's own settings, but for those given."""
    import sentencepiece

    out = io.BytesIO()
    lines = [line for text in prose()[:20] for line in text.splitlines() if line]
    sentencepiece.SentencePieceTrainer.train(
        **{
            "sentence_iterator": iter(lines),
            "model_writer": out,
            "vocab_size": 450,
            "model_type": "bpe",
            "pad_id": -1,
            "num_threads": 1,
            "minloglevel": 2,
            **settings,
        }
    )
    return out.getvalue()


LOSSLESS = {
    "byte_fallback": True,
    "normalization_rule_name": "identity",
    "add_dummy_prefix": False,
    "remove_extra_whitespaces": False,
    "allow_whitespace_only_pieces": True,
}


def edited_model(edit: Callable[[Any], None], size: int = 600) -> bytes:
    """Our own model after `edit` has changed its message."""
    proto = read_model(model(size))
    edit(proto)
    return proto.SerializeToString()


@cache
def byte_level_json(
    *, prefix_space: bool = False, adds_special: bool = False, nfc: bool = False, end: str = "<|endoftext|>"
) -> bytes:
    """A byte-level BPE tokenizer.json, as GPT-2's, of 400 ids. It cuts texts at 5 ids and pads them to 9, if asked."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    made.decoder = decoders.ByteLevel()
    if nfc:
        made.normalizer = normalizers.NFC()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=[end, "<|begin|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(prose()[:10], trainer)
    made.add_tokens(["zyzzyva  "])
    if adds_special:
        made.post_processor = processors.TemplateProcessing(
            single=f"<|begin|> $A {end}", special_tokens=[(end, 0), ("<|begin|>", 1)]
        )
        made.enable_truncation(5)
        made.enable_padding(length=9)
    return made.to_str().encode()
