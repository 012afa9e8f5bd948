import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch._dynamo.testing import CompileCounter

from data.order.loader import IGNORE
from stages.pretrain.checkpoints.saver import Saver
from stages.pretrain.config import PretrainConfig
from stages.pretrain.job import read_lines
from stages.pretrain.loop import train
from stages.pretrain.model.compiled import compile_layers
from stages.pretrain.monitor.monitor import Monitor
from stages.pretrain.monitor.records import Records
from stages.pretrain.step import Training, result, train_step
from tests.stages.pretrain import micro
from tests.stages.pretrain.conftest import Build


def measured(training: Training, **targets: np.ndarray) -> dict[str, Any]:
    """The metrics line of the first step, on its own batch or with other targets."""
    batch = dataclasses.replace(training.train.batch(0), **targets)
    with training.monitor.step(1):
        numbers = train_step(training, training.train_feed.place(batch), step=1)
    return training.monitor.lines(1, result(training, numbers, step=1, draw=0), seconds=1.0)[0]


def outputs(training: Training, rows: slice) -> list[torch.Tensor]:
    """float64[rows, tokens, width] of each decoder layer, on rows of the first batch."""
    found: list[torch.Tensor] = []
    layers = training.model.model.layers
    handles = [layer.register_forward_hook(lambda *seen: found.append(seen[-1].detach().double())) for layer in layers]
    batch = training.train.batch(0)
    positions = torch.from_numpy(batch.positions[rows])
    with torch.no_grad():
        training.model(input_ids=torch.from_numpy(batch.inputs[rows]), **training.attention.arguments(positions))
    for handle in handles:
        handle.remove()
    return found


@pytest.mark.parametrize("micro_batch", [1, 4, 6])
def test_ranges_are_those_of_each_layers_output_over_the_rows_with_targets(build: Build, micro_batch: int) -> None:
    training, _ = build(micro.config(micro_batch_sequences=micro_batch))
    expected = outputs(training, slice(0, 4))
    targets = training.train.batch(0).targets.copy()
    targets[4:] = IGNORE
    found = measured(training, targets=targets)
    assert found["activation_max"] == pytest.approx([layer.abs().max().item() for layer in expected], rel=1e-5)
    assert found["activation_rms"] == pytest.approx(
        [layer.square().mean().sqrt().item() for layer in expected], rel=1e-5
    )
    assert outputs(training, slice(4, 6))[0].abs().max() != pytest.approx(found["activation_max"][0], rel=1e-3)


def test_parameter_norms_are_those_that_the_step_has_left(build: Build) -> None:
    training, _ = build(micro.config())
    found = measured(training)["parameter_norms"]
    assert found.keys() == {"embedding", "attention", "feed_forward", "norm"}
    expected = training.model.model.embed_tokens.weight.double().norm().item()
    assert found["embedding"] == pytest.approx(expected, rel=1e-7)
    whole = sum(parameter.double().square().sum().item() for parameter in training.model.parameters())
    assert sum(norm**2 for norm in found.values()) == pytest.approx(whole, rel=1e-7)


def test_what_is_computed_again_for_the_backward_pass_is_not_measured_again(build: Build) -> None:
    found = []
    for recompute in ("none", "full"):
        training, _ = build(micro.config(micro_batch_sequences=2, recompute=recompute))
        found.append(measured(training))
    assert found[0] == found[1]


def trained(build: Build, config: PretrainConfig, path: Path) -> tuple[Training, list[dict[str, Any]], dict[str, Any]]:
    """A whole training: what it leaves, the lines of its metrics, and those of its timing by step."""
    training, state = build(config)
    folder = path / "checkpoints"
    training = dataclasses.replace(training, checkpoints=folder, saver=Saver(folder, training.ranks, {}))
    run = dataclasses.replace(micro.worker_job(config, path, path).run, path=path)
    with Records(run, writes=True) as records:
        train(training, state, records)
    return training, read_lines(run.metrics), {line["step"]: line for line in read_lines(run.timing)}


def test_measuring_more_often_changes_nothing_else(build: Build, tmp_path: Path) -> None:
    runs = []
    for every in (1, 7, 1000):
        path = tmp_path / str(every)
        path.mkdir()
        runs.append(trained(build, micro.config(num_steps=8, monitor_every_steps=every), path))
    tensors = [training.tensors() for training, _, _ in runs]
    assert all(torch.equal(tensor, other[name]) for name, tensor in tensors[0].items() for other in tensors[1:])
    (_, always, _), (_, seldom, timing), (_, once, _) = runs
    sampled = [[line["step"] for line in lines if "activation_max" in line] for lines in (always, seldom, once)]
    assert sampled == [list(range(1, 9)), [1, 7], [1]]
    assert seldom[6] == always[6], "a sampled step gives the same whenever it is made"
    for line, whole in zip(seldom[1:6], always[1:6], strict=True):
        assert line == {name: whole[name] for name in line}
        assert line.keys() == {"step", "loss", "learning_rate", "gradient_norm", "tokens", "gradient_norms"}
        assert sum(norm**2 for norm in line["gradient_norms"].values()) == pytest.approx(line["gradient_norm"] ** 2)
    assert all({"tokens_per_second", "mfu", "monitor_seconds"} <= line.keys() for line in timing.values())
    assert [step for step, line in timing.items() if "memory" in line] == [1, 7]
    assert timing[7]["memory"]["resident_bytes"] > 1e8
    assert json.loads(json.dumps(timing[7])) == timing[7]


def test_nothing_looks_on_after_a_step_that_failed(build: Build) -> None:
    training, _ = build(micro.config())

    def hooks() -> int:
        return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in training.model.modules())

    before = hooks()
    with pytest.raises(OSError), training.monitor.step(1):
        assert hooks() > before
        raise OSError
    assert hooks() == before
    with training.monitor.step(2):
        assert hooks() == before, "a step that is not sampled has none"


def test_utilisation_is_the_share_of_the_measured_rate(build: Build) -> None:
    """By hand: 6 for each weight but the norms', and attention's 12 x layers x width x tokens."""
    training, _ = build(micro.config())
    monitor: Monitor = training.monitor
    weights = sum(parameter.numel() for parameter in training.model.parameters() if parameter.ndim == 2)
    operations = (6 * weights + 12 * 2 * 24 * 16) * 6 * 16
    with monitor.step(1):
        numbers = train_step(training, training.train_feed.place(training.train.batch(0)), step=1)
    found = result(training, numbers, step=1, draw=0)
    seconds = 1e-3
    _, timing = monitor.lines(1, found, seconds=seconds)
    rate = timing["matrix_flops_per_second"]
    assert rate > 1e8
    assert timing["mfu"] == pytest.approx(operations / seconds / rate, rel=1e-2, abs=1e-4)
    assert timing["tokens_per_second"] == pytest.approx(found.tokens / seconds)


def test_compiled_layers_are_measured_from_outside_and_compiled_once(build: Build) -> None:
    expected, _ = build(micro.config())
    training, _ = build(micro.config())
    counter = CompileCounter()
    compile_layers(training.model, backend=counter)
    found = measured(training)
    num_compiled = counter.frame_count
    with training.monitor.step(2):
        train_step(training, training.train_feed.place(training.train.batch(1)), step=2)
    assert measured(training).keys() == found.keys()
    assert counter.frame_count == num_compiled > 0
    assert found == measured(expected)
