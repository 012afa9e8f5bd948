"""Documents to memory-mapped token shards, train/<domain>-<nnnnn>.arrow and heldout/<domain>-<nnnnn>.arrow, with an
index.arrow in either folder.

    python -m stages.pretokenize RECIPE

Which documents stand in which shard follows from the corpus alone, so a killed attempt goes on behind the shards that
it left, and the bytes depend neither on kills nor on the number of workers. Every document is there once, with one end
token; where the vocabulary is exact, its tokens stand for every byte of it, and where it is not, the documents that do
not come back from their tokens are counted.
"""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pydantic import Field

from data.errors import InputError
from data.shards.files import BatchEntry, ShardHeader, TokenShard, write_shard
from data.shards.index import write_index
from data.vocabulary.vocabulary import Vocabulary, vocabulary_file
from stages.base import Facts, Inputs, One, Stage
from stages.cli import main
from stages.config import StageConfig, runtime
from stages.curate.artifact import SPLITS, TRAIN
from stages.executor import THREADS, open_executor
from stages.files import sha256_file
from stages.journal import Journal
from stages.shard_plan import ShardPlan, plan_shards
from stages.store import Artifact

LENGTH_BITS = 63  # of a length in tokens, which is an int64


class PretokenizeConfig(StageConfig):
    shard_bytes: int = Field(
        16_000_000,
        ge=1,
        description="Most bytes of text in one shard; a longer document has one of its own",
    )
    workers: int = runtime(2, ge=1, description="Threads that encode; they never change a byte")


@dataclass(frozen=True, kw_only=True)
class ShardResult:
    """length_bits: int64[LENGTH_BITS], entry i is the number of documents whose count of tokens, the end token
    included, has bit i set. lossy_documents: those whose text does not come back from their tokens.
    """

    num_tokens: int
    length_bits: np.ndarray
    lossy_documents: int
    entries: list[BatchEntry]
    kept: bool


class _Encoder:
    """The tokenizer as the shards need it."""

    def __init__(self, tokenizer: Artifact) -> None:
        self.vocabulary = Vocabulary.load_folder(tokenizer.path)
        self.header = ShardHeader(
            vocabulary_size=self.vocabulary.size,
            padded_vocabulary_size=tokenizer.facts["padded_vocabulary_size"],
            end_id=self.vocabulary.end_id,
            vocabulary_digest=sha256_file(vocabulary_file(tokenizer.path)),
        )
        self._token_bytes = self.vocabulary.token_bytes()

    def encode(self, texts: pa.Array) -> tuple[np.ndarray, np.ndarray]:
        return self.vocabulary.encode_documents(texts, self.header.dtype)

    def num_lossy(self, plan: ShardPlan, texts: pa.Array, tokens: np.ndarray, offsets: np.ndarray) -> int:
        """Asserts: documents in = documents out, one end token to each and as its last, and with an exact vocabulary
        the tokens stand for every byte. Returns how many documents another vocabulary does not give back.
        """
        name, ends = plan.path, tokens == self.header.end_id
        assert len(offsets) - 1 == plan.num_rows, f"{name}: {len(offsets) - 1} documents, not {plan.num_rows}"
        assert int(ends.sum()) == plan.num_rows, f"{name}: not one end token to a document"
        assert ends[offsets[1:] - 1].all(), f"{name}: a document does not end with its end token"
        if self._token_bytes is None:
            pairs = zip(texts, pairwise(offsets), strict=True)
            return sum(self.vocabulary.decode(tokens[a : b - 1]) != text.as_py() for text, (a, b) in pairs)
        stand_for = int(np.bincount(tokens, minlength=len(self._token_bytes)) @ self._token_bytes)
        assert stand_for == plan.text_bytes, f"{name}: tokens of {stand_for} bytes for {plan.text_bytes} bytes of text"
        return 0


def run(config: PretokenizeConfig, inputs: Inputs, out: Path, journal: Journal) -> Facts:
    """Encode every document once; what an earlier attempt finished is checked and kept."""
    started = time.perf_counter()
    encoder = _Encoder(inputs["tokenizer"])
    vocabulary = encoder.vocabulary
    if vocabulary.method == "plain":
        journal.warning(
            "each document is encoded whole by the tokenizer's library, which is several times slower than a table of "
            f"words: {vocabulary.why}"
        )
    plans = plan_shards(inputs["corpus"].path, config.shard_bytes)
    if not any(plan.num_rows for plan in plans if plan.split == TRAIN):
        raise InputError("the training part of the corpus is empty; add text to curate.sources, or drop less of it")
    _remove_strangers(out, plans)
    total = sum(plan.num_rows for plan in plans)
    done = 0
    lock = threading.Lock()

    def make(plan: ShardPlan) -> ShardResult:
        nonlocal done
        rows = plan.rows()
        result = _kept(out, plan, rows, encoder, journal) or _written(out, plan, rows, encoder)
        with lock:
            done += plan.num_rows
            journal.progress("encode", done, total)
        return result

    with open_executor(THREADS, workers=config.workers) as executor:
        results = executor.map(make, plans)
    for split in SPLITS:
        made = [result.entries for plan, result in zip(plans, results, strict=True) if plan.split == split]
        write_index(out / split, encoder.header, [entry for entries in made for entry in entries])
    facts = _facts(plans, results, encoder)
    _assert_conserved(facts["domains"], inputs["corpus"].facts.get("domains", {}))
    if lossy := sum(result.lossy_documents for result in results):
        journal.warning(
            f"{lossy} of {total} documents do not come back from their tokens as they were: {vocabulary.why}; a "
            "tokenizer trained here loses nothing"
        )
    seconds = time.perf_counter() - started
    return Facts(
        facts=facts,
        measurements={
            "seconds": seconds,
            "kept_shards": sum(result.kept for result in results),
            "text_bytes_per_second": sum(plan.text_bytes for plan in plans) / seconds,
        },
    )


def _remove_strangers(out: Path, plans: list[ShardPlan]) -> None:
    """What a killed attempt left half-written, its index, and anything else that no shard of this plan is."""
    wanted = {out / plan.path for plan in plans}
    for split in SPLITS:
        (out / split).mkdir(exist_ok=True)
        for path in (out / split).iterdir():
            if path not in wanted:
                path.unlink()


def _kept(out: Path, plan: ShardPlan, rows: pa.Table, encoder: _Encoder, journal: Journal) -> ShardResult | None:
    """The shard that an earlier attempt wrote, if it is there and whole."""
    path = out / plan.path
    if not path.exists():
        return None
    try:
        shard = TokenShard(path, encoder.header)
        shard.check()
        same = shard.domain == plan.domain and shard.ids() == rows.column("id").to_pylist()
    except InputError as error:
        journal.warning(f"{error} (it is being written again)")
        same = False
    if not same:
        path.unlink()
        return None
    lossy = encoder.num_lossy(plan, rows.column("text").combine_chunks(), shard.read(), shard.offsets)
    return _result(shard, lossy, kept=True)


def _written(out: Path, plan: ShardPlan, rows: pa.Table, encoder: _Encoder) -> ShardResult:
    texts, path = rows.column("text").combine_chunks(), out / plan.path
    tokens, offsets = encoder.encode(texts)
    lossy = encoder.num_lossy(plan, texts, tokens, offsets)
    ids = rows.column("id").combine_chunks()
    write_shard(path, encoder.header, ids=ids, domain=plan.domain, tokens=tokens, offsets=offsets)
    return _result(TokenShard(path, encoder.header), lossy, kept=False)


def _result(shard: TokenShard, lossy_documents: int, *, kept: bool) -> ShardResult:
    lengths = np.diff(shard.offsets)
    return ShardResult(
        num_tokens=shard.num_tokens,
        length_bits=np.array([(lengths >> bit & 1).sum() for bit in range(LENGTH_BITS)], np.int64),
        lossy_documents=lossy_documents,
        entries=shard.entries(),
        kept=kept,
    )


def _facts(plans: Sequence[ShardPlan], results: Sequence[ShardResult], encoder: _Encoder) -> dict[str, Any]:
    counted = ("documents", "bytes", "tokens", "shards", "lossy_documents")
    domains: dict[str, dict[str, Any]] = {}
    bits: dict[str, np.ndarray] = {}
    for plan, result in zip(plans, results, strict=True):
        nothing = {f"{split}_{what}": 0 for split in SPLITS for what in counted}
        domain = domains.setdefault(plan.domain, nothing)
        domain[f"{plan.split}_documents"] += plan.num_rows
        domain[f"{plan.split}_bytes"] += plan.text_bytes
        domain[f"{plan.split}_tokens"] += result.num_tokens
        domain[f"{plan.split}_shards"] += 1
        domain[f"{plan.split}_lossy_documents"] += result.lossy_documents
        if plan.split == TRAIN:
            bits[plan.domain] = bits.get(plan.domain, np.zeros(LENGTH_BITS, np.int64)) + result.length_bits
    for name, domain in domains.items():
        # For the arithmetic of length buckets, which take a document apart along the binary digits of its length.
        domain["train_length_bits"] = np.trim_zeros(bits.get(name, np.zeros(0, np.int64)), "b").tolist()
    header, vocabulary = encoder.header, encoder.vocabulary
    return {
        "domains": domains,
        "dtype": header.dtype.name,
        "eos_id": header.end_id,
        "vocabulary_size": header.vocabulary_size,
        "padded_vocabulary_size": header.padded_vocabulary_size,
        "encoding": {"method": vocabulary.method, "why": vocabulary.why},
        "train_tokens": sum(domain["train_tokens"] for domain in domains.values()),
        "heldout_tokens": sum(domain["heldout_tokens"] for domain in domains.values()),
    }


def _assert_conserved(ours: dict[str, dict[str, Any]], corpus: dict[str, dict[str, Any]]) -> None:
    """What the corpus says it holds is what was encoded, in documents and bytes."""
    for domain, counts in corpus.items():
        for split in SPLITS:
            for what in ("documents", "bytes"):
                name = f"{split}_{what}"
                assert ours.get(domain, {}).get(name, 0) == counts[name], f"{domain}: {name} are not the corpus's"


STAGE = Stage(
    name="pretokenize",
    revision=3,
    config=PretokenizeConfig,
    inputs={"corpus": One("curate"), "tokenizer": One("tokenizer")},
    run=run,
    resumes=True,
)

if __name__ == "__main__":
    main(STAGE)
