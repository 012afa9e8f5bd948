"""The loop around the training step: batches in, records and checkpoints out.

What a step does is spelled out in `stages.pretrain.step`. On a GPU the numbers of a step are read while the next one
runs, and nothing is saved of a step whose numbers have not been read.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from data.errors import InputError
from stages.pretrain.batches.exclusions import before
from stages.pretrain.batches.feed import Fed
from stages.pretrain.checkpoints import checkpoint
from stages.pretrain.checkpoints.checkpoint import StepState
from stages.pretrain.checkpoints.tensors import state_digest
from stages.pretrain.monitor.records import Records
from stages.pretrain.numbers import Numbers
from stages.pretrain.optimise import loss_scale
from stages.pretrain.optimise.schedule import learning_rate
from stages.pretrain.parallel.spread import reshard
from stages.pretrain.step import NonFinite, StepResult, Training, result, train_step

MOST_SKIPPED_IN_A_ROW = 10


@dataclass(frozen=True)
class Launched:
    """A step whose numbers are still to be read. kind: places in its batch, and in each row."""

    step: int
    draw: int
    kind: tuple[int, int]
    numbers: Numbers


def train(training: Training, state: StepState, records: Records) -> StepState:
    """Train from `state` to the last step. Raises NonFinite; InputError if batch after batch holds nothing to learn."""
    config = training.config
    durable = set(config.durable_steps())
    loop = Loop(training, state, records)
    with training.train.read_ahead(
        first_step=state.step,
        num_steps=config.num_steps - state.step,
        depth=config.prefetch_batches,
        readers=config.reader_threads,
    ) as batches:
        waited = None
        for batch in training.train_feed.ahead(batches):
            if waited is None:  # starting to read is no part of the first step
                waited = batches.waited_seconds
                loop.start()
            wants_save = loop.take(batch, batches.waited_seconds - waited)
            step = batch.step + 1
            if wants_save or step in durable:
                loop.settle()
                with training.timeouts.relaxed():
                    loop.save(durable=step in durable)
            waited = batches.waited_seconds
    loop.settle()
    return loop.state


class Loop:
    """The state of a training between its steps, on one rank."""

    def __init__(
        self,
        training: Training,
        state: StepState,
        records: Records,
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """clock: seconds, monotonic."""
        self.state = state
        self._training = training
        self._records = records
        self._clock = clock
        # The loss scale of fp16 decides on the next step; a CPU has its numbers at once.
        self._reads_at_once = training.precision.needs_scale or training.ranks.device.type == "cpu"
        self._launched: Launched | None = None
        self._saved_at = self._began = clock()

    def start(self) -> None:
        """The next step begins now."""
        self._began = self._clock()

    def take(self, batch: Fed, waited_seconds: float) -> bool:
        """Launch the step of a batch, and read the one before or, where that costs nothing, this one. Whether a local
        checkpoint is wanted, which all ranks agree on."""
        training, step = self._training, batch.step + 1
        launched_before, draw = self._launched, training.draw(batch.step)
        kind = batch.places, batch.micro_batches[0].inputs.shape[1]
        training.timeouts.begin(kind)
        training.hook("begin", step, training.ranks.rank, draw)
        is_due = self._clock() - self._saved_at >= training.config.checkpoint_seconds
        with training.monitor.step(step):
            numbers = train_step(
                training,
                batch,
                step=step,
                loss_scale=self.state.loss_scale.scale if training.precision.needs_scale else 1.0,
                save_wanted=is_due,
                waited_seconds=waited_seconds,
            )
        self._launched = Launched(step, draw, kind, numbers)
        if self._reads_at_once:
            return self.settle()
        return launched_before is not None and self._read(launched_before)

    def settle(self) -> bool:
        """Read the numbers of the step launched last, if they have not been read. Whether it wants a checkpoint."""
        launched, self._launched = self._launched, None
        return launched is not None and self._read(launched)

    def _read(self, launched: Launched) -> bool:
        training, step = self._training, launched.step
        found = result(training, launched.numbers, step=step, draw=launched.draw)
        self.state = after(training, self.state, found, step)
        began, self._began = self._began, self._clock()
        seconds = self._began - began  # from one reading to the next, which is how long a step takes
        training.timeouts.took(seconds, launched.kind)
        metrics, timing = training.monitor.lines(step, found, seconds=seconds)
        self._records.step(
            {
                "step": step,
                "loss": found.loss,
                "learning_rate": learning_rate(training.config, step),
                "gradient_norm": found.gradient_norm,
                "tokens": self.state.tokens_seen,
                **metrics,
            },
            {
                "step": step,
                "seconds": round(seconds, 6),
                "data_wait_seconds": round(found.waited_seconds, 6),
                **timing,
            },
        )
        training.hook("end", step, training.ranks.rank, None)
        return found.save_wanted

    def save(self, *, durable: bool) -> None:
        """A checkpoint of the state, whose steps have all been read."""
        assert self._launched is None, "a step is still under way"
        if durable:
            self.state = measure(self._training, self.state)
        save(self._training, self.state, self._records)
        self._saved_at = self._began = self._clock()


def after(training: Training, state: StepState, found: StepResult, step: int) -> StepState:
    """The state after a step that gave `found`. Raises InputError after too many steps in a row that had no target, and
    NonFinite where no loss scale lets fp16 hold the gradient."""
    draw = training.draw(step - 1)
    skipped = 0 if found.tokens else state.skipped_in_a_row + 1
    if skipped >= MOST_SKIPPED_IN_A_ROW:
        raise InputError(
            f"the batches of the last {skipped} steps, up to {step}, hold no token to predict: check the token shards"
        )
    scale = state.loss_scale
    if training.precision.needs_scale and found.tokens:
        scale = scale.after(overflow=found.overflow)
        if scale.scale < loss_scale.LEAST:
            raise NonFinite(f"step {step}: the gradient is not finite at the least loss scale of fp16", draw)
    return state.model_copy(
        update={
            "step": step,
            "tokens_seen": state.tokens_seen + found.tokens,
            "skipped_in_a_row": skipped,
            "excluded": before(training.excluded, draw),
            "loss_scale": scale,
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
    """Mean loss in nats per token over batch 0 of the held-out sequences, all ranks' rows; the same on every rank. Of
    the weights themselves, whether or not an average of them is kept. May be NaN or infinite."""
    import torch

    batch = training.heldout_feed.place(training.heldout.batch(0))
    total = torch.zeros((), dtype=torch.float64, device=training.ranks.device)
    training.model.eval()
    with torch.no_grad():
        for rows in batch.micro_batches:
            with training.precision.autocast():
                _, loss = training.model(
                    input_ids=rows.inputs,
                    targets=rows.targets,
                    **training.heldout_attention.arguments(rows.positions, rows.borders),
                )
            total += loss
    reshard(training.model)
    training.model.train()
    targets = training.ranks.tensor([batch.num_targets])
    loss, tokens = training.ranks.sum(torch.cat((total[None], targets))).tolist()
    return loss / tokens
