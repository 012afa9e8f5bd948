"""A user relies on: a stage without memory says which settings take less, and is not tried again as it is."""

import errno
import json
import subprocess
import sys
from pathlib import Path

import pytest

from data.errors import InputError
from stages import kernel, out_of_memory
from stages.errors import BAD_INPUT
from stages.recipe import STAGES, load, parse
from tests.end_to_end.shell import REPOSITORY, TINY

TINY_RECIPE = load(TINY)


class OutOfMemoryError(RuntimeError):
    """As torch's, by its name alone."""


def chained(error: Exception) -> Exception:
    outer = ValueError("a shard could not be read")
    outer.__cause__ = error
    return outer


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] . DefaultCPUAllocator: can't allocate memory: you tried to"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("std::bad_alloc"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        chained(MemoryError("Unable to allocate 7.45 GiB for an array")),
    ],
)
def test_the_words_of_every_library_are_known(error: Exception) -> None:
    told = out_of_memory.explained(error, "export", TINY_RECIPE.export)
    assert isinstance(told, InputError)
    assert "export has run out of memory" in str(told) and "lower export.batch_tokens" in str(told)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("shapes do not fit"),
        OSError(errno.ENOSPC, "No space left on device"),
        ValueError("out of memory"),
        InputError("out of memory"),
    ],
)
def test_other_failures_stay_what_they_are(error: Exception) -> None:
    assert out_of_memory.explained(error, "export", TINY_RECIPE.export) is error


@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_says_what_to_do(stage: str) -> None:
    advice = out_of_memory.advice(stage, TINY_RECIPE.config_for(stage))
    named = [word.strip(",:") for word in advice.split() if word.split(".")[0] in STAGES and "." in word]
    for setting in named:
        table, field = setting.split(".")
        assert field in type(TINY_RECIPE.config_for(table)).model_fields, setting
    assert named or "more memory" in advice


def test_a_training_is_told_only_what_can_still_be_changed() -> None:
    wide = out_of_memory.advice("pretrain", TINY_RECIPE.pretrain)
    assert wide.startswith("lower pretrain.micro_batch_sequences (now 4)") and "recompute" in wide
    tables = {
        "name": "x",
        "pretrain": {"micro_batch_sequences": 1, "recompute": "full", "loss_chunk_tokens": 128},
    }
    tight = out_of_memory.advice("pretrain", parse(tables).pretrain)
    assert "micro_batch" not in tight and "recompute" not in tight and "sequence_tokens" in tight


def test_the_kernel_counts_its_kills(tmp_path: Path) -> None:
    group, machine = tmp_path / "memory.events", tmp_path / "vmstat"
    group.write_text("low 0\noom 3\noom_kill 2\n")
    machine.write_text("pgfault 17\noom_kill 9\n")
    files = (group, machine, tmp_path / "absent")
    before = kernel.oom_kills(files)
    assert sorted(before.values()) == [2, 9]
    assert not kernel.oom_kills_since(before, files)
    group.write_text("low 0\noom 4\noom_kill 3\n")
    assert kernel.oom_kills_since(before, files)
    assert not kernel.oom_kills_since({}, files), "a counter that was not there says nothing"


LIMITED = """
import resource, sys
from dataclasses import replace
import numpy as np
from stages import recipe
from stages.base import Facts

def run(config, inputs, out, journal):
    resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
    np.zeros(1 << 32, np.uint8)
    return Facts(facts={})

recipe.STAGES["curate"] = replace(recipe.STAGES["curate"], run=run)
from stages.cli import main
sys.argv = ["curate", *sys.argv[1:]]
main(recipe.STAGES["curate"])
"""


def test_a_stage_without_memory_ends_with_exit_code_2(tmp_path: Path) -> None:
    """A real allocation that the system refuses."""
    result = subprocess.run(
        [sys.executable, "-c", LIMITED, str(TINY), "--root", str(tmp_path), "--events"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
    )
    assert result.returncode == BAD_INPUT, result.stderr[-4000:]
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("error: curate has run out of memory (Unable to allocate 4.00 GiB")
    assert "lower curate.workers" in last and "Traceback" not in result.stderr
    assert json.loads(result.stdout.splitlines()[0])["kind"] == "stage.started"
