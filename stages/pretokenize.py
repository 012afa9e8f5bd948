"""Documents to memory-mapped token shards, train/<domain>-<nnnnn>.arrow and heldout/<domain>-<nnnnn>.arrow.

    python -m stages.pretokenize RECIPE

Which documents stand in which shard follows from the corpus alone, so a killed attempt goes on behind the shards that
it left, and the bytes depend neither on kills nor on the number of workers.
"""

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import Field

from data.errors import InputError
from data.shards import ShardHeader, TokenShard, shard_name, write_shard
from data.vocabulary import END_ID, Vocabulary
from stages.base import Facts, Inputs, One, Stage
from stages.cli import main
from stages.config import StageConfig, runtime
from stages.curate.artifact import SPLITS, TRAIN, domain_paths
from stages.executor import map_shards
from stages.files import sha256_file
from stages.journal import Journal
from stages.tokenizer import MODEL_FILE


class PretokenizeConfig(StageConfig):
    shard_bytes: int = Field(
        16_000_000,
        ge=1,
        description="Most bytes of text in one shard; a longer document has one of its own",
    )
    workers: int = runtime(2, ge=1, description="Threads that encode; they never change a byte")


@dataclass(frozen=True, kw_only=True)
class ShardPlan:
    """Which rows of a corpus file make one shard. text_bytes: their UTF-8 length."""

    split: str
    domain: str
    number: int
    source: Path
    first_row: int
    num_rows: int
    text_bytes: int

    @property
    def path(self) -> str:
        """Relative to the artifact."""
        return f"{self.split}/{shard_name(self.domain, self.number)}"


@dataclass(frozen=True, kw_only=True)
class ShardResult:
    num_tokens: int
    kept: bool


def run(config: PretokenizeConfig, inputs: Inputs, out: Path, journal: Journal) -> Facts:
    """Encode every document once; what an earlier attempt finished is checked and kept."""
    started = time.perf_counter()
    model = inputs["tokenizer"].path / MODEL_FILE
    vocabulary = Vocabulary.load(model)
    header = ShardHeader(vocabulary_size=vocabulary.size, end_id=END_ID, vocabulary_digest=sha256_file(model))
    token_bytes = vocabulary.token_bytes()
    plans = plan_shards(inputs["corpus"].path, config.shard_bytes)
    if not any(plan.num_rows for plan in plans if plan.split == TRAIN):
        raise InputError("the training part of the corpus is empty; add text to curate.sources, or drop less of it")
    _remove_strangers(out, plans)
    total = sum(plan.num_rows for plan in plans)
    done = 0
    lock = threading.Lock()

    def make(plan: ShardPlan) -> ShardResult:
        nonlocal done
        result = _kept(out, plan, header, token_bytes, journal) or _written(out, plan, header, token_bytes, vocabulary)
        with lock:
            done += plan.num_rows
            journal.progress("encode", done, total)
        return result

    results = map_shards(make, plans, config.workers)
    facts = _facts(plans, results, header)
    _assert_conserved(facts["domains"], inputs["corpus"].facts.get("domains", {}))
    seconds = time.perf_counter() - started
    return Facts(
        facts=facts,
        measurements={
            "seconds": seconds,
            "kept_shards": sum(result.kept for result in results),
            "text_bytes_per_second": sum(plan.text_bytes for plan in plans) / seconds,
        },
    )


def plan_shards(corpus: Path, shard_bytes: int) -> list[ShardPlan]:
    """Every shard of both splits, in order. Each domain file has at least one, which may be empty."""
    return [
        ShardPlan(
            split=split, domain=domain, number=number, source=path, first_row=first, num_rows=rows, text_bytes=size
        )
        for split in SPLITS
        for domain, path in domain_paths(corpus, split).items()
        for number, (first, rows, size) in enumerate(_row_ranges(path, shard_bytes))
    ]


def _row_ranges(path: Path, shard_bytes: int) -> Iterator[tuple[int, int, int]]:
    """first row, number of rows and text bytes of consecutive shards of at most shard_bytes bytes or one document."""
    file = pq.ParquetFile(path)
    first = row = size = 0
    for batch in file.iter_batches(columns=["text"]):
        for length in pc.binary_length(batch.column("text")).to_pylist():
            if row > first and size + length > shard_bytes:
                yield first, row - first, size
                first, size = row, 0
            row, size = row + 1, size + length
    if row > first or row == 0:
        yield first, row - first, size


def _remove_strangers(out: Path, plans: list[ShardPlan]) -> None:
    """What a killed attempt left half-written, and anything else that no shard of this plan is."""
    wanted = {out / plan.path for plan in plans}
    for split in SPLITS:
        (out / split).mkdir(exist_ok=True)
        for path in (out / split).iterdir():
            if path not in wanted:
                path.unlink()


def _kept(
    out: Path, plan: ShardPlan, header: ShardHeader, token_bytes: np.ndarray, journal: Journal
) -> ShardResult | None:
    """The shard that an earlier attempt wrote, if it is there and whole."""
    path = out / plan.path
    if not path.exists():
        return None
    try:
        shard = TokenShard(path, header)
        shard.check()
        same = shard.ids() == _rows(plan).column("id").to_pylist()
    except InputError as error:
        journal.warning(f"{error} (it is being written again)")
        same = False
    if not same:
        path.unlink()
        return None
    tokens = shard.read()
    _assert_whole(plan, tokens, shard.offsets, token_bytes)
    return ShardResult(num_tokens=len(tokens), kept=True)


def _written(
    out: Path, plan: ShardPlan, header: ShardHeader, token_bytes: np.ndarray, vocabulary: Vocabulary
) -> ShardResult:
    rows = _rows(plan)
    tokens, offsets = vocabulary.encode_documents(rows.column("text").combine_chunks())
    _assert_whole(plan, tokens, offsets, token_bytes)
    ids = rows.column("id").combine_chunks()
    write_shard(out / plan.path, header, ids=ids, domain=plan.domain, tokens=tokens, offsets=offsets)
    return ShardResult(num_tokens=len(tokens), kept=False)


def _rows(plan: ShardPlan) -> pa.Table:
    """Columns id and text of the shard's documents; only the row groups that hold them are read."""
    file = pq.ParquetFile(plan.source)
    schema = pa.schema([("id", pa.string()), ("text", pa.large_string())])
    sizes = [file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)]
    starts = np.cumsum([0, *sizes])
    end = plan.first_row + plan.num_rows
    groups = [g for g in range(len(sizes)) if starts[g] < end and starts[g + 1] > plan.first_row]
    if not groups:
        return schema.empty_table()
    table = file.read_row_groups(groups, columns=["id", "text"])
    return table.slice(plan.first_row - int(starts[groups[0]]), plan.num_rows).cast(schema)


def _assert_whole(plan: ShardPlan, tokens: np.ndarray, offsets: np.ndarray, token_bytes: np.ndarray) -> None:
    """Documents in = documents out, one end to each and as its last token, and the tokens stand for every byte."""
    assert len(offsets) - 1 == plan.num_rows, f"{plan.path}: {len(offsets) - 1} documents, not {plan.num_rows}"
    assert int((tokens == END_ID).sum()) == plan.num_rows, f"{plan.path}: not one end-of-document token to a document"
    assert (tokens[offsets[1:] - 1] == END_ID).all(), f"{plan.path}: a document does not end with its end token"
    stand_for = int(np.bincount(tokens, minlength=len(token_bytes)) @ token_bytes)
    assert stand_for == plan.text_bytes, f"{plan.path}: tokens of {stand_for} bytes for {plan.text_bytes} bytes of text"


def _facts(plans: list[ShardPlan], results: list[ShardResult], header: ShardHeader) -> dict[str, Any]:
    counted = ("documents", "bytes", "tokens", "shards")
    domains: dict[str, dict[str, int]] = {}
    for plan, result in zip(plans, results, strict=True):
        nothing = {f"{split}_{what}": 0 for split in SPLITS for what in counted}
        domain = domains.setdefault(plan.domain, nothing)
        domain[f"{plan.split}_documents"] += plan.num_rows
        domain[f"{plan.split}_bytes"] += plan.text_bytes
        domain[f"{plan.split}_tokens"] += result.num_tokens
        domain[f"{plan.split}_shards"] += 1
    return {
        "domains": domains,
        "dtype": header.dtype.name,
        "eos_id": header.end_id,
        "vocabulary_size": header.vocabulary_size,
        "train_tokens": sum(domain["train_tokens"] for domain in domains.values()),
        "heldout_tokens": sum(domain["heldout_tokens"] for domain in domains.values()),
    }


def _assert_conserved(ours: dict[str, dict[str, int]], corpus: dict[str, dict[str, Any]]) -> None:
    """What the corpus says it holds is what was encoded, in documents and bytes."""
    for domain, counts in corpus.items():
        for split in SPLITS:
            for what in ("documents", "bytes"):
                name = f"{split}_{what}"
                assert ours.get(domain, {}).get(name, 0) == counts[name], f"{domain}: {name} are not the corpus's"


STAGE = Stage(
    name="pretokenize",
    revision=1,
    config=PretokenizeConfig,
    inputs={"corpus": One("curate"), "tokenizer": One("tokenizer")},
    run=run,
    resumes=True,
)

if __name__ == "__main__":
    main(STAGE)
