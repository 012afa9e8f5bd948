"""Training text to a vocabulary: a SentencePiece model that gives every text back byte for byte, or one that exists.

    python -m stages.tokenizer RECIPE

It reads the corpus's training text only. The artifact holds tokenizer.model or tokenizer.json; where the recipe names
the end token of an existing one, tokenizer_config.json holds it.

One rule for the rows of a model's matrices: they are the next multiple of `size_multiple` (`padded_vocabulary_size`); a
vocabulary that is trained here has exactly as many ids. Rows without an id are never scored, sampled or exported.
"""

import hashlib
import time
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
from pydantic import Field, model_validator

from data.errors import InputError
from data.vocabulary.token_statistics import TokenStatistics, measure_tokens
from data.vocabulary.training import SETTINGS, Algorithm, require_special_tokens, train_vocabulary
from data.vocabulary.training_sample import MAX_SAMPLE_BYTES, Sample, draw_sample
from data.vocabulary.vocabulary import CONFIG_FILE, JSON_FILE, MODEL_FILE, Vocabulary, configured_end_token
from stages.base import Facts, Inputs, One, Stage
from stages.cli import main
from stages.config import StageConfig, runtime
from stages.curate.artifact import TRAIN, read_domains
from stages.errors import TryAgain
from stages.files import sha256_file, write_atomic, write_json
from stages.journal import Journal
from stages.store import Store

MEASURED_BYTES = 1_000_000
NUM_NAMED_PIECES = 20
TRAINING_FIELDS = (
    "size", "algorithm", "character_coverage", "special_tokens", "sample_bytes", "sample_weights"
)  # fmt: skip


class TokenizerConfig(StageConfig):
    size: int = Field(
        2048, ge=320, le=1 << 20, description="Ids of the vocabulary: pieces, 256 bytes and the control ids"
    )
    size_multiple: int = Field(
        64,
        ge=1,
        description="What the model's vocabulary rows are a multiple of, for the kernels that multiply with them",
    )
    algorithm: Algorithm = Field(
        "bpe", description="bpe: encoded fast and exactly; unigram: by SentencePiece, several times slower"
    )
    character_coverage: float = Field(
        0.9995, gt=0, le=1, description="Share of the characters that get a piece; the others are spelled in bytes"
    )
    special_tokens: tuple[str, ...] = Field(
        (), description="Pieces that no text becomes, as <|im_start|>, for what a model is given after pretraining"
    )
    sample_bytes: int = Field(
        20_000_000, ge=1, le=MAX_SAMPLE_BYTES, description="Most bytes of text to train on, over all domains"
    )
    sample_weights: dict[str, float] = Field(
        {}, description="Domain: weight of its text in the sample; empty: each domain by its bytes"
    )
    seed: int = Field(1, ge=0, lt=2**63, description="Seed of the choice of documents")
    existing: str = runtime(
        "", description="Path of a SentencePiece .model or a tokenizer.json to use instead of training one"
    )
    end_token: str = Field(
        "", description="Piece of the existing tokenizer that ends a document; empty: the one that it names itself"
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if any(weight <= 0 for weight in self.sample_weights.values()):
            raise ValueError("tokenizer.sample_weights: weights must be above 0")
        if self.existing:
            if Path(self.existing).suffix not in (".model", ".json"):
                raise ValueError("tokenizer.existing must be the path of a SentencePiece .model or a tokenizer.json")
            return self
        if self.end_token:
            raise ValueError("tokenizer.end_token is for tokenizer.existing alone; leave it empty, or set both")
        if self.size % self.size_multiple:
            below = self.size // self.size_multiple * self.size_multiple
            raise ValueError(
                f"tokenizer.size = {self.size} is not a multiple of tokenizer.size_multiple = {self.size_multiple}; "
                f"the nearest that are: {below} and {below + self.size_multiple}"
            )
        require_special_tokens(self.special_tokens)
        return self


def externals(config: TokenizerConfig, store: Store) -> dict[str, Any]:
    """The content of an existing tokenizer, and the end token that the file beside it names."""
    if not config.existing:
        return {}
    path = Path(config.existing)
    if not path.is_file():
        raise InputError(f"tokenizer.existing: there is no file {path}")
    end_token = config.end_token or configured_end_token(path.parent)
    return {"existing": {"format": path.suffix, "sha256": sha256_file(path), "end_token": end_token}}


def run(config: TokenizerConfig, inputs: Inputs, out: Path, journal: Journal) -> Facts:
    """Draw and train, or take what exists; then measure on training text what comes of it."""
    started = time.perf_counter()
    texts = training_texts(inputs["corpus"].path)
    made = _take(config, inputs, out, journal) if config.existing else _train(config, texts, out, journal)
    vocabulary = Vocabulary.load_folder(out)
    trained = time.perf_counter()
    journal.progress("measure", 0, len(texts), "domains")
    statistics = measure_tokens(
        vocabulary,
        texts,
        domain_bytes=MEASURED_BYTES,
        seed=config.seed,
        progress=lambda done: journal.progress("measure", done, len(texts), "domains"),
    )
    _warn(config, vocabulary, statistics, journal)
    return Facts(
        facts={
            "vocabulary_size": vocabulary.size,
            "padded_vocabulary_size": padded_size(vocabulary.size, config.size_multiple),
            "eos_id": vocabulary.end_id,
            "special_tokens": vocabulary.special_pieces(),
            "encoding": {"method": vocabulary.method, "why": vocabulary.why},
            **_statistics_facts(vocabulary, statistics),
            **made,
        },
        measurements={"train_seconds": trained - started, "measure_seconds": time.perf_counter() - trained},
    )


def padded_size(size: int, multiple: int) -> int:
    """The rows of a model's matrices for `size` ids."""
    return -(-size // multiple) * multiple


def training_texts(corpus: Path) -> dict[str, pa.ChunkedArray]:
    """Domain -> its texts. Raises InputError if there is no text at all."""
    texts = {domain: table.column("text") for domain, table in read_domains(corpus, TRAIN, ("text",)).items()}
    if not any(len(column) for column in texts.values()):
        raise InputError(
            "the training part of the corpus is empty, so there is nothing to train a tokenizer on; add text to "
            "curate.sources, or drop less of it"
        )
    return texts


def _train(config: TokenizerConfig, texts: dict[str, pa.ChunkedArray], out: Path, journal: Journal) -> dict[str, Any]:
    journal.progress("sample", 0, 1, "steps")
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
        algorithm=config.algorithm,
        special_tokens=config.special_tokens,
    )
    write_atomic(out / MODEL_FILE, model)
    size = Vocabulary.load_folder(out).size
    assert size == config.size, f"the trainer made {size} ids, not {config.size}"
    journal.progress("train", 1, 1, "steps")
    return _training_facts(config, sample)


def _training_facts(config: TokenizerConfig, sample: Sample) -> dict[str, Any]:
    settings = {"model_type": config.algorithm, "character_coverage": config.character_coverage}
    return {
        "sampled_bytes": sample.sampled_bytes,
        "skipped_bytes": sample.skipped_bytes,
        "reserved_bytes": sample.reserved_bytes,
        "settings": SETTINGS | settings,
    }


def _take(config: TokenizerConfig, inputs: Inputs, out: Path, journal: Journal) -> dict[str, Any]:
    """Copy the existing tokenizer, as it was when the stage's key was made."""
    journal.progress("copy", 0, 1, "steps")
    expected = inputs.externals["existing"]
    content = Path(config.existing).read_bytes()
    if hashlib.sha256(content).hexdigest() != expected["sha256"]:
        raise TryAgain("tokenizer.existing changed meanwhile; run the same command again")
    write_atomic(out / (JSON_FILE if expected["format"] == ".json" else MODEL_FILE), content)
    if expected["end_token"]:
        write_json(out / CONFIG_FILE, {"eos_token": expected["end_token"]})
    journal.progress("copy", 1, 1, "steps")
    return {"existing": expected}


def _statistics_facts(vocabulary: Vocabulary, statistics: TokenStatistics) -> dict[str, Any]:
    by_domain = {domain: count.facts() for domain, count in statistics.by_domain.items()}
    unused = statistics.unused_pieces(vocabulary)
    return {
        "bytes_per_token": {domain: facts["bytes_per_token"] for domain, facts in by_domain.items()},
        "fertility": {domain: facts["fertility"] for domain, facts in by_domain.items()},
        "languages": {language: count.facts() for language, count in statistics.by_language.items()},
        "measured": {
            "documents": sum(facts["documents"] for facts in by_domain.values()),
            "bytes": sum(facts["bytes"] for facts in by_domain.values()),
            "lossy_documents": statistics.lossy_documents,
        },
        "unused_pieces": {"count": len(unused), "first": unused[:NUM_NAMED_PIECES]},
    }


def _warn(config: TokenizerConfig, vocabulary: Vocabulary, statistics: TokenStatistics, journal: Journal) -> None:
    if vocabulary.method == "plain":
        journal.warning(f"documents are encoded the slow way: {vocabulary.why}")
    if not config.existing:
        assert statistics.lossy_documents == 0, "a document does not come back from its tokens"
        return
    default = TokenizerConfig()
    idle = [name for name in TRAINING_FIELDS if getattr(config, name) != getattr(default, name)]
    if idle:
        journal.warning(f"tokenizer.existing is set, so these have no effect: tokenizer.{', tokenizer.'.join(idle)}")
    if statistics.lossy_documents:
        total = sum(count.documents for count in statistics.by_domain.values())
        journal.warning(
            f"{statistics.lossy_documents} of {total} measured documents do not come back from this tokenizer's ids "
            "as they were; a tokenizer that is trained here loses nothing"
        )


STAGE = Stage(
    name="tokenizer",
    revision=2,
    config=TokenizerConfig,
    inputs={"corpus": One("curate")},
    run=run,
    externals=externals,
)

if __name__ == "__main__":
    main(STAGE)
