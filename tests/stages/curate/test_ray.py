"""Curation on a Ray cluster of three nodes on loopback: the same bytes as on threads, though nodes are lost."""

import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from data.errors import InputError
from stages.curate import CurateConfig
from stages.executor import LOOPBACK, import_ray, open_executor
from stages.journal import Event
from tests.stages.curate.curated import corpus, curate, source, write_jsonl

SECONDS = 240  # after which a test that hangs fails
NODE = {"object_store_memory": 80 << 20, "node_ip_address": LOOPBACK}
NUM_FILES = 8


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    def alarmed(signum: int, frame: object) -> None:
        raise TimeoutError(f"nothing came of it within {SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, alarmed)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head and two nodes that can be lost, of one core each."""
    import_ray("")
    from ray.cluster_utils import Cluster

    before = signal.getsignal(signal.SIGTERM)
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False, **NODE})
    for _ in range(2):
        made.add_node(num_cpus=1, **NODE)
    signal.signal(signal.SIGTERM, before)  # a node of this process replaces it
    yield made
    made.shutdown()


def lose(cluster: Any, node_id: str | None = None) -> None:
    """A node, by its id or any."""
    nodes = sorted(cluster.worker_nodes, key=lambda node: node.node_id)
    chosen = next(node for node in nodes if node_id in (None, node.node_id))
    cluster.remove_node(chosen, allow_graceful=False)


def linger(folder: Path, item: int) -> int:
    """Tells which node began it, and, though that may be lost by then, that it is done."""
    import ray

    trace = folder / f"{ray.get_runtime_context().get_node_id()}-{item}"
    trace.touch()
    time.sleep(0.5)
    trace.with_suffix(".done").touch()
    return item * item


@pytest.mark.slow
def test_a_lost_node_loses_no_item(cluster: Any, tmp_path: Path) -> None:
    lost: list[str] = []

    def lose_a_busy_node(done: int) -> None:
        began = [trace for trace in tmp_path.glob("*-*[0-9]") if not trace.with_suffix(".done").exists()]
        busy = {node.node_id for node in cluster.worker_nodes} & {trace.name.partition("-")[0] for trace in began}
        if busy and not lost:
            lost.append(min(busy))
            lose(cluster, lost[0])

    with open_executor("ray", workers=1, ray_address=cluster.address) as executor:
        found = executor.map(partial(linger, tmp_path), range(15), done=lose_a_busy_node)
    assert found == [item * item for item in range(15)]
    assert lost and len(list(tmp_path.glob("*-*[0-9]"))) > 15  # one was begun again


def test_the_corpus_has_the_bytes_that_threads_give_it(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    records = corpus(96)
    records += [{**record, "id": f"again{number}"} for number, record in enumerate(records[::5])]
    size = len(records) // NUM_FILES
    for number in range(NUM_FILES):
        write_jsonl(f"{number}.jsonl", records[number * size : (number + 1) * size])
    sources = tuple(source(f"{number}.jsonl") for number in range(NUM_FILES))  # a part each
    on_threads = curate(CurateConfig(sources=sources, workers=1), "threads")
    lost: list[Event] = []

    def listen(event: Event) -> None:
        if event["kind"] == "progress" and event["name"] == "read" and event["done"] and not lost:
            lost.append(event)
            lose(cluster)

    settings = {"executor": "ray", "ray_address": cluster.address}
    on_ray = curate(CurateConfig(sources=sources, **settings), "ray", listeners=(listen,))
    assert lost and lost[0]["done"] < lost[0]["total"]
    assert on_ray.digest == on_threads.digest
    files = {path.relative_to(on_threads.path) for path in on_threads.path.rglob("*.parquet")}
    assert files == {path.relative_to(on_ray.path) for path in on_ray.path.rglob("*.parquet")}
    for path in files:
        assert (on_ray.path / path).read_bytes() == (on_threads.path / path).read_bytes(), path


def test_a_bad_record_on_a_node_is_the_users_error(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.jsonl").write_text('{"body": 1}\n' * 40)
    with pytest.raises(InputError) as on_threads:
        curate(CurateConfig(sources=(source(),)), "threads")
    with pytest.raises(InputError) as on_ray:
        curate(CurateConfig(sources=(source(),), executor="ray", ray_address=cluster.address), "ray")
    assert type(on_ray.value) is InputError and str(on_ray.value) == str(on_threads.value)
