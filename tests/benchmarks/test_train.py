"""A reader of `make bench-train` relies on: steps are counted alike on all sides, and without the first ones."""

import json
from pathlib import Path

import pytest

from tests.benchmarks.peers.training import steps
from tests.benchmarks.peers.training.text import write_text
from tests.benchmarks.train import NUM_SOURCES, _cost
from tests.benchmarks.train_options import measured


def test_a_step_is_the_mean_of_those_behind_the_first_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = {"cpu": 0.0, "wall": 0.0}
    monkeypatch.setattr(steps.time, "process_time", lambda: clock["cpu"])
    monkeypatch.setattr(steps.time, "perf_counter", lambda: clock["wall"])
    for rank, cpu in (("0", 2.0), ("1", 3.0)):
        monkeypatch.setenv("RANK", rank)
        times = steps.Steps(tmp_path)
        for number in range(steps.STEPS):
            clock["cpu"] += 100.0 if number < steps.SKIPPED else cpu
            clock["wall"] += 100.0 if number < steps.SKIPPED else 2 * cpu
            times.ended("what", "a hook", "is given")
    cost = _cost(tmp_path)
    assert cost.cpu_seconds == pytest.approx(5.0), "of both processes"
    assert cost.wall_seconds == pytest.approx(6.0), "of the slower one"


def test_the_text_of_the_others_has_their_vocabulary(tmp_path: Path) -> None:
    from tokenizers import Tokenizer

    write_text(tmp_path, vocabulary_size=steps.VOCABULARY, num_sources=NUM_SOURCES)
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer" / "tokenizer.json"))
    assert tokenizer.get_vocab_size() == steps.VOCABULARY
    needed = steps.STEPS * steps.ROWS * steps.TOKENS
    texts = [json.loads(line)["text"] for line in (tmp_path / "lines" / "data.json").read_text().splitlines()]
    assert sum(len(found.ids) for found in tokenizer.encode_batch(texts)) > needed, "no text is read twice"


@pytest.mark.slow
def test_options_are_measured_on_processes_that_meet(tmp_path: Path) -> None:
    found = measured(tmp_path, "layouts", {"in turn": {"overlap": False}}, rounds=1, processes=2)
    assert found["in turn"]["optimizer_bytes"] > 0, "of the process that holds most"
