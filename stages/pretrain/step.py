"""The training step, spelled out in the order in which it happens.

The loss of a step is the sum over all target tokens of the global batch divided by their number, whatever the number of
processes and micro-batches. The host waits for nothing in it: all that depends on numbers of this step, clipping and
the refusal of what is not finite among them, happens on the device.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from data.order.loader import BatchLoader
from stages.pretrain.batches.exclusions import Draws
from stages.pretrain.batches.feed import Fed, Feed
from stages.pretrain.checkpoints.saver import Saver
from stages.pretrain.checkpoints.tensors import Held, model_tensors
from stages.pretrain.config import PretrainConfig
from stages.pretrain.faults import Hook
from stages.pretrain.memory.precision import Precision
from stages.pretrain.model.attention import Attention
from stages.pretrain.monitor.monitor import Monitor
from stages.pretrain.numbers import Numbers
from stages.pretrain.optimise.norms import squared_norms
from stages.pretrain.optimise.optimizer import Optimizer
from stages.pretrain.optimise.schedule import learning_rate
from stages.pretrain.parallel.ranks import Ranks
from stages.pretrain.parallel.redundant_loop import gradients
from stages.pretrain.parallel.spread import reducing
from stages.pretrain.supervision.beats import Phase
from stages.pretrain.supervision.notices import Requests

if TYPE_CHECKING:
    import torch

    from stages.pretrain.parallel.redundant import Replicas
    from stages.pretrain.parallel.timeouts import Timeouts

NORM_EPSILON = 1e-6  # added to the norm that is clipped by, as torch's clip_grad_norm_ does


class NonFinite(RuntimeError):
    """A loss or a gradient norm is NaN or infinite. `draw`: the batch that it came of, which has changed no weight; for
    a loss on held-out text None."""

    def __init__(self, message: str, draw: int | None) -> None:
        super().__init__(message)
        self.draw = draw


@dataclass(frozen=True, kw_only=True)
class Training:
    """Everything that a step, and the loop around it, works with on this rank. draw: of a step counted from 0;
    excluded: those that no step takes. checkpoint_seconds: between local checkpoints at first; local_seconds: later, by
    what was measured up to a step, if anything was. Held-out rows may hold several documents even where training rows
    do not, so each has its attention. replicas: the other groups of a redundant training, of which `ranks` is one;
    deal: what reads and feeds the rows of a place among so many."""

    config: PretrainConfig
    ranks: Ranks
    model: "torch.nn.Module"
    optimizer: Optimizer
    precision: Precision
    attention: Attention
    train: BatchLoader
    train_feed: Feed
    heldout: BatchLoader
    heldout_feed: Feed
    heldout_attention: Attention
    draw: Callable[[int], int]
    excluded: Draws
    checkpoints: Path
    checkpoint_seconds: float
    local_seconds: Callable[[int], float | None]
    saver: Saver
    monitor: Monitor
    timeouts: "Timeouts"
    requests: Requests
    hook: Hook
    replicas: "Replicas | None" = None
    deal: Callable[[int, int], tuple[BatchLoader, Feed]] | None = None

    @property
    def place(self) -> "Ranks | Replicas":
        """This rank among all that the rows of a batch are dealt to."""
        return self.ranks if self.replicas is None else self.replicas

    @property
    def writes(self) -> bool:
        """Whether this rank takes part in saving checkpoints."""
        return self.replicas is None or self.replicas.writes

    @property
    def is_main(self) -> bool:
        """Whether this rank is the one whose wish counts, and that writes records."""
        return self.ranks.is_main and self.writes

    def tensors(self) -> "dict[str, torch.Tensor | Held]":
        """All tensors of the training state, sharing memory with model and optimizer."""
        return model_tensors(self.model) | self.optimizer.tensors()


class Wish(Enum):
    """What the main rank wants to be done after a step: nothing, a local checkpoint, or a last one before all ranks
    leave."""

    NOTHING = 0
    SAVE = 1
    LEAVE = 2


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """What one step gave; the same on every rank. Loss in nats per token; gradient_norm: before clipping. Without a
    target in the batch both are None; where fp16 could not hold the gradient, which `overflow` says, the norm is.
    group_norms: of the gradient, by group of parameters. measured: what the monitor and the optimizer have added.
    waited_seconds: for data, on the rank that waited longest, as all the others wait for it."""

    tokens: int
    loss: float | None
    gradient_norm: float | None
    wish: Wish
    waited_seconds: float
    overflow: bool
    group_norms: dict[str, float]
    measured: dict[str, float]


def train_step(
    training: Training,
    batch: Fed,
    *,
    step: int,
    loss_scale: float = 1.0,
    wish: Wish = Wish.NOTHING,
    waited_seconds: float = 0.0,
) -> Numbers:
    """Launch one optimizer step on this rank's rows of the global batch; `result` reads its numbers.

    wish: that of the main rank counts; waited_seconds: how long this rank has waited for the batch. All ranks learn
    both with the loss.
    """
    import torch

    config, ranks, model, place = training.config, training.ranks, training.model, training.place
    places = batch.places

    # 1. Forward and backward, one micro-batch at a time. The gradient is of the sum over all targets divided by the
    # places of the batch: how many of them hold a target, other ranks' among them, need not be known yet. Gradients are
    # averaged over ranks; the factor makes that a sum.
    local = torch.zeros(2, dtype=torch.float64, device=ranks.device)
    for number, rows in enumerate(batch.micro_batches, start=1):
        with reducing(model, number == len(batch.micro_batches)):
            with training.precision.autocast():
                objective, loss = model(
                    input_ids=rows.inputs,
                    targets=rows.targets,
                    **training.attention.arguments(rows.positions, rows.borders),
                )
            objective = training.hook("loss", step, ranks.rank, objective)
            (objective * (loss_scale * ranks.size / places)).backward()
        local += torch.stack((objective.detach(), loss.detach()))

    # 2. The sums over all ranks, with the same bits on each of them. Waits have a place each, which keeps them apart.
    waits = [waited_seconds if rank == place.rank else 0.0 for rank in range(place.size)]
    host = ranks.tensor([batch.num_targets, wish.value if training.is_main else 0.0, *waits])
    sums = ranks.sum(torch.cat((local, host)))
    if training.replicas is not None:  # those and the gradients; if a group is lost, nothing has changed
        with training.timeouts.relaxed(Phase.GROUPS):
            sums = training.replicas.sum(gradients(model), sums)
    targets = sums[2].clamp(min=1.0)

    # 3. The norm of the gradient of the mean loss, of each group of parameters and of all.
    to_mean = places / (targets * loss_scale)
    squares = squared_norms(model)
    norm = torch.stack(list(squares.values())).sum().sqrt() * to_mean

    # 4. Nothing that is not finite reaches the weights, nor does a batch without targets. Both numbers are global, so
    # all ranks decide alike.
    finite = torch.isfinite(sums[0]) & torch.isfinite(norm)
    skip = ~(finite & (sums[2] > 0))
    factor = to_mean * (config.gradient_clip_norm / (norm + NORM_EPSILON)).clamp(max=1.0)

    # 5. Scale and clip, update, and free the gradients. A checkpoint under way has its copy of the weights before.
    training.hook("update", step, ranks.rank, to_mean)
    training.saver.staged()
    updates = training.optimizer.step(
        learning_rate=learning_rate(config, step), factor=factor, skip=skip, measure=training.monitor.sampled(step)
    )
    training.optimizer.zero_grad()

    # 6. All numbers set out for the host.
    return Numbers(
        {
            "objective": sums[0],
            "loss": sums[1],
            "targets": sums[2],
            "wish": sums[3],
            "waited": sums[4:].max(),
            "norm": norm,
            **{f"gradient/{group}": square.sqrt() * to_mean for group, square in squares.items()},
            **{f"update/{group}": square.sqrt() for group, square in updates.items()},
            **training.monitor.measured(step),
        }
    )


def result(training: Training, numbers: Numbers, *, step: int, draw: int) -> StepResult:
    """What a step gave, as soon as its numbers have arrived. Raises NonFinite on every rank."""
    read = numbers.read()
    tokens = round(read.pop("targets"))
    objective, loss, norm = (read.pop(name) for name in ("objective", "loss", "norm"))
    overflow = bool(tokens) and training.precision.needs_scale and math.isfinite(objective) and not math.isfinite(norm)
    if tokens and not overflow and not (math.isfinite(objective) and math.isfinite(norm)):
        raise NonFinite(f"step {step}: loss {objective / tokens}, gradient norm {norm}", draw)
    prefix = "gradient/"
    groups = {name.removeprefix(prefix): read.pop(name) for name in list(read) if name.startswith(prefix)}
    is_whole = bool(tokens) and not overflow
    return StepResult(
        tokens=tokens,
        loss=loss / tokens if tokens else None,
        gradient_norm=norm if is_whole else None,
        wish=Wish(round(read.pop("wish"))),
        waited_seconds=read.pop("waited"),
        overflow=overflow,
        group_norms=groups if is_whole else {},
        measured=read,
    )
