"""`make bench-loader`: random batches out of token shards, against torch's DataLoader and `datasets`; opening many
shards; resuming far on; training on shards behind a slow network.

Throughput: 183 MB of tokens (uint16), rows of 1,025 in batches of 32, page cache warm, int64 tensors, three epochs, in
CPU-seconds of the process once it has started and read one epoch. (A) `data.order.loader.BatchLoader` from the shards,
with its order, inputs, targets and positions. The others read one Arrow file with a row for each sequence: (B) a
DataLoader without workers over a map-style dataset of inputs and targets, (C) the same with both in one tensor, which
its user cuts, and (D) random batches of `datasets` in its numpy format, in one tensor too.

Opening: 10,000 shards, from `open_streams` to the first batch, in a fresh process with its kernels compiled. Resuming:
the order and the loader made anew and asked for a first batch, at step 0, where the second phase begins, and at step
10**9: three domains in length buckets, two phases of other weights and lengths, and excluded draws. Steps of the second
phase need the tables of both, those of the first only its own.

Remote: 100 steps of 50 ms on shards of an S3 server behind a proxy that delays every answer by 100 ms, with an empty
cache and then with a full one, each in a fresh process. What may be waited for with an empty cache is bounded by the
time in which all blocks arrive, `readers` at a time: ceil(blocks / readers) * (latency + readers * seconds of a block),
where seconds of a block is how long they all take, read in the same way without latency, divided by their number.
"""

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from data.shards.cache import BlockCache
from data.shards.files import ShardHeader, TokenShard, shard_name, write_shard
from data.shards.index import write_index
from data.shards.remote import RemoteShards
from data.shards.streams import open_streams
from tests.benchmarks.harness import Cost, interleave, report
from tests.benchmarks.loader_sides import FILE_ROWS, PHASES, PLACES, READERS, ROW_TOKENS
from tests.services.proxy import FaultProxy, Faults
from tests.services.s3 import options, s3_server

PACKAGES = ("torch", "datasets", "numpy", "numba", "pyarrow", "fsspec", "s3fs", "moto")
TOKENS = 92_000_000
HEADER = ShardHeader(vocabulary_size=8_192, padded_vocabulary_size=8_192, end_id=2, vocabulary_digest="random")

REMOTE_SHARDS, REMOTE_SHARD_TOKENS, REMOTE_BATCH_TOKENS = 8, 1_000_000, 1 << 18
LATENCY_SECONDS = 0.1


def make_shards(
    folder: Path,
    num_shards: int,
    shard_tokens: int,
    batch_tokens: int = 1 << 20,
    domains: Sequence[str] = ("text",),
) -> None:
    """Documents of 100 to 2,000 random tokens, and an index. num_shards: of each domain."""
    folder.mkdir()
    random, entries = np.random.default_rng(0), []
    for domain, number in product(domains, range(num_shards)):
        ends = np.cumsum(random.integers(100, 2_000, shard_tokens // 1_000))
        offsets = np.concatenate([[0], ends[ends < shard_tokens], [shard_tokens]])
        tokens = random.integers(3, HEADER.vocabulary_size, shard_tokens).astype(np.uint16)
        tokens[offsets[1:] - 1] = HEADER.end_id
        path, ids = folder / shard_name(domain, number), pa.array(map(str, range(len(offsets) - 1)))
        write_shard(path, HEADER, ids=ids, domain=domain, tokens=tokens, offsets=offsets, batch_tokens=batch_tokens)
        entries += TokenShard(path, HEADER).entries()
    write_index(folder, HEADER, entries)


def make_many_shards(folder: Path, num_shards: int) -> None:
    """Shards of one content under many names."""
    make_shards(folder, 1, 5_000)
    first = folder / shard_name("text", 0)
    (entry,) = TokenShard(first, HEADER).entries()
    for number in range(1, num_shards):
        shutil.copyfile(first, folder / shard_name("text", number))
    write_index(folder, HEADER, [replace(entry, shard=shard_name("text", number)) for number in range(num_shards)])


def make_rows(folder: Path, target: Path) -> None:
    """One Arrow file with a row for each sequence, for (B) and (C)."""
    stream = open_streams(folder)["text"]
    count = len(stream) // ROW_TOKENS
    rows = pa.FixedSizeListArray.from_arrays(pa.array(stream.read(0, count * ROW_TOKENS)), ROW_TOKENS)
    table = pa.table({"tokens": rows})
    with pa.ipc.new_stream(str(target), table.schema) as writer:
        writer.write_table(table, max_chunksize=FILE_ROWS)


def run(side: str, folder: Path, *more: object) -> dict[str, Any]:
    """What a side prints, in a process of its own."""
    command = [sys.executable, "-m", "tests.benchmarks.loader_sides", side, str(folder), *map(str, more)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    if result.returncode != 0:
        raise RuntimeError(f"{side} ended with {result.returncode}:\n{result.stderr[-4000:]}")
    return json.loads(result.stdout.splitlines()[-1])


def cost(folder: Path, side: str, *more: str) -> Cost:
    """Of a billion tokens, so that sides may read different numbers of rows."""
    found = run(side, folder, *more)
    return Cost(found["wall_seconds"] / found["tokens"] * 1e9, found["cpu_seconds"] / found["tokens"] * 1e9)


PEERS = {
    "dataloader": ("dataloader", "pair"),
    "dataloader_one_tensor": ("dataloader", "single"),
    "datasets": ("datasets",),
}


def throughput(folder: Path, pairs: int) -> tuple[list[list[Any]], dict[str, Any]]:
    against = {
        name: interleave(lambda: cost(folder, "ours"), lambda peer=peer: cost(folder, *peer), pairs=pairs)
        for name, peer in PEERS.items()
    }
    seconds = {"ours": [cost.cpu_seconds for paired in against.values() for cost in paired.a]} | {
        name: [cost.cpu_seconds for cost in paired.b] for name, paired in against.items()
    }
    rows = [[side, "M tokens per CPU-second", 1e3 / statistics.median(found)] for side, found in seconds.items()]
    ratios = {f"ratio_{name}": paired.ratio("cpu_seconds") for name, paired in against.items()}
    return rows, {"tokens_per_cpu_second": 1e9 / statistics.median(seconds["ours"]), **ratios}


def behind_a_network(folder: Path) -> tuple[list[list[Any]], dict[str, Any]]:
    import fsspec

    make_shards(folder / "remote", REMOTE_SHARDS, REMOTE_SHARD_TOKENS, REMOTE_BATCH_TOKENS)
    with s3_server() as port, FaultProxy(port) as proxy:
        files = fsspec.filesystem("s3", **options(port))
        files.mkdir("bucket")
        for path in (folder / "remote").glob("text-*.arrow"):
            files.pipe_file(f"bucket/tokens/{path.name}", path.read_bytes())
        block_seconds = seconds_of_a_block(folder, proxy.port)
        proxy.faults = Faults(latency_seconds=LATENCY_SECONDS)
        cold = run("remote", folder, proxy.port, "s3://bucket/tokens")
        warm = run("remote", folder, proxy.port, "s3://bucket/tokens")
    bound = math.ceil(cold["blocks"] / READERS) * (LATENCY_SECONDS + READERS * block_seconds)
    rows = [
        [name, "share of time waiting", found["waited_seconds"] / found["wall_seconds"]]
        for name, found in (("remote, cold", cold), ("remote, warm", warm))
    ]
    figures = {
        "remote_cold_wait_share": cold["waited_seconds"] / cold["wall_seconds"],
        "remote_cold_wait_seconds": cold["waited_seconds"],
        "remote_cold_wait_bound_seconds": bound,
        "remote_blocks": cold["blocks"],
        "remote_warm_wait_share": warm["waited_seconds"] / warm["wall_seconds"],
    }
    return rows, figures


def seconds_of_a_block(folder: Path, port: int) -> float:
    """Of each, when many are read at the same time and nothing is delayed."""
    cache = BlockCache(folder / "rates", 10**9)
    files = RemoteShards("s3://bucket/tokens", cache, readers=READERS, options=options(port))
    stream = open_streams(folder / "remote", HEADER, files)["text"]
    stream.read(0, 1)  # connected
    started, before = time.perf_counter(), cache.num_fetched
    stream.read(0, len(stream))
    return (time.perf_counter() - started) / (cache.num_fetched - before)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        make_shards(folder / "shards", 8, TOKENS // 8)
        make_rows(folder / "shards", folder / "rows.arrow")
        rows, figures = throughput(folder, arguments.pairs)
        make_many_shards(folder / "many", 10_000)
        opened = [run("opening", folder)["seconds"] for _ in range(arguments.pairs)]
        figures["open_10000_shards_seconds"] = {
            "median": statistics.median(opened),
            "low": min(opened),
            "high": max(opened),
        }
        make_shards(folder / "mixed", 2, 4_000_000, domains=sorted(PHASES[0].weights))
        resumed = run("resuming", folder)
        figures["resume_far_step_ratio"] = resumed["far"] / resumed["start"]
        figures["resume_within_phase_ratio"] = resumed["far"] / resumed["second phase"]
        rows += [
            ["10,000 shards", "seconds to the first batch", statistics.median(opened)],
            *([f"resuming at step {PLACES[at]:,}", "seconds to the first batch", resumed[at]] for at in PLACES),
        ]
        more_rows, more_figures = behind_a_network(folder)
    report("loader", ("what", "unit", "value"), rows + more_rows, {**figures, **more_figures}, PACKAGES)


if __name__ == "__main__":
    main()
