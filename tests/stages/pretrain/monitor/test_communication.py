import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import DeviceType

from stages.pretrain.monitor.communication import of_cuda, of_gloo, overlap, traffic, union
from stages.pretrain.monitor.links import SLOW_SAMPLES, SlowLinks
from stages.pretrain.step import result, train_step
from tests.stages.pretrain import micro
from tests.stages.pretrain.conftest import Build
from tests.stages.pretrain.forked import run_ranks
from tests.stages.pretrain.monitor import on_ranks
from tests.stages.pretrain.monitor.on_ranks import LATE_SECONDS, SIZE

INTERVALS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 9)).map(lambda pair: (pair[0], sum(pair))), max_size=9
)


# Rows that two ranks do not share evenly: one has a micro-batch without targets.
CONFIG = micro.config(batch_sequences=5, micro_batch_sequences=1, num_processes=SIZE, monitor_every_steps=1)


@pytest.fixture(scope="module")
def seen(tokens: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What two processes have measured, by rank."""
    job = micro.worker_job(CONFIG, tokens, tmp_path_factory.mktemp("ranks"))
    job.write()
    run_ranks(on_ranks.main, str(job.run.job), size=SIZE, log=job.run.log)
    return [json.loads((job.run.path / f"rank-{rank}.json").read_text()) for rank in range(SIZE)]


def test_two_processes_write_the_norms_and_ranges_of_one(seen: list[dict[str, Any]], build: Build) -> None:
    training, _ = build(CONFIG.model_copy(update={"num_processes": 1}))
    with training.monitor.step(1):
        numbers = train_step(training, training.train_feed.place(training.train.batch(0)), step=1)
    expected, _ = training.monitor.lines(1, result(training, numbers, step=1, draw=0), seconds=1.0)
    assert seen[0]["metrics"] == seen[1]["metrics"]
    found = seen[0]["metrics"][0]
    kinds = {f"{kind}_norms" for kind in ("gradient", "update", "parameter")} | {"activation_max", "activation_rms"}
    assert found.keys() == expected.keys() == kinds
    for kind, values in expected.items():
        assert found[kind] == pytest.approx(values, rel=1e-5), kind


def test_a_step_of_two_processes_says_what_passed_between_them(seen: list[dict[str, Any]]) -> None:
    for rank in seen:
        for line in rank["timing"]:
            told = line["communication"]
            assert told["sent_bytes"].keys() == {"all_gather", "reduce_scatter", "all_reduce"}
            assert 0 < told["exposed_seconds"] <= told["seconds"]
            assert 0 < told["exposed_share"] < 1
            assert told["slowest_link_seconds"] > told["link_seconds"] > 0
    one, other = (rank["timing"][0]["communication"] for rank in seen)
    assert one == other | {"sent_bytes": one["sent_bytes"]}, "all but the bytes is of all ranks"


def test_bytes_on_the_wire_are_those_of_the_layout(seen: list[dict[str, Any]]) -> None:
    for rank in seen:
        whole = 4 * rank["parameters"]
        # DDP reduces every gradient once: twice (n - 1) / n of it. The rest says where its buckets begin.
        assert rank["replicated"].pop("all_reduce") == whole
        assert sum(rank["replicated"].values()) < 100
        # FSDP2 gathers every parameter for the forward and for the backward pass, (n - 1) / n of it each time, and
        # reduces every gradient; which gloo does by an all-reduce.
        assert rank["sharded"] == {"all_gather": whole, "reduce_scatter": whole}


def test_a_wait_for_a_late_rank_is_exposed_and_one_behind_computing_is_not(seen: list[dict[str, Any]]) -> None:
    waits, computes = seen[0]["waits"], seen[0]["computes"]
    assert waits["waited"] > LATE_SECONDS / 2
    assert waits["exposed"] == pytest.approx(waits["waited"], rel=0.1)
    assert computes["seconds"] > LATE_SECONDS / 2, "nothing was under way"
    assert computes["exposed"] < computes["seconds"] / 4


def test_a_link_that_stays_slow_is_named_by_both_ends_and_ends_nothing(seen: list[dict[str, Any]]) -> None:
    host = socket.gethostname()
    name = f"rank 1 on {host} to rank 0 on {host}"
    for rank in seen:
        first, second, third = rank["timing"]
        assert first["communication"]["slowest_link"] == name
        assert "warnings" not in first and "warnings" not in second
        assert third["warnings"] == [f"the link from {name} has taken more than 3 times the median of all in 3 samples"]


def test_a_slow_link_is_told_once_until_it_has_been_fast_again() -> None:
    links = SlowLinks()
    slow, fast = [1.0, 3.1, 1.0, 1.1], [1.0, 2.9, 1.0, 1.1]
    for _ in range(2):
        assert [links.after(slow) for _ in range(SLOW_SAMPLES + 2)] == [[]] * (SLOW_SAMPLES - 1) + [[1], [], []]
        assert links.after(fast) == []
    assert [links.after([4.0, 1.0]) for _ in range(SLOW_SAMPLES)][-1] == [0], "the slower one of two"


@given(INTERVALS, INTERVALS)
def test_union_and_overlap_are_those_of_the_moments(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    def moments(intervals: list[tuple[int, int]]) -> set[int]:
        return {moment for start, end in intervals for moment in range(start, end)}

    joined = union(one)
    assert moments(joined) == moments(one)
    assert all(before[1] < after[0] for before, after in zip(joined, joined[1:], strict=False))
    assert overlap(joined, union(other)) == len(moments(one) & moments(other))


@dataclass
class Noted:
    """An event as the profiler gives it; times in seconds."""

    label: str
    start: float
    end: float
    sizes: tuple[tuple[int, ...], ...] = ()
    types: tuple[str, ...] = ()
    on_gpu: bool = False
    meta: tuple[tuple[str, str], ...] = ()

    def name(self) -> str:
        return self.label

    def start_ns(self) -> int:
        return round(self.start * 1e9)

    def duration_ns(self) -> int:
        return round((self.end - self.start) * 1e9)

    def shapes(self) -> list[list[int]]:
        return [list(size) for size in self.sizes]

    def dtypes(self) -> list[str]:
        return list(self.types)

    def device_type(self) -> DeviceType:
        return DeviceType.CUDA if self.on_gpu else DeviceType.CPU

    def extra_meta(self) -> dict[str, str]:
        return dict(self.meta)


def hybrid() -> Iterator[Noted]:
    """A unit of 80 bfloat16 that 4 processes shard, and 2 groups of them: gathered, reduced, and reduced again."""
    yield Noted("aten::mm", 0.0, 2.0)
    yield Noted("c10d::_allgather_base_", 1.0, 1.1, ((80,), (20,)), ("c10::BFloat16", "c10::BFloat16"))
    yield Noted("gloo:all_gather", 1.2, 3.0, ((20,),), ("c10::BFloat16",))
    yield Noted("autograd::engine", 2.0, 9.0)
    yield Noted("Torch-Compiled Region: 0/0", 2.5, 4.0)
    yield Noted("c10d::_reduce_scatter_base_", 5.0, 5.1, ((20,), (80,)), ("float", "float"))
    yield Noted("gloo:all_reduce", 5.0, 6.0, ((80,),), ("float",))
    yield Noted("c10d::allreduce_", 6.0, 6.1, ((),), ("TensorList",))
    yield Noted("gloo:all_reduce", 5.5, 7.0, ((20,),), ("float",))


def test_hybrid_sharding_counts_each_collective_by_its_own_ranks() -> None:
    found = traffic(*of_gloo(hybrid(), all_reduce_ranks=2))
    assert found.sent_bytes == {
        "all_gather": 3 * 40,
        "reduce_scatter": round(2 * 3 / 4 * 320),
        "all_reduce": round(2 * 1 / 2 * 80),
    }
    assert found.seconds == pytest.approx(1.8 + 2.0)
    assert found.exposed_seconds == pytest.approx(0.5 + 2.0)


def test_on_a_gpu_kernels_of_nccl_are_communication_and_all_others_computing() -> None:
    noted = {"Collective name": "_reduce_scatter_base", "In msg nelems": "80", "Group size": "4", "dtype": "Float"}
    events = [
        Noted("record_param_comms", 0.0, 0.1, meta=tuple(noted.items())),
        Noted("aten::mm", 0.0, 9.0),
        Noted("ncclDevKernel_ReduceScatter_Sum_f32", 1.0, 3.0, on_gpu=True),
        Noted("sm90_xmma_gemm", 2.0, 5.0, on_gpu=True),
    ]
    found = traffic(*of_cuda(events))
    assert found.sent_bytes == {"reduce_scatter": 240}
    assert (found.seconds, found.exposed_seconds) == (pytest.approx(2.0), pytest.approx(1.0))
