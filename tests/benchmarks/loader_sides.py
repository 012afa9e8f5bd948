"""What the loader's benchmark measures, each in a process of its own that prints one JSON object:
`python -m tests.benchmarks.loader_sides SIDE FOLDER`. tests/benchmarks/loader.py makes the folder and says what is
compared.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from data.order.batches import Phase, SampleOrder
from data.order.loader import BatchLoader, PackedDomain
from data.order.packing import PackingKind, make_packing
from data.order.turns import turn_table
from data.shards.cache import BlockCache
from data.shards.remote import RemoteShards
from data.shards.streams import ShardFiles, open_streams
from tests.services.s3 import options

ROW_TOKENS, BATCH_ROWS = 1_025, 32
FILE_ROWS = 1_000  # rows in a record batch of the file for the others
LONGEST_TOKENS = 1_024
BATCH_TOKENS = BATCH_ROWS * LONGEST_TOKENS
PHASES = (
    Phase(first_step=0, weights={"code": 0.2, "prose": 0.5, "web": 0.3}, longest_tokens=256, batch_tokens=BATCH_TOKENS),
    Phase(
        first_step=10_000,
        weights={"code": 0.4, "prose": 0.5, "web": 0.1},
        longest_tokens=LONGEST_TOKENS,
        batch_tokens=BATCH_TOKENS,
    ),
)
EXCLUDED = ((700, 703), (9_998, 10_002), (40_000, 40_100))
PLACES = {"start": 0, "second phase": 10_000, "far": 10**9}
STEPS, STEP_SECONDS, READERS = 100, 0.05, 16


def make_loader(folder: Path, *, rows: int, row_tokens: int, files: ShardFiles | None = None) -> BatchLoader:
    """A loader of one domain, packed as a stream."""
    domains = packed(folder, "stream", row_tokens, files)
    pools = domains["text"].packing.num_sequences
    phase = Phase(first_step=0, weights={"text": 1.0}, longest_tokens=row_tokens, batch_tokens=rows * row_tokens)
    order = SampleOrder(seed=0, num_sequences={"text": pools}, phases=[phase])
    return BatchLoader(order, domains)


def packed(
    folder: Path, kind: PackingKind, sequence_tokens: int, files: ShardFiles | None = None
) -> dict[str, PackedDomain]:
    return {
        domain: PackedDomain(
            stream,
            make_packing(
                kind,
                num_tokens=len(stream),
                document_lengths=stream.document_lengths,
                sequence_tokens=sequence_tokens,
            ),
        )
        for domain, stream in open_streams(folder, files=files).items()
    }


def timed(epoch: Callable[[], int]) -> dict[str, float]:
    """Of three epochs, once one has been read. `epoch` -> rows that it has read."""
    epoch()
    wall, cpu = time.perf_counter(), time.process_time()
    rows = sum(epoch() for _ in range(3))
    return {
        "wall_seconds": time.perf_counter() - wall,
        "cpu_seconds": time.process_time() - cpu,
        "tokens": rows * ROW_TOKENS,
    }


def ours(folder: Path) -> dict[str, float]:
    import torch

    loader = make_loader(folder / "shards", rows=BATCH_ROWS, row_tokens=ROW_TOKENS)
    steps = loader._domains[0].packing.num_sequences[ROW_TOKENS] // BATCH_ROWS

    def epoch() -> int:
        for step in range(steps):
            batch = loader.batch(step)
            for array in (batch.inputs, batch.targets, batch.positions):
                torch.from_numpy(array)
        return steps * BATCH_ROWS

    return timed(epoch)


def dataloader(folder: Path, kind: str) -> dict[str, float]:
    """kind: "pair" for inputs and targets, as ours; "single" for one tensor, which its user cuts in two."""
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Rows(Dataset):
        def __init__(self) -> None:
            with pa.memory_map(str(folder / "rows.arrow")) as file:
                batches = pa.ipc.open_stream(file).read_all().column("tokens").chunks
            self.chunks = [chunk.values.to_numpy().reshape(-1, ROW_TOKENS) for chunk in batches]

        def __len__(self) -> int:
            return sum(map(len, self.chunks))

        def __getitem__(self, row: int) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
            chunk, place = divmod(row, FILE_ROWS)
            tokens = torch.from_numpy(self.chunks[chunk][place].astype(np.int64))
            return tokens if kind == "single" else (tokens[:-1], tokens[1:])

    loader = DataLoader(Rows(), batch_size=BATCH_ROWS, shuffle=True, drop_last=True)
    return timed(lambda: sum(len(batch) if kind == "single" else len(batch[0]) for batch in loader))


def datasets_(folder: Path) -> dict[str, float]:
    import datasets
    import torch

    rows = datasets.Dataset.from_file(str(folder / "rows.arrow")).with_format("numpy")
    order = np.random.default_rng(0).permutation(len(rows))[: len(rows) // BATCH_ROWS * BATCH_ROWS]

    def epoch() -> int:
        return sum(
            len(torch.from_numpy(rows[batch]["tokens"].astype(np.int64))) for batch in order.reshape(-1, BATCH_ROWS)
        )

    return timed(epoch)


def opening(folder: Path) -> dict[str, float]:
    make_loader(folder / "shards", rows=BATCH_ROWS, row_tokens=ROW_TOKENS).batch(0)  # compiles
    started = time.perf_counter()
    make_loader(folder / "many", rows=BATCH_ROWS, row_tokens=ROW_TOKENS).batch(0)
    return {"seconds": time.perf_counter() - started}


def resuming(folder: Path) -> dict[str, float]:
    """Seconds to the first batch at each of PLACES: medians of 15, by turns, once the documents are packed and the
    files are mapped.
    """
    domains = packed(folder / "mixed", "length-buckets", LONGEST_TOKENS)
    pools = {name: domain.packing.num_sequences for name, domain in domains.items()}

    def loader() -> BatchLoader:
        order = SampleOrder(seed=0, num_sequences=pools, phases=PHASES, excluded=EXCLUDED)
        return BatchLoader(order, domains)

    opened = loader()
    for step in (*range(1_000), *PLACES.values()):
        opened.batch(step)
    seconds: dict[str, list[float]] = {name: [] for name in PLACES}
    for _ in range(15):
        for name, step in PLACES.items():
            turn_table.cache_clear()  # as in a new process
            started = time.perf_counter()
            loader().batch(step)
            seconds[name].append(time.perf_counter() - started)
    return {name: statistics.median(found) for name, found in seconds.items()}


def remote(folder: Path, port: str, url: str) -> dict[str, float]:
    """What a step waits for, once kernels are loaded and the connection stands, as after the set-up of a run."""
    make_loader(folder / "remote", rows=16, row_tokens=256).batch(0)
    cache = BlockCache(folder / "cache", 10**9)
    files = RemoteShards(url, cache, readers=READERS, options=options(int(port)))
    loader = make_loader(folder / "remote", rows=16, row_tokens=256, files=files)
    loader._domains[0].stream.document_lengths()
    before, started = cache.num_fetched, time.perf_counter()
    with loader.read_ahead(first_step=0, num_steps=STEPS, depth=8, readers=2) as batches:
        for _ in batches:
            time.sleep(STEP_SECONDS)
        wall = time.perf_counter() - started
    return {
        "waited_seconds": batches.waited_seconds,
        "wall_seconds": wall,
        "blocks": cache.num_fetched - before,
        "retries": files.num_retries,
    }


SIDES: dict[str, Callable[..., dict[str, float]]] = {
    "ours": ours,
    "dataloader": dataloader,
    "datasets": datasets_,
    "opening": opening,
    "resuming": resuming,
    "remote": remote,
}


if __name__ == "__main__":
    name, folder, *more = sys.argv[1:]
    print(json.dumps(SIDES[name](Path(folder), *more)))
