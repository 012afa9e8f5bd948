"""A user relies on: shards that lie on an object store give the same batches as local ones, whatever the network does;
what cannot be read is an error that says so, never other tokens.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

from data.errors import InputError
from data.order.batches import Phase, SampleOrder
from data.order.loader import Batch, BatchLoader, PackedDomain
from data.order.packing import make_packing
from data.shards.cache import BlockCache
from data.shards.files import shard_name
from data.shards.remote import RemoteShards
from data.shards.streams import TokenStream, open_streams
from tests.data.shards.blocks import names
from tests.data.shards.shard_files import index_folder, write
from tests.services.proxy import FaultProxy, Faults
from tests.services.s3 import options, s3_server

URL = "s3://bucket/train"
ROOM = 10**9
NUM_BLOCKS = 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """3 shards of 4 record batches of about 30,000 tokens."""
    made, random = tmp_path_factory.mktemp("shards"), np.random.default_rng(0)
    for number in range(3):
        lengths = random.integers(9_000, 9_999, 12)
        documents = [[*random.integers(3, 600, length).tolist(), 2] for length in lengths]
        write(made / shard_name("a", number), documents, domain="a", batch_tokens=30_000)
    index_folder(made)
    return made


@pytest.fixture(scope="module")
def proxy(folder: Path) -> Iterator[FaultProxy]:
    """Before an S3 server that has the shards."""
    with s3_server() as port, FaultProxy(port) as made:
        files = fsspec.filesystem("s3", **options(port))
        files.mkdir("bucket")
        for path in folder.glob("*-*.arrow"):
            files.pipe_file(f"bucket/train/{path.name}", path.read_bytes())
        yield made


@pytest.fixture(autouse=True)
def undisturbed(request: pytest.FixtureRequest) -> None:
    if "proxy" in request.fixturenames:
        proxy = request.getfixturevalue("proxy")
        proxy.faults, proxy.script = Faults(), []


class Remote:
    """A stream over remote shards, and what it is made of."""

    def __init__(
        self,
        folder: Path,
        directory: Path,
        proxy: FaultProxy,
        *,
        max_bytes: int = ROOM,
        client: dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        self.cache = BlockCache(directory, max_bytes)
        self.files = RemoteShards(
            URL,
            self.cache,
            sleep=lambda seconds: time.sleep(seconds / 20),
            options=options(proxy.port) | (client or {}),
            **settings,
        )
        self.stream = open_streams(folder, files=self.files)["a"]

    def read(self) -> np.ndarray:
        return self.stream.read(0, len(self.stream))


def local(folder: Path) -> np.ndarray:
    stream = open_streams(folder)["a"]
    return stream.read(0, len(stream))


def batches(stream: TokenStream, steps: int) -> list[Batch]:
    packing = make_packing(
        "best-fit", num_tokens=len(stream), document_lengths=stream.document_lengths, sequence_tokens=512
    )
    order = SampleOrder(
        seed=0,
        num_sequences={"a": packing.num_sequences},
        phases=[Phase(first_step=0, weights={"a": 1.0}, longest_tokens=512, batch_tokens=8 * 512)],
    )
    with BatchLoader(order, {"a": PackedDomain(stream, packing)}).read_ahead(
        first_step=3, num_steps=steps, depth=4, readers=3
    ) as found:
        return list(found)


def test_batches_are_those_of_local_shards_and_each_block_is_fetched_once(
    folder: Path, proxy: FaultProxy, tmp_path: Path
) -> None:
    remote = Remote(folder, tmp_path, proxy)
    for found, wanted in zip(batches(remote.stream, 40), batches(open_streams(folder)["a"], 40), strict=True):
        for name in ("inputs", "targets", "positions"):
            assert np.array_equal(getattr(found, name), getattr(wanted, name)), name
    assert remote.cache.num_fetched == 2 * NUM_BLOCKS, "tokens, and offsets of documents"
    before = proxy.num_requests
    again = Remote(folder, tmp_path, proxy)
    assert np.array_equal(again.read(), local(folder)) and proxy.num_requests == before, "from the disk"


def test_a_cache_smaller_than_a_batch_needs_is_only_slower(folder: Path, proxy: FaultProxy, tmp_path: Path) -> None:
    """Blocks are evicted while a batch is made of them."""
    remote = Remote(folder, tmp_path, proxy, max_bytes=130_000)
    for found, wanted in zip(batches(remote.stream, 8), batches(open_streams(folder)["a"], 8), strict=True):
        assert np.array_equal(found.targets, wanted.targets)
    assert remote.cache.num_fetched > 2 * NUM_BLOCKS


@pytest.mark.parametrize("fault", ["503", "reset", "cut"])
def test_a_fault_of_every_request_in_turn_is_got_over(
    folder: Path, proxy: FaultProxy, tmp_path: Path, fault: str
) -> None:
    remote = Remote(folder, tmp_path, proxy, readers=4)
    proxy.script = [fault, "", fault, fault, ""] * 3
    assert np.array_equal(remote.read(), local(folder))
    assert remote.files.num_retries > 0 and not proxy.script and len(names(tmp_path)) == NUM_BLOCKS


def test_a_server_that_falls_silent_is_asked_again(folder: Path, proxy: FaultProxy, tmp_path: Path) -> None:
    remote = Remote(folder, tmp_path, proxy, client={"config_kwargs": {"read_timeout": 0.5}})
    proxy.script = ["stall", "", "stall"]
    assert np.array_equal(remote.read(), local(folder))
    assert remote.files.num_retries >= 2


def test_all_faults_at_once(folder: Path, proxy: FaultProxy, tmp_path: Path) -> None:
    proxy.faults = Faults(latency_seconds=0.01, busy=0.1, reset=0.2, cut=0.2)
    remote, before = Remote(folder, tmp_path, proxy, attempts=12), proxy.num_faults
    assert np.array_equal(remote.read(), local(folder))
    assert proxy.num_faults > before


def test_a_server_that_is_never_well_is_an_error_that_says_so(folder: Path, proxy: FaultProxy, tmp_path: Path) -> None:
    remote = Remote(folder, tmp_path, proxy, attempts=2, readers=NUM_BLOCKS)
    proxy.faults = Faults(reset=1.0)
    with pytest.raises(OSError, match=r"bytes \d+ to \d+ of s3://bucket/train/a-0000\d.arrow .* in 2 attempts"):
        remote.read()
    remote.files.close()
    assert names(tmp_path) == set() and not list((tmp_path / "parts").iterdir())


def test_settings_of_the_client_come_on_top_of_ours(folder: Path, proxy: FaultProxy, tmp_path: Path) -> None:
    """So each attempt stays one request."""
    for number, chosen in enumerate(({"read_timeout": 7}, {"retries": {"mode": "standard"}})):
        remote = Remote(folder, tmp_path / str(number), proxy, attempts=3, client={"config_kwargs": chosen})
        proxy.faults, before = Faults(busy=1.0), proxy.num_requests
        with pytest.raises(OSError, match="in 3 attempts"):
            remote.stream.read(0, 1)
        assert proxy.num_requests - before == 3


def test_an_error_of_one_block_is_raised_at_the_batch_that_needs_it(
    folder: Path, proxy: FaultProxy, tmp_path: Path
) -> None:
    remote = Remote(folder, tmp_path, proxy, attempts=1)
    assert np.array_equal(remote.stream.read(0, 100), local(folder)[:100])
    proxy.faults = Faults(cut=1.0)
    with pytest.raises(OSError, match="could not be read in 1 attempts"):
        batches(remote.stream, 5)


def test_a_reader_killed_in_a_download_harms_nobody(folder: Path, proxy: FaultProxy, tmp_path: Path) -> None:
    """Another reads the same blocks at the same time, and takes over what the killed one had begun."""
    proxy.faults = Faults(bytes_per_second=400_000)
    command = [
        sys.executable,
        "-m",
        "tests.data.shards.remote_reader",
        str(folder),
        URL,
        str(proxy.port),
        str(tmp_path),
    ]
    killed = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        deadline = time.monotonic() + 20
        while not begun(tmp_path):
            assert killed.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
        remote = Remote(folder, tmp_path, proxy, readers=4)
        proxy.faults = Faults()
    finally:
        killed.kill()
        killed.wait()
    assert np.array_equal(remote.read(), local(folder))
    assert len(names(tmp_path)) == NUM_BLOCKS and not list((tmp_path / "parts").iterdir())


def begun(directory: Path) -> bool:
    """Whether a download is on its way."""
    return (directory / "parts").exists() and any((directory / "parts").iterdir())


def test_a_damaged_block_on_the_disk_is_read_again(folder: Path, proxy: FaultProxy, tmp_path: Path) -> None:
    Remote(folder, tmp_path, proxy).read()
    for path in sorted((tmp_path / "blocks").iterdir())[:3]:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    remote = Remote(folder, tmp_path, proxy)
    assert np.array_equal(remote.read(), local(folder))
    assert remote.cache.num_damaged == remote.cache.num_fetched == 3


def test_other_content_upstream_is_never_trained_on(folder: Path, tmp_path: Path) -> None:
    """Shards of another run at the same place, and one that was cut short."""
    files = fsspec.filesystem("memory")
    for path in folder.glob("*-*.arrow"):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        files.pipe_file(f"/other/{path.name}", bytes(content))
        files.pipe_file(f"/short/{path.name}", path.read_bytes()[:1000])
    for place in ("other", "short"):
        cache = BlockCache(tmp_path / place, ROOM)
        shards = RemoteShards(f"memory://{place}/", cache, attempts=3, sleep=lambda _: None)
        stream = open_streams(folder, files=shards)["a"]
        with pytest.raises(OSError, match="could not be read in 3 attempts.*are not the block"):
            stream.read(0, len(stream))
        shards.close()


def test_what_no_attempt_can_mend_is_said_at_once(folder: Path, proxy: FaultProxy, tmp_path: Path) -> None:
    cache = BlockCache(tmp_path, ROOM)
    for place in ("s3://bucket/nowhere", "s3://no-bucket/train"):
        shards = RemoteShards(place, cache, options=options(proxy.port))
        with pytest.raises(InputError, match=f"{place}/a-00000.arrow is missing; copy the shards"):
            open_streams(folder, files=shards)["a"].read(0, 10)
        assert shards.num_retries == 0
    with pytest.raises(InputError, match="no file system for nothing://at/all"):
        RemoteShards("nothing://at/all", cache)
    with pytest.raises(InputError, match="local copy"):
        open_streams(folder, files=shards)["a"].document_ids()
    tiny = RemoteShards(URL, BlockCache(tmp_path / "tiny", 1000), options=options(proxy.port))
    with pytest.raises(InputError, match="bounded to 1000 bytes"):
        open_streams(folder, files=tiny)["a"].read(0, 10)


def test_the_blocks_of_a_read_are_on_their_way_together(folder: Path, proxy: FaultProxy, tmp_path: Path) -> None:
    """So a batch waits for one latency and not for one after the other."""
    remote = Remote(folder, tmp_path, proxy, readers=NUM_BLOCKS)
    proxy.faults, proxy.most_at_once = Faults(latency_seconds=1.0), 0
    remote.read()
    assert proxy.most_at_once > NUM_BLOCKS / 2
