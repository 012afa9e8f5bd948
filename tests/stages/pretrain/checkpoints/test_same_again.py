"""A user relies on: a training that goes on from a checkpoint makes the steps that it would have made, each with its
own samples, its own learning rate, and no luck."""

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from data.errors import InputError
from stages.pretrain import loop, setup
from stages.pretrain.checkpoints import checkpoint
from stages.pretrain.job import RunDirectory, read_lines
from stages.pretrain.monitor.records import Records
from stages.pretrain.optimise.schedule import learning_rate
from tests.stages.pretrain import micro
from tests.stages.pretrain.conftest import Build

# Two domains of 188 sequences each, by turns: nine batches of forty rows are less than an epoch, and ten are more.
ROWS, STEPS, SAVED = 40, 24, 5
Sample = tuple[int, int]


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> dict[int, list[Sample]]:
    """What each step trains on, counted from 1, of trainings that are built from here on."""
    found: dict[int, list[Sample]] = {}

    def hook(point: str, step: int, rank: int, value: Any) -> Any:
        if point == "batch":
            found[step] = list(zip(value.samples.domain.tolist(), value.samples.sequence.tolist(), strict=True))
        return value

    monkeypatch.setattr(setup, "load_hook", lambda name: hook)
    return found


def settings(**changes: Any) -> dict[str, Any]:
    return {
        "batch_sequences": ROWS,
        "num_steps": STEPS,
        "checkpoint_every_steps": SAVED,
        "warmup_ratio": 0.5,
        **changes,
    }


def trained(build: Build, resume_step: int, **changes: Any) -> list[dict[str, Any]]:
    """The lines of metrics of a training from a step to its end."""
    training, state = build(micro.config(**settings(**changes)), resume_step=resume_step)
    run = RunDirectory(training.checkpoints.parent)
    run.metrics.unlink(missing_ok=True)
    for path in training.checkpoints.glob("step-*") if resume_step else []:
        if path.name != checkpoint.step_name(resume_step):
            path.rename(path.with_name(f"old-{path.name}-{changes.get('prefetch_batches')}"))
    with Records(run, writes=True) as records:
        loop.train(training, state, records)
    return read_lines(run.metrics)


def test_no_batch_is_taken_twice_or_left_out_however_far_ahead_was_read(
    build: Build, taken: dict[int, list[Sample]]
) -> None:
    """Nor is an epoch shuffled as another one was, which the training goes on in the middle of; nor does a learning
    rate of any later step differ."""
    undisturbed = trained(build, 0, prefetch_batches=4)
    expected = dict(taken)
    for prefetch in (1, 4, 7):
        taken.clear()
        lines = trained(build, SAVED, prefetch_batches=prefetch)
        assert taken == {step: rows for step, rows in expected.items() if step > SAVED}
        assert lines == undisturbed[SAVED:]
    rates = [line["learning_rate"] for line in undisturbed]
    assert rates == [learning_rate(micro.config(**settings()), step) for step in range(1, STEPS + 1)]
    assert len(set(rates[: STEPS // 2])) == STEPS // 2, "on both sides of the checkpoint the rate moves"
    for domain in (0, 1):
        drawn = [sequence for step in sorted(expected) for of, sequence in expected[step] if of == domain]
        size = max(drawn) + 1
        first, second = drawn[:size], drawn[size : 2 * size]
        assert set(Counter(first).values()) == {1} and len(second) > 10
        assert first[: len(second)] != second and set(Counter(second).values()) == {1}


def test_another_batch_size_is_other_data_and_refused(build: Build, taken: dict[int, list[Sample]]) -> None:
    """Whose learning rates and samples would be those of other steps."""
    from stages.pretrain.job import data_fingerprint

    one, other = (micro.config(**settings(batch_sequences=size)) for size in (ROWS, ROWS + 1))
    assert data_fingerprint(one, "tokens") != data_fingerprint(other, "tokens")
    trained(build, 0)
    training, _ = build(other)
    with pytest.raises(InputError, match="made from other data"):
        checkpoint.load(
            training.checkpoints, SAVED, training.tensors(), data_fingerprint=data_fingerprint(other, ""), excluded=()
        )


def test_no_step_depends_on_random_numbers_of_its_process(build: Build) -> None:
    """So that there are none to save, and no rank can be given those of another one."""
    left = []
    for seed in (1, 2):
        training, _ = build(micro.config())
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        torch.manual_seed(seed)
        before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()  # type: ignore[index]
        for step in range(3):
            fed = training.train_feed.place(training.train.batch(step))
            loop.train_step(training, fed, step=step + 1)
        after = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()  # type: ignore[index]
        assert before[:2] == after[:2] and torch.equal(before[2], after[2]), "a step has drawn a random number"
        left.append({name: tensor.clone() for name, tensor in training.tensors().items()})
    assert all(torch.equal(left[0][name], left[1][name]) for name in left[0])
