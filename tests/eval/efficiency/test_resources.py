from pathlib import Path

import numpy as np
import pytest

from eval.efficiency import memory
from eval.efficiency.energy import energy, processor_joules
from eval.efficiency.memory import ResidentPeak
from eval.results import Skipped
from eval.scoring.scorer import Scorer
from eval.suites import Suite, TaskDefinition
from tests.eval.robustness.stubs import subject, task
from tests.eval.stubs import END, BigramModel

MIB = 2**20


def test_the_peak_is_what_a_piece_of_work_held_and_no_earlier_one() -> None:
    def hold(mebibytes: int) -> None:
        np.ones(mebibytes * MIB, np.uint8)

    peak = ResidentPeak()
    hold(200)
    peak.reset()
    hold(64)
    assert 60 * MIB < peak.bytes_since() < 120 * MIB
    peak.reset()
    assert peak.bytes_since() < 30 * MIB


def test_a_system_that_does_not_count_memory_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "PROCESS", tmp_path / "none")
    with pytest.raises(Skipped, match="does not count the resident memory"):
        ResidentPeak().reset()


def package(folder: Path, name: str, microjoules: str) -> None:
    (folder / name).mkdir()
    (folder / name / "energy_uj").write_text(microjoules)


def test_the_energy_of_processors_is_that_of_their_packages(tmp_path: Path) -> None:
    with pytest.raises(Skipped, match="does not tell what energy"):
        processor_joules(tmp_path)
    package(tmp_path, "intel-rapl:0", "1500000\n")
    package(tmp_path, "intel-rapl:1", "250000\n")
    package(tmp_path, "intel-rapl:0:0", "700000\n")  # a part of package 0
    joules = processor_joules(tmp_path)
    assert joules() == 1.75
    (tmp_path / "intel-rapl:2").mkdir()
    with pytest.raises(Skipped, match="cannot be read"):
        processor_joules(tmp_path)


def judged_energy(definition: TaskDefinition, used_for_each_row: float, wraps: bool = False):
    class Hungry(BigramModel):
        def logits(self, tokens, keep):
            self.joules = getattr(self, "joules", 10.0) + used_for_each_row * len(tokens)
            return super().logits(tokens, keep)

    model = Hungry(30, max_length=64)
    seconds = iter(range(10**6))
    counter = (lambda: -model.joules) if wraps else (lambda: model.joules)
    model.joules = 10.0
    suite = Suite(name="mine", axis="efficiency", version=1, tasks=(definition,))
    judged = subject(Scorer(model, prefix_token=END))
    return energy(suite, definition, judged, None, counter, "cpu", clock=lambda: next(seconds) / 20)


def test_energy_is_told_for_each_new_token() -> None:
    definition = task("energy", {"batch_sizes": [1, 4], "prompt_tokens": 8, "new_tokens": 5}, limit=3)
    result = judged_energy(definition, 0.25)
    assert result.value == pytest.approx(-2) and len(result.items) == 3 and result.measured
    assert "all processors of the host" in result.facts()["measured_by"]
    for used, wraps in ((0.0, False), (0.25, True)):
        with pytest.raises(Skipped, match="does not move"):
            judged_energy(definition, used, wraps)
