"""Training text to a vocabulary: a SentencePiece BPE model that gives every text back byte for byte.

    python -m stages.tokenizer RECIPE

It reads the corpus's training text only. The model has exactly as many rows as the vocabulary has ids, so the size is a
multiple of what matrix kernels like, and nothing is padded later.
"""

import time
from pathlib import Path
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, model_validator

from data.errors import InputError
from data.training_sample import MAX_SAMPLE_BYTES, draw_sample
from data.vocabulary import BEGINNING_ID, END_ID, SETTINGS, UNKNOWN_ID, Vocabulary, train_vocabulary
from stages.base import Facts, Inputs, One, Stage
from stages.cli import main
from stages.config import StageConfig
from stages.curate.artifact import TRAIN, read_domains
from stages.files import write_atomic
from stages.journal import Journal

MODEL_FILE = "tokenizer.model"
MEASURED_BYTES = 1_000_000


class TokenizerConfig(StageConfig):
    size: int = Field(
        2048, ge=320, le=1 << 20, description="Ids of the vocabulary: pieces, 256 bytes and 3 control ids"
    )
    size_multiple: int = Field(
        64, ge=1, description="What the size must be a multiple of, for the kernels that multiply with it"
    )
    character_coverage: float = Field(
        0.9995, gt=0, le=1, description="Share of the characters that get a piece; the others are spelled in bytes"
    )
    sample_bytes: int = Field(
        20_000_000, ge=1, le=MAX_SAMPLE_BYTES, description="Most bytes of text to train on, over all domains"
    )
    sample_weights: dict[str, float] = Field(
        {}, description="Domain: weight of its text in the sample; empty: each domain by its bytes"
    )
    seed: int = Field(1, ge=0, lt=2**63, description="Seed of the choice of documents")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.size % self.size_multiple:
            below = self.size // self.size_multiple * self.size_multiple
            raise ValueError(
                f"tokenizer.size = {self.size} is not a multiple of tokenizer.size_multiple = {self.size_multiple}; "
                f"the nearest that are: {below} and {below + self.size_multiple}"
            )
        if any(weight <= 0 for weight in self.sample_weights.values()):
            raise ValueError("tokenizer.sample_weights: weights must be above 0")
        return self


def run(config: TokenizerConfig, inputs: Inputs, out: Path, journal: Journal) -> Facts:
    """Draw, train, and measure on training text that it gives every byte back."""
    started = time.perf_counter()
    journal.progress("sample", 0, 1, "steps")
    texts = training_texts(inputs["corpus"].path)
    sample = draw_sample(texts, budget_bytes=config.sample_bytes, seed=config.seed, weights=config.sample_weights)
    assert sample.skipped_bytes == 0, f"{sample.skipped_bytes} bytes of the sample reached no chunk"
    journal.progress("sample", 1, 1, "steps")
    journal.event("note", text=f"training {config.size} ids on {sum(sample.sampled_bytes.values()):,} bytes")
    journal.progress("train", 0, 1, "steps")  # SentencePiece does not say how far it is
    model = train_vocabulary(
        sample.chunks,
        size=config.size,
        multiple=config.size_multiple,
        character_coverage=config.character_coverage,
    )
    journal.progress("train", 1, 1, "steps")
    trained = time.perf_counter()
    vocabulary = Vocabulary(model)
    assert vocabulary.size == config.size, f"the trainer made {vocabulary.size} ids, not {config.size}"
    bytes_per_token = {}
    journal.progress("measure", 0, len(texts), "domains")
    for number, (domain, column) in enumerate(texts.items(), start=1):
        bytes_per_token[domain] = _bytes_per_token(vocabulary, column)
        journal.progress("measure", number, len(texts), "domains")
    write_atomic(out / MODEL_FILE, model)
    return Facts(
        facts={
            "vocabulary_size": vocabulary.size,
            "eos_id": END_ID,
            "bos_id": BEGINNING_ID,
            "unk_id": UNKNOWN_ID,
            "bytes_per_token": bytes_per_token,
            "sampled_bytes": sample.sampled_bytes,
            "skipped_bytes": sample.skipped_bytes,
            "reserved_bytes": sample.reserved_bytes,
            "settings": SETTINGS | {"character_coverage": config.character_coverage},
        },
        measurements={"train_seconds": trained - started, "measure_seconds": time.perf_counter() - trained},
    )


def training_texts(corpus: Path) -> dict[str, pa.ChunkedArray]:
    """Domain -> its texts. Raises InputError if there is no text at all."""
    texts = {domain: table.column("text") for domain, table in read_domains(corpus, TRAIN, ("text",)).items()}
    if not any(len(column) for column in texts.values()):
        raise InputError(
            "the training part of the corpus is empty, so there is nothing to train a tokenizer on; add text to "
            "curate.sources, or drop less of it"
        )
    return texts


def _bytes_per_token(vocabulary: Vocabulary, column: pa.ChunkedArray) -> float | None:
    """Bytes for each token (end-of-document tokens apart) over the domain's first MEASURED_BYTES bytes; None without
    text.

    Every document that is measured is decoded too, and must come back as it was.
    """
    num_bytes = num_tokens = 0
    for text in column:
        if num_bytes >= MEASURED_BYTES:
            break
        tokens, _ = vocabulary.encode_documents([text.as_py()])
        assert vocabulary.decode(tokens) == text.as_py(), "a document does not come back from its tokens"
        num_bytes += int(pc.binary_length(text).as_py())
        num_tokens += len(tokens) - 1
    return round(num_bytes / num_tokens, 6) if num_tokens else None


STAGE = Stage(name="tokenizer", revision=1, config=TokenizerConfig, inputs={"corpus": One("curate")}, run=run)

if __name__ == "__main__":
    main(STAGE)
