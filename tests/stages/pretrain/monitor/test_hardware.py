from pathlib import Path

import pytest
import torch

from stages.pretrain.monitor import hardware
from stages.pretrain.monitor.hardware import SCHEDULER, Counters, cpu_delay_seconds, matrix_rate, package_joules

CPU = torch.device("cpu")


def test_the_rate_is_that_of_the_fastest_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that stands still but while a product is computed."""
    now = [0.0]
    took = iter([0.5, 0.25, 0.5, 99.0])
    product = torch.mm

    def slow(*arguments: torch.Tensor, **named: torch.Tensor) -> torch.Tensor:
        now[0] += next(took) if named else 0.0
        return product(*arguments, **named)

    monkeypatch.setattr(hardware, "RATE_SECONDS", 1.0)
    monkeypatch.setattr(hardware.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(torch, "mm", slow)
    assert matrix_rate(CPU, torch.float32) == 2 * 512**3 / 0.25


def test_energy_is_that_of_all_packages_and_none_of_their_parts(tmp_path: Path) -> None:
    assert package_joules(tmp_path) is None
    for name, micro_joules in {"intel-rapl:0": 2_000_000, "intel-rapl:1": 500_000, "intel-rapl:0:0": 1_000_000}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "energy_uj").write_text(f"{micro_joules}\n")
    assert package_joules(tmp_path) == 2.5
    (tmp_path / "intel-rapl:1" / "energy_uj").unlink()
    assert package_joules(tmp_path) is None, "what cannot be read is not taken for nothing"


def test_counters_tell_what_came_since_they_were_last_read(monkeypatch: pytest.MonkeyPatch) -> None:
    joules = iter([100.0, 130.0, 140.0, 5.0])  # the last one: a counter that has begun anew
    monkeypatch.setattr(hardware, "package_joules", lambda: next(joules))
    counters = Counters(CPU)
    assert [counters.read().get("energy_joules") for _ in range(3)] == [30.0, 10.0, None]
    assert counters.state() == {}


def test_the_delay_of_a_thread_is_what_the_kernel_counts_of_it_if_it_does(tmp_path: Path) -> None:
    (tmp_path / "schedstat").write_text("391930700 314921593 111\n")
    assert cpu_delay_seconds(tmp_path / "schedstat") == pytest.approx(0.314921593)
    (tmp_path / "schedstat").write_text("0 0\n")
    assert cpu_delay_seconds(tmp_path / "schedstat") is None
    assert cpu_delay_seconds(tmp_path / "none") is None
    assert (cpu_delay_seconds() is not None) == SCHEDULER.is_file()
