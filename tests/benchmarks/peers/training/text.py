"""Text for trainings that read none of our formats: sources of the standard library, and a vocabulary of them."""

import json
import sysconfig
from pathlib import Path

NUM_FILES = 4
LINE_CHARACTERS = 4000


def write_text(folder: Path, *, vocabulary_size: int, num_sources: int) -> None:
    """files/: text files; lines/: the same as lines of JSON; tokenizer/: byte-level BPE in the format of the tokenizers
    library."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    for name in ("files", "lines", "tokenizer"):
        (folder / name).mkdir(parents=True)
    sources = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))[:num_sources]
    texts = [path.read_text(errors="ignore") for path in sources]
    for number in range(NUM_FILES):
        (folder / "files" / f"{number}.txt").write_text("\n".join(texts[number::NUM_FILES]))
    pieces = (text[at : at + LINE_CHARACTERS] for text in texts for at in range(0, len(text), LINE_CHARACTERS))
    (folder / "lines" / "data.json").write_text("\n".join(json.dumps({"text": piece}) for piece in pieces))
    begin, end = "<|begin_of_text|>", "<|end_of_text|>"
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size, special_tokens=[begin, end], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.save(str(folder / "tokenizer" / "tokenizer.json"))
    config = {"bos_token": begin, "eos_token": end, "tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer" / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "tokenizer" / "generation_config.json").write_text(json.dumps({"bos_token_id": 0, "eos_token_id": 1}))
