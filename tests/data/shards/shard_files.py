"""Small token shards, and damage to files."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from data.shards.files import BATCH_TOKENS, ShardHeader, TokenShard, write_shard
from data.shards.index import write_index


def header(size: int = 600, padded: int = 0) -> ShardHeader:
    return ShardHeader(vocabulary_size=size, padded_vocabulary_size=padded or size, end_id=2, vocabulary_digest="d")


def write(
    path: Path,
    documents: list[list[int]],
    of: ShardHeader | None = None,
    *,
    domain: str = "prose",
    batch_tokens: int = BATCH_TOKENS,
) -> Path:
    """A shard of these documents, whose ids are its name and their numbers."""
    of = of or header()
    offsets = np.cumsum([0, *map(len, documents)], dtype=np.int64)
    tokens = np.array([token for document in documents for token in document], dtype=of.dtype)
    ids = pa.array([f"{path.stem}/{i}" for i in range(len(documents))], pa.string())
    write_shard(path, of, ids=ids, domain=domain, tokens=tokens, offsets=offsets, batch_tokens=batch_tokens)
    return path


def index_folder(folder: Path) -> None:
    """An index of all shards in the folder."""
    shards = [TokenShard(path) for path in sorted(folder.glob("*-*.arrow"))]
    write_index(folder, shards[0].header, [entry for shard in shards for entry in shard.entries()])


def flipped(content: bytes) -> Iterator[tuple[int, bytes]]:
    """The content with one bit of one byte changed, for each byte."""
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        yield place, bytes(changed)
