"""The verdicts: each threshold below, at and above; and a detail that says what to change."""

import math
import re
from pathlib import Path
from typing import Any

import pytest

from data.shards.files import shard_name
from data.shards.streams import open_streams
from stages.preflight import STAGE, checks
from stages.preflight.checks import Status
from stages.preflight.config import PreflightConfig, default_device
from stages.pretrain.config import PretrainConfig
from stages.store import Store
from tests.data.shards import shard_files

UNIFORM = math.log(512)


def trial(**changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "losses": [UNIFORM, UNIFORM - 0.1],
        "gradient_norms": [1.0, 0.9],
        "sequence_tokens": [64, 1024],
        "heldout_loss": UNIFORM,
        "seconds": [2.0, 0.5],
        "num_processes": 2,
    }
    return found | changes


@pytest.mark.parametrize(
    ("changes", "status", "detail"),
    [
        ({}, Status.PASS, "sequences of 64 and 1024 tokens"),
        ({}, Status.PASS, r"0.500 s .* 2 processes, so 800 steps take about 7 min"),
        ({"losses": [UNIFORM * 1.09, 6.0]}, Status.PASS, "uniform guess has 6.2383"),
        ({"losses": [UNIFORM * 1.11, 6.0]}, Status.WARN, "initializer_std"),
        ({"losses": [UNIFORM, math.inf]}, Status.FAIL, "not finite"),
        ({"losses": [UNIFORM, None]}, Status.FAIL, "not finite"),
        ({"heldout_loss": math.nan}, Status.FAIL, "not finite"),
        ({"gradient_norms": [1.0, 0.0]}, Status.FAIL, "nothing would be learnt"),
        ({"gradient_norms": [None, 1.0]}, Status.PASS, "2 processes"),
    ],
)
def test_two_batches(changes: dict[str, Any], status: Status, detail: str) -> None:
    check = checks.steps(trial(**changes), PretrainConfig(num_steps=800), 512, 1.1)
    assert check.status is status
    assert re.search(detail, check.detail), check.detail


def test_the_time_of_a_training_whose_batches_grow() -> None:
    ramp = PretrainConfig(num_steps=800, batch_sequences=8, batch_ramp=({"from_step": 401, "batch_sequences": 32},))
    found = checks.steps(trial(), ramp, 512, 1.1).detail
    assert "800 steps take about 4 min" in found, "half of the steps take 0.5 s, the others a quarter of that"


@pytest.mark.parametrize(
    ("against", "waived", "allowed", "status", "detail"),
    [
        ("a", [], (), Status.PASS, "7 items of 2 tasks were looked for, 3 are too short to be; 4 documents"),
        ("a", ["piqa"], ("copa", "piqa"), Status.PASS, "for them; waived: piqa"),
        ("b", [], (), Status.FAIL, "other suites than the recipe's; run curate"),
        ("a", ["copa", "piqa"], ("copa",), Status.FAIL, "not decontaminated against piqa; .*suites.waived_tasks"),
    ],
)
def test_decontamination(
    against: str, waived: list[str], allowed: tuple[str, ...], status: Status, detail: str
) -> None:
    tasks = {"x": {"items": 6, "too_short": 3, "documents": 4}, "y": {"items": 4, "too_short": 0, "documents": 0}}
    check = checks.decontamination({"tasks": tasks, "waived": waived}, against, "a", allowed)
    assert check.status is status and re.search(detail, check.detail), check.detail


@pytest.mark.parametrize(
    ("available", "status"), [(99, Status.FAIL), (100, Status.WARN), (119, Status.WARN), (120, Status.PASS)]
)
def test_memory(available: int, status: Status) -> None:
    check = checks.memory(100e9, 80e9, available * 1e9, 1.2)
    assert check.status is status and "(+25%)" in check.detail
    assert ("micro_batch_sequences" in check.detail) == (status is not Status.PASS)


@pytest.mark.parametrize(("free", "status"), [(99, Status.FAIL), (100, Status.WARN), (150, Status.PASS)])
def test_disk(free: int, status: Status) -> None:
    check = checks.disk(free * 10**9, 900 * 10**9, 100 * 10**9, 1.5)
    assert check.status is status and f"{free}.00 GB free, checkpoints need 100.00 GB" in check.detail


@pytest.mark.parametrize(("total", "may_pass"), [(99, False), (100, True)])
def test_a_disk_that_can_never_hold_the_checkpoints_needs_another_recipe(total: int, may_pass: bool) -> None:
    check = checks.disk(50 * 10**9, total * 10**9, 100 * 10**9, 1.5)
    assert check.status is Status.FAIL and check.may_pass is may_pass
    assert ("the whole disk has 99.00 GB" in check.detail) is not may_pass


def test_the_device_of_a_machine_is_found_without_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    (tmp_path / "nvidiactl").touch()
    assert default_device(tmp_path) == "cpu"
    (tmp_path / "nvidia3").touch()
    assert default_device(tmp_path) == "cuda"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert default_device(tmp_path) == "cpu"


def test_a_pass_on_one_device_is_none_on_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def key(device: str, here: str) -> dict[str, Any]:
        monkeypatch.setattr("stages.preflight.config.default_device", lambda: here)
        pretrain = PretrainConfig.model_validate({"device": device})
        return STAGE.externals(PreflightConfig(pretrain=pretrain), Store(tmp_path))

    assert key("auto", "cpu") == key("cpu", "cuda") != key("auto", "cuda") == key("cuda", "cpu")


def test_shards_of_another_tokenizer(tmp_path: Path) -> None:
    header = shard_files.header(512)
    shard_files.write(tmp_path / shard_name("a", 0), [[5, 2]], header, domain="a")
    shard_files.index_folder(tmp_path)
    streams = open_streams(tmp_path)
    good = checks.tokens(header, streams, 512, "d")
    assert good.status is Status.PASS and "a 2" in good.detail
    for size, digest in ((512, "theirs"), (576, "d")):
        check = checks.tokens(header, streams, size, digest)
        assert check.status is Status.FAIL and "pretokenize" in check.detail
