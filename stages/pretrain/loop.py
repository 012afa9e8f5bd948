"""The training step, spelled out in the order in which it happens, and the loop around it.

The loss of a step is the sum over all target tokens of the global batch divided by their number, whatever the number of
processes and micro-batches. What attends to what within a sequence is said by `stages.pretrain.model.attention`.
"""

import math
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from data.errors import InputError
from data.order.loader import IGNORE, BatchLoader
from stages.pretrain.batches.exclusions import Draws, before
from stages.pretrain.batches.feed import Fed, Feed, Rows
from stages.pretrain.checkpoints import checkpoint
from stages.pretrain.checkpoints.checkpoint import StepState
from stages.pretrain.checkpoints.tensors import model_tensors, optimizer_tensors, state_digest
from stages.pretrain.config import PretrainConfig
from stages.pretrain.faults import Hook
from stages.pretrain.model.attention import Attention
from stages.pretrain.monitor.records import Records
from stages.pretrain.optimise.optimizer import learning_rate, set_learning_rate
from stages.pretrain.parallel.spread import Ranks, reduce_gradients, reshard

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import torch

MOST_SKIPPED_IN_A_ROW = 10


class NonFinite(RuntimeError):
    """A loss or a gradient norm is NaN or infinite. `draw`: the batch that it came of, and then the weights are still
    those of the step before; None for a loss on held-out text."""

    def __init__(self, message: str, draw: int | None) -> None:
        super().__init__(message)
        self.draw = draw


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """What one step gave; the same on every rank. Loss in nats per token; without a target in the batch, loss and
    norm are None. waited_seconds: for data, on the rank that waited longest, as all the others wait for it."""

    tokens: int
    loss: float | None
    gradient_norm: float | None
    save_wanted: bool
    waited_seconds: float


@dataclass(frozen=True, kw_only=True)
class Training:
    """Everything that the loop works with on this rank. draw: of a step counted from 0; excluded: those that no step
    takes. Held-out rows may hold several documents even where training rows do not, so each has its attention."""

    config: PretrainConfig
    ranks: Ranks
    model: "torch.nn.Module"
    optimizer: "torch.optim.AdamW"
    attention: Attention
    vocabulary_size: int
    train: BatchLoader
    train_feed: Feed
    heldout: BatchLoader
    heldout_feed: Feed
    heldout_attention: Attention
    draw: "Callable[[int], int]"
    excluded: Draws
    checkpoints: "Path"
    model_config: dict[str, Any]
    hook: Hook

    def tensors(self) -> "dict[str, torch.Tensor]":
        """All tensors of the training state, sharing memory with model and optimizer."""
        return model_tensors(self.model) | optimizer_tensors(self.model, self.optimizer)


def train_step(
    training: Training, batch: Fed, *, step: int, save_wanted: bool, waited_seconds: float = 0.0
) -> StepResult:
    """One optimizer step on this rank's rows of the global batch. Raises NonFinite on every rank, before the update.

    save_wanted: the main rank's wish for a local checkpoint, which all ranks learn with the loss. waited_seconds: how
    long this rank has waited for the batch, which they learn with the number of tokens.
    """
    import torch

    config, ranks, model, optimizer = training.config, training.ranks, training.model, training.optimizer

    # 1. How many tokens the mean is over: all that any rank predicts in this step. A sum brings the greatest wait too,
    # where each rank has a place of its own.
    waits = [waited_seconds if rank == ranks.rank else 0.0 for rank in range(ranks.size)]
    num_targets, *waits = ranks.sum([batch.num_targets, *waits]).tolist()
    tokens, waited_seconds = round(num_targets), max(waits)
    if not tokens:
        return StepResult(tokens=0, loss=None, gradient_norm=None, save_wanted=False, waited_seconds=waited_seconds)

    # 2. Forward and backward, one micro-batch at a time. FSDP averages gradients over ranks; the factor makes it a sum.
    local_loss = torch.zeros((), dtype=torch.float64, device=ranks.device)
    for number, rows in enumerate(batch.micro_batches, start=1):
        reduce_gradients(model, number == len(batch.micro_batches))
        total = summed_loss(model, rows, attention=training.attention, vocabulary_size=training.vocabulary_size)
        total = training.hook("loss", step, ranks.rank, total)
        (total * (ranks.size / tokens)).backward()
        local_loss += total.detach()

    # 3. The global loss and the global norm of the gradient, with the same bits on every rank.
    norm = gradient_norm(model)
    summed, saves = ranks.sum([local_loss.item() / tokens, float(save_wanted and ranks.is_main)]).tolist()

    # 4. Nothing that is not finite reaches the weights. Since both numbers are global, all ranks decide alike.
    if not (math.isfinite(summed) and math.isfinite(norm.item())):
        raise NonFinite(f"step {step}: loss {summed}, gradient norm {norm.item()}", training.draw(batch.step))

    # 5. Clip by the global norm, set the learning rate, update, and free the gradients.
    torch.nn.utils.clip_grads_with_norm_(model.parameters(), config.gradient_clip_norm, norm)
    set_learning_rate(optimizer, learning_rate(config, step))
    training.hook("update", step, ranks.rank, None)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return StepResult(
        tokens=tokens,
        loss=summed,
        gradient_norm=norm.item(),
        save_wanted=saves > 0,
        waited_seconds=waited_seconds,
    )


def train(training: Training, state: StepState, records: Records) -> StepState:
    """Train from `state` to the last step. Raises NonFinite; InputError if batch after batch holds nothing to learn."""
    config, ranks = training.config, training.ranks
    durable = set(config.durable_steps())
    saved_at = time.monotonic()
    with training.train.read_ahead(
        first_step=state.step,
        num_steps=config.num_steps - state.step,
        depth=config.prefetch_batches,
        readers=config.reader_threads,
    ) as batches:
        started = waited = None
        for batch in training.train_feed.ahead(batches):
            if started is None or waited is None:  # starting to read is no part of the first step
                started, waited = time.perf_counter(), batches.waited_seconds
            step = batch.step + 1
            draw = training.draw(batch.step)
            training.hook("begin", step, ranks.rank, draw)
            is_due = time.monotonic() - saved_at >= config.checkpoint_seconds
            result = train_step(
                training, batch, step=step, save_wanted=is_due, waited_seconds=batches.waited_seconds - waited
            )
            state = after(state, result, step, before(training.excluded, draw))
            records.step(
                {
                    "step": step,
                    "loss": result.loss,
                    "learning_rate": learning_rate(config, step),
                    "gradient_norm": result.gradient_norm,
                    "tokens": state.tokens_seen,
                },
                {
                    "step": step,
                    "seconds": round(time.perf_counter() - started, 6),
                    "data_wait_seconds": round(result.waited_seconds, 6),
                },
            )
            training.hook("end", step, ranks.rank, None)
            if step in durable:
                state = measure(training, state)
            if step in durable or result.save_wanted:
                save(training, state, records)
                saved_at = time.monotonic()
            started, waited = time.perf_counter(), batches.waited_seconds
    return state


def after(state: StepState, result: StepResult, step: int, excluded: Draws) -> StepState:
    """The state after a step, before whose batch the draws `excluded` were left out. Raises InputError after too many
    steps in a row that had no target."""
    skipped = 0 if result.tokens else state.skipped_in_a_row + 1
    if skipped >= MOST_SKIPPED_IN_A_ROW:
        raise InputError(
            f"the batches of the last {skipped} steps, up to {step}, hold no token to predict: check the token shards"
        )
    return state.model_copy(
        update={
            "step": step,
            "tokens_seen": state.tokens_seen + result.tokens,
            "skipped_in_a_row": skipped,
            "excluded": excluded,
            "state_digest": "",
        }
    )


def measure(training: Training, state: StepState) -> StepState:
    """`state` with what a durable checkpoint says beyond a local one: held-out loss and digest."""
    loss = heldout_loss(training)
    if not math.isfinite(loss):
        raise NonFinite(f"step {state.step}: held-out loss {loss}", draw=None)
    state = state.model_copy(update={"heldout": (*state.heldout, (state.step, loss))})
    digest = state_digest(training.tensors(), state.model_dump(mode="json"), reads=training.ranks.is_main)
    return state.model_copy(update={"state_digest": digest})


def save(training: Training, state: StepState, records: Records) -> None:
    """A checkpoint of `state`; before it, the lines of all steps up to it and their peak of memory are brought to the
    disk."""
    records.sync()
    ranks = training.ranks
    records.peak_memory(ranks.peak_memory_bytes())
    written = partial(training.hook, "written", state.step, ranks.rank, None)
    checkpoint.save(training.checkpoints, training.tensors(), state, training.model_config, ranks, written=written)


def heldout_loss(training: Training) -> float:
    """Mean loss in nats per token over batch 0 of the held-out sequences, all ranks' rows; the same on every rank. May
    be NaN or infinite."""
    import torch

    batch = training.heldout_feed.place(training.heldout.batch(0))
    attention, vocabulary_size = training.heldout_attention, training.vocabulary_size
    total = 0.0
    training.model.eval()
    with torch.no_grad():
        for rows in batch.micro_batches:
            total += summed_loss(training.model, rows, attention=attention, vocabulary_size=vocabulary_size).item()
    reshard(training.model)
    training.model.train()
    loss, tokens = training.ranks.sum([total, float(batch.num_targets)]).tolist()
    return loss / tokens


def summed_loss(model: "torch.nn.Module", rows: Rows, *, attention: Attention, vocabulary_size: int) -> "torch.Tensor":
    """float32 scalar: cross-entropy in nats, summed over the targets that are not IGNORE. Rows of the output that only
    pad the vocabulary take no part."""
    import torch.nn.functional as F

    logits = model(input_ids=rows.inputs, use_cache=False, **attention.arguments(rows.positions)).logits
    scores = logits[..., :vocabulary_size].float()
    return F.cross_entropy(scores.flatten(0, 1), rows.targets.flatten(), ignore_index=IGNORE, reduction="sum")


def gradient_norm(model: "torch.nn.Module") -> "torch.Tensor":
    """float64 scalar: the 2-norm of all gradients as one vector, over all ranks.

    In float64, because a sum of squares in float32 depends on the sharding by several 1e-6 (measured), and clipping
    hands that on to every weight: more than all other differences between the layouts together.
    """
    import torch
    from torch.distributed.tensor import DTensor

    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    norms = [torch.linalg.vector_norm(gradient, dtype=torch.float64) for gradient in gradients]
    norm = torch.linalg.vector_norm(torch.stack(norms))
    return norm.full_tensor() if isinstance(norm, DTensor) else norm
