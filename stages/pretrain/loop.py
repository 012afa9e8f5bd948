"""The loop around the training step: batches in, records and checkpoints out.

What a step does is spelled out in `stages.pretrain.step`. On a GPU the numbers of a step are read while the next one
runs, and nothing is saved of a step whose numbers have not been read.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from data.errors import InputError
from stages.pretrain.batches.exclusions import before
from stages.pretrain.batches.feed import Fed
from stages.pretrain.checkpoints.checkpoint import StepState, step_name
from stages.pretrain.monitor.records import Records
from stages.pretrain.numbers import Numbers
from stages.pretrain.optimise import loss_scale
from stages.pretrain.optimise.schedule import learning_rate
from stages.pretrain.parallel.redundant_loop import joined, run_together
from stages.pretrain.parallel.redundant_records import SharedRecords
from stages.pretrain.parallel.spread import reshard
from stages.pretrain.step import NonFinite, StepResult, Training, Wish, result, train_step
from stages.pretrain.supervision.beats import Phase
from stages.pretrain.supervision.notices import Left

MOST_SKIPPED_IN_A_ROW = 10


@dataclass(frozen=True)
class Launched:
    """A step whose numbers are still to be read. kind: places in its batch, and in each row."""

    step: int
    draw: int
    kind: tuple[int, int]
    numbers: Numbers


def train(training: Training, state: StepState, records: Records) -> StepState:
    """Train from `state` to the last step; its checkpoint is there when this returns. Raises NonFinite; InputError if
    batch after batch holds nothing to learn; what has gone wrong while a checkpoint was written; and Left, with a last
    checkpoint, if the ranks are asked to leave."""
    loop = Loop(training, state, records)
    if training.replicas is None:
        loop.run()
    else:
        run_together(loop, training.replicas)
    return loop.finish()


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
        self._reads_at_once = (
            training.precision.needs_scale or training.ranks.device.type == "cpu" or training.replicas is not None
        )
        self._durable = set(training.config.durable_steps())
        self._launched: Launched | None = None
        self._saved_at = self._began = clock()
        self._local_seconds = training.checkpoint_seconds
        self._blocked = self._staging = self._heldout = 0.0  # seconds that the lines so far have told of

    def run(self) -> None:
        """Train to the last step, or until replica groups are to join anew."""
        training, config = self._training, self._training.config
        with training.train.read_ahead(
            first_step=self.state.step,
            num_steps=config.num_steps - self.state.step,
            depth=config.prefetch_batches,
            readers=config.reader_threads,
        ) as batches:
            waited = None
            training.timeouts.reading(self.state.step + 1)
            for batch in training.train_feed.ahead(batches):
                if waited is None:  # starting to read is no part of the first step
                    waited = batches.waited_seconds
                    self.start()
                wish = self.take(batch, batches.waited_seconds - waited)
                step = batch.step + 1
                if wish is not Wish.NOTHING or step in self._durable:
                    self.settle()
                    self.save(durable=step in self._durable)
                if wish is Wish.LEAVE and step < config.num_steps:
                    self.finish()
                    raise Left(step)
                if training.replicas is not None and training.replicas.moves:
                    break
                waited = batches.waited_seconds
                training.timeouts.reading(step + 1)
        self.settle()

    def join(self) -> None:
        """Meet the replica groups that there are, with the state of the one that has got furthest. Where the one that
        wrote is lost, this one goes on with records and checkpoints."""
        training = self._training
        training.saver.staged()  # nothing changes under a copy
        training.optimizer.zero_grad()  # of a step that was given up
        self._training, self.state = joined(training, self.state)
        if not training.writes:
            return
        if training.ranks.is_main:
            assert isinstance(self._records, SharedRecords)
            self._records.lead(self.state.step)
        if self.state.step in self._durable:
            self.save(durable=True)

    def start(self) -> None:
        """The next step begins now."""
        self._began = self._clock()

    def take(self, batch: Fed, waited_seconds: float) -> Wish:
        """Launch the step of a batch, and read the one before or, where that costs nothing, this one. What is wanted
        after the step that was read, which all ranks agree on."""
        training, step = self._training, batch.step + 1
        launched_before, draw = self._launched, training.draw(batch.step)
        kind = batch.places, batch.micro_batches[0].inputs.shape[1]
        training.timeouts.begin(kind, step=step)
        training.hook("begin", step, training.ranks.rank, draw)
        training.hook("batch", step, training.ranks.rank, batch)
        training.saver.poll()
        with training.monitor.step(step):
            numbers = train_step(
                training,
                batch,
                step=step,
                loss_scale=self.state.loss_scale.scale if training.precision.needs_scale else 1.0,
                wish=self._wish(),
                waited_seconds=waited_seconds,
            )
        self._launched = Launched(step, draw, kind, numbers)
        if self._reads_at_once:
            return self.settle()
        return Wish.NOTHING if launched_before is None else self._read(launched_before)

    def settle(self) -> Wish:
        """Read the numbers of the step launched last, if they have not been read. What is wanted after it."""
        launched, self._launched = self._launched, None
        return Wish.NOTHING if launched is None else self._read(launched)

    def _wish(self) -> Wish:
        """What this rank wants. A local checkpoint is not worth waiting for the one before."""
        training = self._training
        if training.requests.leave_wanted():
            return Wish.LEAVE
        is_due = self._clock() - self._saved_at >= self._local_seconds
        return Wish.SAVE if is_due and not training.saver.in_flight else Wish.NOTHING

    def _read(self, launched: Launched) -> Wish:
        training, step = self._training, launched.step
        found = result(training, launched.numbers, step=step, draw=launched.draw)
        self.state = after(training, self.state, found, step)
        began, self._began = self._began, self._clock()
        stood, in_step = self._stood()
        seconds = self._began - began - in_step  # from one reading to the next, which is how long a step takes
        training.timeouts.took(seconds, launched.kind)
        metrics, timing = training.monitor.lines(step, found, seconds=seconds)
        if training.replicas is not None:
            timing["mfu"] = round(timing["mfu"] / len(training.replicas.members.groups), 6)
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
                **stood,
                **timing,
            },
        )
        training.hook("end", step, training.ranks.rank, None)
        return found.wish

    def _stood(self) -> tuple[dict[str, float], float]:
        """What a step's line says of the time that the training has stood still for checkpoints since the line before,
        and how much of it was within a step."""
        saver = self._training.saver
        blocked, in_step = saver.blocked_seconds - self._blocked, saver.staging_seconds - self._staging
        heldout, self._heldout = self._heldout, 0.0
        self._blocked, self._staging = saver.blocked_seconds, saver.staging_seconds
        found = {"checkpoint_seconds": round(blocked, 6), "heldout_seconds": round(heldout, 6)}
        return {name: seconds for name, seconds in found.items() if seconds}, in_step

    def save(self, *, durable: bool) -> None:
        """Begin a checkpoint of the state, whose steps have all been read."""
        assert self._launched is None, "a step is still under way"
        training, heldout = self._training, 0.0
        if durable and self.state.heldout_loss is None:
            began = self._clock()
            with training.timeouts.relaxed(Phase.HELDOUT):
                self.state = measure(training, self.state)
            heldout = self._clock() - began
            self._heldout += heldout
        if self._is_saved_here():
            with training.timeouts.relaxed(Phase.SAVING):
                training.saver.begin(
                    training.tensors(), self.state, durable=durable, heldout_seconds=heldout, vouch=self._records.vouch
                )
                if durable and training.replicas is not None:
                    training.saver.finish()  # if this group is lost before, another one has that state still
        if training.is_main:  # whose wish for the next one counts
            self._local_seconds = training.local_seconds(self.state.step) or self._local_seconds
        self._saved_at = self._began = self._clock()

    def _is_saved_here(self) -> bool:
        """Whether this group saves its state: it does not, where another one has before it was lost."""
        training = self._training
        if training.replicas is None:
            return True
        return training.writes and not (training.checkpoints / step_name(self.state.step)).exists()

    def finish(self) -> StepState:
        """Wait for the checkpoint that is under way. The state, with its digest on the main rank if the last of its
        steps has a durable checkpoint."""
        with self._training.timeouts.relaxed(Phase.SAVING):
            saved = self._training.saver.finish()
        return saved if saved is not None and saved.step == self.state.step else self.state


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
    """`state` with the held-out loss that a durable checkpoint tells of."""
    loss = heldout_loss(training)
    if not math.isfinite(loss):
        raise NonFinite(f"step {state.step}: held-out loss {loss}", draw=None)
    return state.model_copy(update={"heldout": (*state.heldout, (state.step, loss))})


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
