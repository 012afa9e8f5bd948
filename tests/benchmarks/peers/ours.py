"""This project: JSONL to token shards with their index, as the pretokenize stage writes them.

The second text finds the words of the first in the table. Nothing but imports comes before the first text: that the
compiled kernels are read from numba's cache on disk is part of what is counted.
"""

import hashlib
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from data.shards.files import ShardHeader, TokenShard, shard_name, write_shard
from data.shards.index import write_index
from data.vocabulary.vocabulary import Vocabulary, vocabulary_file
from data.vocabulary.word_table import WordTable  # noqa: F401  numba comes with it, and no tool's imports are counted
from tests.benchmarks.peers.measured import main

SHARD_BYTES = 16_000_000  # of text, the default of pretokenize.shard_bytes
SCHEMA = pa.schema([("id", pa.string()), ("text", pa.string())])


class Ours:
    def __init__(self, folder: Path, end_id: int) -> None:
        self._vocabulary = Vocabulary.load_folder(folder)
        assert self._vocabulary.end_id == end_id and self._vocabulary.method == "word table"
        self._header = ShardHeader(
            vocabulary_size=self._vocabulary.size,
            padded_vocabulary_size=self._vocabulary.size,
            end_id=end_id,
            vocabulary_digest=hashlib.sha256(vocabulary_file(folder).read_bytes()).hexdigest(),
        )

    def encode(self, files: list[Path], out: Path, scratch: Path) -> None:
        shards = [self._write(out, path.stem, number, rows) for path in files for number, rows in _shards(path)]
        write_index(out, self._header, [entry for shard in shards for entry in shard.entries()])

    def _write(self, out: Path, domain: str, number: int, rows: pa.Table) -> TokenShard:
        ids, texts = (rows.column(name).combine_chunks() for name in ("id", "text"))
        tokens, offsets = self._vocabulary.encode_documents(texts, self._header.dtype)
        path = out / shard_name(domain, number)
        write_shard(path, self._header, ids=ids, domain=domain, tokens=tokens, offsets=offsets)
        return TokenShard(path, self._header)

    def tokens(self, out: Path) -> np.ndarray:
        shards = [TokenShard(path, self._header) for path in sorted(out.glob("*-[0-9]*.arrow"))]
        for shard in shards:
            shard.check()
        return np.concatenate([shard.read() for shard in shards])


def _shards(path: Path) -> list[tuple[int, pa.Table]]:
    """The documents of a file in parts of about SHARD_BYTES bytes of text. A line must not be longer than a block."""
    table = pyarrow.json.read_json(
        path,
        read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=path.stat().st_size),
        parse_options=pyarrow.json.ParseOptions(explicit_schema=SCHEMA, unexpected_field_behavior="ignore"),
    )
    ends = np.cumsum(pc.binary_length(table.column("text")).to_numpy())
    cuts = np.unique(np.searchsorted(ends, np.arange(SHARD_BYTES, ends[-1], SHARD_BYTES)))
    bounds = [0, *(int(cut) for cut in cuts if cut), len(ends)]
    return [(i, table.slice(first, end - first)) for i, (first, end) in enumerate(pairwise(bounds))]


if __name__ == "__main__":
    main(Ours)
