"""Token shards that lie elsewhere, anywhere that fsspec reaches, read one block at a time through a cache on this
machine.

    files = RemoteShards("s3://bucket/tokens/train", BlockCache(directory, max_bytes))
    streams = open_streams(folder_with_the_index, files=files)

A block is the tokens (or the document offsets) of one record batch: a ranged read of a few megabytes, whose sha256 is
in the index. Rows are drawn from all over a stream, so the cache should hold most of what a run draws from: each miss
fetches a whole block for one row. Credentials come from the environment, as the file system reads them.
"""

import errno
import random
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from data.errors import InputError
from data.shards.cache import BlockCache
from data.shards.file_system import LASTING, file_system
from data.shards.streams import Block

ATTEMPTS = 8
FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS = 0.2, 5.0


class RemoteShards:
    """The shards below a URL. Safe to use from several threads. num_retries: attempts that failed and were repeated."""

    stays = False

    def __init__(
        self,
        url: str,
        cache: BlockCache,
        *,
        readers: int = 16,
        attempts: int = ATTEMPTS,
        sleep: Callable[[float], None] = time.sleep,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """readers: blocks that are fetched at once. attempts: tries for one block; the delays between them double.
        options: of the fsspec file system, besides or instead of those in OPTIONS. Raises InputError if there is no
        such file system.
        """
        self.num_retries = 0
        self._url = url.rstrip("/")
        self._cache = cache
        self._attempts = attempts
        self._sleep = sleep
        self._file_system, self._root = file_system(self._url, options or {})
        self._pool = ThreadPoolExecutor(readers, thread_name_prefix="block reader")

    def open(self, blocks: Sequence[Block]) -> list[np.ndarray]:
        """The content of each: uint8[size], read-only. Blocks that are not mapped are read at the same time.

        Raises InputError if a shard is missing or may not be read, or if a block is larger than the cache; OSError if
        all attempts failed, or the disk of the cache is full.
        """
        found = [self._cache.kept(block.sha256) for block in blocks]
        missing = [place for place, content in enumerate(found) if content is None]
        read = self._pool.map(self._read, [blocks[place] for place in missing])
        for place, content in zip(missing, read, strict=True):
            found[place] = content
        return [content for content in found if content is not None]

    def document_ids(self, shard: str) -> list[str]:
        """Not served: ids would take the whole shard."""
        raise InputError(f"the document ids of {self._url}/{shard} are read from a local copy of the shards only")

    def close(self) -> None:
        """End the readers; what they have not begun is not read."""
        self._pool.shutdown(cancel_futures=True)

    def _read(self, block: Block) -> np.ndarray:
        where = f"bytes {block.offset} to {block.offset + block.size} of {self._url}/{block.shard}"
        for attempt in range(1, self._attempts + 1):
            try:
                return self._cache.open(block.sha256, block.size, lambda: self._fetch(block))
            except LASTING:
                raise
            except Exception as error:
                if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
                    raise
                if attempt == self._attempts:
                    raise OSError(
                        errno.EIO, f"{where} could not be read in {attempt} attempts; the last one: {error!r}"
                    ) from error
                self.num_retries += 1
                delay = min(FIRST_DELAY_SECONDS * 2 ** (attempt - 1), LONGEST_DELAY_SECONDS)
                self._sleep(delay * random.uniform(0.5, 1.0))
        raise AssertionError("no attempt was made")

    def _fetch(self, block: Block) -> bytes:
        end = block.offset + block.size
        try:
            return self._file_system.cat_file(f"{self._root}/{block.shard}", start=block.offset, end=end)
        except FileNotFoundError as error:
            raise InputError(f"{self._url}/{block.shard} is missing; copy the shards of this index there") from error
        except PermissionError as error:
            raise InputError(f"{self._url}/{block.shard} may not be read with these credentials") from error
