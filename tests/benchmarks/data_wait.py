"""`make bench-data-wait`: how long the training of the demo's model waits for its data, with shards of this machine and
with shards of an S3 server behind a proxy that delays every answer by 100 ms.

Three trainings of the same steps, each by `python -m stages.pretrain` in a copy of one store, so on the same shards:
(A) local shards in the page cache, (B) `pretrain.shards_url` with an empty cache directory, (C) the same with the cache
that B left. Their losses must be the same bit for bit, B must ask the server once for each block, and C never. The
server and its credentials reach the training by the environment alone. Shards are small, so that there are many blocks.

Times are the training's own (timing.jsonl), which begin once the first batch is there; how long that one takes with an
empty cache, the connection included, is a figure of its own. What B may wait for after it is bounded beforehand, from
the order of the batches:

    rounds * attempts * latency + blocks * seconds of a block

A domain's rows of a batch open their blocks together, `readers` at a time, so they cost a round for each `readers`
blocks that no batch before them has opened; rounds and blocks are summed over the batches behind the first. While
training waits for a batch it waits in one of those rounds. Attempts: 1, as the proxy only delays. Seconds of a block:
its transfer and its way into a cache, when all are read at once and nothing is delayed.
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec
import numpy as np

from data.order.loader import BatchLoader, PackedDomain
from data.shards.cache import BlockCache
from data.shards.index import read_index
from data.shards.remote import RemoteShards
from data.shards.streams import Block, LocalShards, ShardFiles, open_streams
from stages.pretrain.batches.sequences import TRAIN, open_train
from stages.pretrain.config import PretrainConfig
from stages.pretrain.job import METRICS, TIMING, read_lines
from stages.store import Artifact, Store
from tests.benchmarks.harness import measure, report
from tests.services.proxy import FaultProxy, Faults
from tests.services.s3 import CREDENTIALS, options, s3_server

DEMO = Path("deployments/recipes/demo.toml")
PACKAGES = ("torch", "numpy", "fsspec", "s3fs", "aiobotocore", "moto")
SHARD_BYTES = 400_000  # of text
URL = "s3://bucket/tokens/train"
LATENCY_SECONDS, ATTEMPTS, READERS = 0.1, 1, 16
WARM_SHARE = 0.01  # of the time of the steps, that may be waited for with local shards


@dataclass(frozen=True)
class Trained:
    """What a training left. losses: nats per token, of each step."""

    artifact: Artifact
    losses: list[float]
    seconds: float
    waited_seconds: float

    @property
    def ratio(self) -> float:
        return self.waited_seconds / self.seconds


def stage(name: str, root: Path, settings: dict[str, Any], environment: dict[str, str] | None = None) -> None:
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    command = [sys.executable, "-m", f"stages.{name}", str(DEMO), "--upstream", "--root", str(root), *words]
    measure(command, environment=environment)


def train(root: Path, settings: dict[str, Any], environment: dict[str, str] | None = None) -> Trained:
    stage("pretrain", root, settings, environment)
    (artifact,) = Store(root).all("pretrain")
    timing = read_lines(artifact.path / TIMING)
    return Trained(
        artifact,
        [line["loss"] for line in read_lines(artifact.path / METRICS)],
        sum(line["seconds"] for line in timing),
        sum(line["data_wait_seconds"] for line in timing),
    )


class Rounds:
    """Local shards that count what remote ones would fetch: new blocks, and rounds of READERS of them."""

    stays = False

    def __init__(self, files: LocalShards) -> None:
        self.blocks = self.rounds = 0
        self._files = files
        self._seen: set[bytes] = set()

    def open(self, blocks: Sequence[Block]) -> list[np.ndarray]:
        new = {block.sha256 for block in blocks} - self._seen
        self._seen |= new
        self.blocks += len(new)
        self.rounds += -(-len(new) // READERS)
        return self._files.open(blocks)

    def document_ids(self, shard: str) -> list[str]:
        return self._files.document_ids(shard)


def loader(config: PretrainConfig, tokens: Path, files: ShardFiles) -> BatchLoader:
    """Reads what the training reads, out of `files`."""
    streams, sequences = open_streams(tokens / TRAIN, files=files), open_train(config, tokens)
    domains = {name: PackedDomain(streams[name], packed.packing) for name, packed in sequences.domains.items()}
    return BatchLoader(sequences.order, domains)


def count(config: PretrainConfig, tokens: Path) -> tuple[int, int, int]:
    """Blocks and rounds of the batches behind the first, and blocks of all."""
    folder = tokens / TRAIN
    index = read_index(folder)
    files = Rounds(LocalShards(folder, dict(zip(index.shard, index.shard_bytes.tolist(), strict=True))))
    batches = loader(config, tokens, files)
    batches.batch(0)
    first_blocks, first_rounds = files.blocks, files.rounds
    for step in range(1, config.num_steps):
        batches.batch(step)
    return files.blocks - first_blocks, files.rounds - first_rounds, files.blocks


def seconds_of_a_block(tokens: Path, directory: Path, port: int) -> float:
    """Of each, when many are read at the same time."""
    cache = BlockCache(directory, 10**9)
    files = RemoteShards(URL, cache, readers=READERS, options=options(port))
    streams = open_streams(tokens / TRAIN, files=files).values()
    next(iter(streams)).read(0, 1)  # connected
    started, before = time.perf_counter(), cache.num_fetched
    for stream in streams:
        stream.read(0, len(stream))
    seconds = (time.perf_counter() - started) / (cache.num_fetched - before)
    files.close()
    return seconds


def seconds_of_the_first_batch(config: PretrainConfig, tokens: Path, directory: Path, port: int) -> float:
    files = RemoteShards(URL, BlockCache(directory, 10**9), readers=READERS, options=options(port))
    batches = loader(config, tokens, files)
    started = time.perf_counter()
    batches.batch(0)
    seconds = time.perf_counter() - started
    files.close()
    return seconds


def behind_a_network(
    folder: Path, tokens: Path, config: PretrainConfig, settings: dict[str, Any]
) -> tuple[Trained, Trained, dict[str, Any]]:
    """B and C, and what is known of the blocks. config: of A."""
    with s3_server() as port, FaultProxy(port) as proxy:
        store = fsspec.filesystem("s3", **options(port))
        store.mkdir("bucket")
        for path in (tokens / TRAIN).glob("*-*.arrow"):
            store.pipe_file(f"{URL}/{path.name}", path.read_bytes())
        block_seconds = seconds_of_a_block(tokens, folder / "rates", proxy.port)
        proxy.faults = Faults(latency_seconds=LATENCY_SECONDS)
        blocks, rounds, all_blocks = count(config, tokens)
        found = {
            "cold_cache_bound_seconds": rounds * ATTEMPTS * LATENCY_SECONDS + blocks * block_seconds,
            "blocks": all_blocks,
            "blocks_behind_first_batch": blocks,
            "rounds_behind_first_batch": rounds,
            "block_seconds": block_seconds,
            "first_batch_seconds_cold_cache": seconds_of_the_first_batch(config, tokens, folder / "first", proxy.port),
        }
        environment = {**CREDENTIALS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.port}"}
        settings = {**settings, "pretrain.shards_url": URL, "pretrain.cache_directory": folder / "cache"}
        before = proxy.num_requests
        cold = train(folder / "cold", settings, environment)
        asked = proxy.num_requests - before
        assert asked == all_blocks * ATTEMPTS, f"{asked} requests for {all_blocks} blocks"
        warm = train(folder / "warm", settings, environment)
        assert proxy.num_requests == before + asked, "a warm cache asks for nothing"
    return cold, warm, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    steps = parser.parse_args().steps
    settings: dict[str, Any] = {
        "pretokenize.shard_bytes": SHARD_BYTES,
        "pretrain.num_steps": steps,
        "pretrain.checkpoint_every_steps": steps,
    }
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        roots = [folder / name for name in ("local", "cold", "warm")]
        stage("pretokenize", roots[0], {"pretokenize.shard_bytes": SHARD_BYTES})
        for root in roots[1:]:
            shutil.copytree(roots[0], root)
        (made,) = Store(roots[0]).all("pretokenize")
        local = train(roots[0], settings)
        config = PretrainConfig.model_validate(local.artifact.manifest.config)
        cold, warm, found = behind_a_network(folder, made.path, config, settings)
    assert len(local.losses) == steps and local.losses == cold.losses == warm.losses, "other data was trained on"
    rows = [
        [name, trained.seconds, trained.waited_seconds, trained.ratio]
        for name, trained in (("local, warm", local), ("remote, cold cache", cold), ("remote, warm cache", warm))
    ]
    figures = {
        "steps": steps,
        "losses_equal": True,
        "data_wait_ratio_warm_shards": local.ratio,
        "data_wait_ratio_warm_shards_kept": local.ratio <= WARM_SHARE,
        "data_wait_ratio_cold_cache": cold.ratio,
        "data_wait_seconds_cold_cache": cold.waited_seconds,
        "cold_cache_bound_kept": cold.waited_seconds <= found["cold_cache_bound_seconds"],
        "data_wait_ratio_warm_cache": warm.ratio,
        **found,
    }
    report("data-wait", ("shards", "seconds of steps", "seconds waiting", "share"), rows, figures, PACKAGES)


if __name__ == "__main__":
    main()
