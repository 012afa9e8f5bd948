"""The verdicts: each threshold below, at and above; and a detail that says what to change."""

import math
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from data.shards import ShardHeader, TokenShard, TokenStream, write_shard
from stages.preflight import checks
from stages.preflight.checks import Status
from stages.pretrain.config import PretrainConfig

UNIFORM = math.log(512)


def trial(**changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "losses": [UNIFORM, UNIFORM - 0.1],
        "gradient_norms": [1.0, 0.9],
        "heldout_loss": UNIFORM,
        "seconds": [2.0, 0.5],
        "num_processes": 2,
    }
    return found | changes


@pytest.mark.parametrize(
    ("changes", "status", "detail"),
    [
        ({}, Status.PASS, r"0.500 s .* 2 processes, so 800 steps take about 7 min"),
        ({"losses": [UNIFORM * 1.09, 6.0]}, Status.PASS, "uniform guess has 6.2383"),
        ({"losses": [UNIFORM * 1.11, 6.0]}, Status.WARN, "initializer_std"),
        ({"losses": [UNIFORM, math.inf]}, Status.FAIL, "not finite"),
        ({"losses": [UNIFORM, None]}, Status.FAIL, "not finite"),
        ({"heldout_loss": math.nan}, Status.FAIL, "not finite"),
        ({"gradient_norms": [1.0, 0.0]}, Status.FAIL, "nothing would be learnt"),
    ],
)
def test_two_batches(changes: dict[str, Any], status: Status, detail: str) -> None:
    check = checks.steps(trial(**changes), PretrainConfig(num_steps=800), 512, 1.1)
    assert check.status is status
    assert re.search(detail, check.detail), check.detail


@pytest.mark.parametrize(
    ("available", "status"), [(99, Status.FAIL), (100, Status.WARN), (119, Status.WARN), (120, Status.PASS)]
)
def test_memory(available: int, status: Status) -> None:
    check = checks.memory(100e9, 80e9, available * 1e9, 1.2)
    assert check.status is status and "(+25%)" in check.detail
    assert ("micro_batch_sequences" in check.detail) == (status is not Status.PASS)


@pytest.mark.parametrize(("free", "status"), [(99, Status.FAIL), (100, Status.WARN), (150, Status.PASS)])
def test_disk(free: int, status: Status) -> None:
    check = checks.disk(free * 10**9, 100 * 10**9, 1.5)
    assert check.status is status and f"{free}.00 GB free" in check.detail


def test_shards_of_another_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("shards") / "a-00000.arrow"
    header = ShardHeader(vocabulary_size=512, end_id=2, vocabulary_digest="ours")
    tokens = np.array([5, 2], np.uint16)
    write_shard(path, header, ids=pa.array(["x"]), domain="a", tokens=tokens, offsets=np.array([0, 2]))
    streams = {"a": TokenStream([TokenShard(path)])}
    assert checks.tokens(header, streams, 512, "ours").status is Status.PASS
    for size, digest in ((512, "theirs"), (576, "ours")):
        check = checks.tokens(header, streams, size, digest)
        assert check.status is Status.FAIL and "pretokenize" in check.detail
