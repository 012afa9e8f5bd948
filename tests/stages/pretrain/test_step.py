import dataclasses
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from data.errors import InputError
from data.order.loader import IGNORE, Batch
from stages.pretrain.faults import no_fault
from stages.pretrain.job import RunDirectory
from stages.pretrain.loop import after
from stages.pretrain.monitor.records import Records
from stages.pretrain.step import NonFinite, StepResult, Training, Wish
from tests.stages.pretrain import micro
from tests.stages.pretrain.conftest import Build
from tests.stages.pretrain.one_step import one_step, saved, with_gradients

NOTHING = StepResult(
    tokens=0,
    loss=None,
    gradient_norm=None,
    wish=Wish.NOTHING,
    waited_seconds=0.0,
    overflow=False,
    group_norms={},
    measured={},
)


def weights(training: Training) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in training.tensors().items()}


def with_targets(batch: Batch, targets: np.ndarray) -> Batch:
    return dataclasses.replace(batch, targets=targets, num_targets=int((targets != IGNORE).sum()))


def test_a_checkpoint_puts_down_the_memory_that_its_steps_needed(build: Build, tmp_path: Path) -> None:
    training, state = build(micro.config())
    run = RunDirectory(tmp_path / "run")
    with Records(run, writes=True) as records:
        saved(training, state, records)
        assert records.peak_memory(1) > 1e8


def uneven(batch: Batch) -> Batch:
    """Rows with one, many and no targets."""
    targets = batch.targets.copy()
    targets[0, 1:] = IGNORE
    targets[2] = IGNORE
    targets[4, ::2] = IGNORE
    return with_targets(batch, targets)


@pytest.mark.parametrize("size", [1, 2, 4, 5])
def test_accumulation_gives_the_loss_and_gradient_of_one_big_batch(build: Build, size: int) -> None:
    training, _ = build(micro.config(micro_batch_sequences=6))
    batch = uneven(training.train.batch(0))
    whole, expected = with_gradients(training, batch)
    training, _ = build(micro.config(micro_batch_sequences=size))
    pieces, found = with_gradients(training, batch)
    assert pieces.tokens == whole.tokens == int((batch.targets != IGNORE).sum())
    assert pieces.loss == pytest.approx(whole.loss, rel=1e-6)
    for name, gradient in expected.items():
        assert (found[name] - gradient).norm() <= 1e-5 * gradient.norm(), name


def test_the_loss_is_the_mean_over_tokens_and_not_a_mean_of_means(build: Build) -> None:
    training, _ = build(micro.config(micro_batch_sequences=1))
    batch = uneven(training.train.batch(0))
    with torch.no_grad():
        arguments = training.attention.arguments(torch.from_numpy(batch.positions))
        logits = training.model(input_ids=torch.from_numpy(batch.inputs), **arguments).logits[..., : micro.VOCABULARY]
        flat = torch.from_numpy(batch.targets).flatten()
        each = torch.nn.functional.cross_entropy(logits.flatten(0, 1), flat, ignore_index=IGNORE, reduction="none")
    per_row = each.view(6, -1)
    counts = (batch.targets != IGNORE).sum(axis=1)
    result = one_step(training, batch)
    assert result.loss == pytest.approx(each.sum().item() / counts.sum(), rel=1e-6)
    mean_of_means = np.mean([per_row[row].sum().item() / counts[row] for row in range(6) if counts[row]])
    assert abs(result.loss - mean_of_means) > 1e-3


def test_a_micro_batch_without_targets_is_as_if_it_were_not_there(build: Build) -> None:
    training, _ = build(micro.config(micro_batch_sequences=1))
    batch = uneven(training.train.batch(0))
    with_empty, expected = with_gradients(training, batch)
    training, _ = build(micro.config(micro_batch_sequences=1))
    rows = [0, 1, 3, 4, 5]
    without = dataclasses.replace(
        batch, inputs=batch.inputs[rows], targets=batch.targets[rows], positions=batch.positions[rows]
    )
    dropped, found = with_gradients(training, without)
    assert with_empty.tokens == dropped.tokens
    assert with_empty.loss == pytest.approx(dropped.loss, rel=1e-6)
    assert all(torch.allclose(found[name], gradient, rtol=1e-5, atol=1e-9) for name, gradient in expected.items())


def test_a_batch_without_targets_makes_no_step(build: Build) -> None:
    training, state = build(micro.config())
    before = weights(training)
    batch = training.train.batch(0)
    result = one_step(training, with_targets(batch, np.full_like(batch.targets, IGNORE)))
    assert dataclasses.replace(result, measured={}) == NOTHING
    assert all(torch.equal(tensor, before[name]) for name, tensor in training.tensors().items())
    state = after(training, state, result, 1)
    assert (state.step, state.tokens_seen, state.skipped_in_a_row) == (1, 0, 1)


def test_batches_without_targets_one_after_the_other_end_the_run(build: Build) -> None:
    training, state = build(micro.config())
    full = dataclasses.replace(NOTHING, tokens=5, loss=1.0, gradient_norm=1.0)
    for step in range(1, 10):
        state = after(training, state, NOTHING, step)
    state = after(training, state, full, 10)
    assert state.skipped_in_a_row == 0
    for step in range(11, 20):
        state = after(training, state, NOTHING, step)
    with pytest.raises(InputError, match="token shards"):
        after(training, state, NOTHING, 20)


@pytest.mark.parametrize("packing", ["stream", "best-fit", "length-buckets"])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_document_in_a_row_is_scored_as_by_itself_after_one_end(build: Build, packing: str, attention: str) -> None:
    """Which is how an evaluation scores it. From shards to logits, in rows as they come."""
    training, _ = build(micro.config(packing=packing, attention=attention))
    alone, found = 0, 0
    for step in range(12):
        batch = training.train.batch(step)
        rows = training.train_feed.place(batch).micro_batches[0]
        with torch.no_grad():
            logits = training.model(input_ids=rows.inputs, **training.attention.arguments(rows.positions)).logits
        for row, inputs in enumerate(batch.inputs):
            starts = [*np.flatnonzero(batch.positions[row] == 0), len(inputs)]
            for first, last in pairwise(starts):
                if inputs[first] != micro.EOS or batch.targets[row, first] == IGNORE:
                    continue  # what a document's earlier piece has left over, or padding
                with torch.no_grad():
                    expected = training.model(input_ids=rows.inputs[row : row + 1, first:last]).logits
                assert torch.allclose(logits[row, first:last], expected[0], atol=1e-5)
                found += 1
                alone += last - first == len(inputs)
    assert found > 12 and (alone < found or packing == "length-buckets")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_never_reaches_the_weights(build: Build, value: float) -> None:
    training, _ = build(micro.config())
    before = weights(training)

    def hook(point: str, step: int, rank: int, current: Any) -> Any:
        return current * value if point == "loss" else current

    with pytest.raises(NonFinite, match="step 1") as raised:
        one_step(dataclasses.replace(training, hook=hook))
    assert raised.value.draw == 0
    assert all(torch.equal(tensor, before[name]) for name, tensor in training.tensors().items())


def test_the_gradient_is_clipped_by_its_global_norm(build: Build) -> None:
    """What AdamW's first moment holds after one step is (1 - beta1) times the gradient that it was given."""
    training, _ = build(micro.config(gradient_clip_norm=0.01))
    found, gradients = with_gradients(training)
    squares = [
        tensor.double().square().sum() for name, tensor in training.tensors().items() if name.endswith(".exp_avg")
    ]
    before = torch.stack([gradient.double().square().sum() for gradient in gradients.values()]).sum().sqrt().item()
    assert found.gradient_norm == pytest.approx(before, rel=1e-6) and before > 0.1
    given = torch.stack(squares).sum().sqrt().item() / (1 - training.config.beta1)
    assert given == pytest.approx(0.01, rel=1e-3)
    groups = sum(norm**2 for norm in found.group_norms.values())
    assert groups**0.5 == pytest.approx(found.gradient_norm, rel=1e-9)


def test_bf16_keeps_weights_moments_and_loss_in_float32(build: Build) -> None:
    training, _ = build(micro.config(precision="bf16"))
    start = weights(training)
    dtypes = set()

    def hook(point: str, step: int, rank: int, value: Any) -> Any:
        if point == "loss":
            dtypes.add(value.dtype)
        return value

    low = one_step(dataclasses.replace(training, hook=hook))
    assert {tensor.dtype for tensor in training.tensors().values()} | dtypes == {torch.float32}
    assert not torch.equal(
        training.tensors()["model.model.embed_tokens.weight"], start["model.model.embed_tokens.weight"]
    )
    training, _ = build(micro.config(precision="fp32"))
    high = one_step(training)
    assert low.loss == pytest.approx(high.loss, rel=1e-2)
    assert low.loss != high.loss, "bf16 was not used"


def test_rows_that_only_pad_the_vocabulary_neither_count_nor_learn(build: Build) -> None:
    training, _ = build(micro.config(weight_decay=0))
    embedding = training.model.model.embed_tokens.weight
    assert len(embedding) == micro.PADDED
    before, seen = embedding.detach().clone(), {}

    def hook(point: str, step: int, rank: int, value: Any) -> Any:
        if point == "update":
            seen["gradient"] = embedding.grad.clone()
        return value

    uniform = math.log(micro.VOCABULARY)
    with torch.no_grad():
        embedding[micro.VOCABULARY :] = 1e3
        embedding[: micro.VOCABULARY] *= 1e-4
    result = one_step(dataclasses.replace(training, hook=hook))
    assert result.loss == pytest.approx(uniform, abs=0.01), "padding took a share of the probability"
    assert not seen["gradient"][micro.VOCABULARY :].any() and seen["gradient"][: micro.VOCABULARY].any()
    assert (embedding[micro.VOCABULARY :] == 1e3).all() and not torch.equal(embedding, before)


def test_without_a_test_nothing_is_injected() -> None:
    value = object()
    assert no_fault("loss", 1, 0, value) is value
