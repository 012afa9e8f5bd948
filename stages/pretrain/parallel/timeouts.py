"""How long a rank may take for what it does before it is taken for hung.

One long time until the first steps have been measured, since they compile and warm up; then a multiple of the median of
the latest steps, or twice the slowest of them where that is more. A rank or a link that is slow, but less so than that,
ends nothing. For checkpoints, held-out
measurements and waiting for data the long time holds, and so it does for the first steps whose batches are of another
size or length: they compile anew, and may take longer.

The rank says so in its beats, and the supervisor acts on it (see `stages.pretrain.supervision.hangs`). The operations
between ranks themselves give up after the long time only: a peer that waits for data, or is busy with a checkpoint,
must not end those that wait for it.
"""

import statistics
from collections import Counter, deque
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from stages.pretrain.config import PretrainConfig
from stages.pretrain.supervision.beats import Heart, Phase

if TYPE_CHECKING:
    import torch
    from torch.distributed import ProcessGroup

FIRST_STEPS = 3  # not yet normal: compilation, warm-up of the allocator and of connections
LATEST_STEPS = 100
SLOWEST_RATIO = 2.0


class Timeouts:
    """The times of this rank. `heart`: what tells them to the supervisor, if there is one."""

    def __init__(self, config: PretrainConfig, heart: Heart | None = None) -> None:
        self._config = config
        self._heart = heart
        self._num_steps: Counter[Hashable] = Counter()
        self._latest: deque[float] = deque(maxlen=LATEST_STEPS)
        self._phase, self._step = Phase.STARTING, 0
        self.seconds = config.collective_timeout_seconds

    def reading(self, step: int) -> None:
        """The rank begins to wait for the batch of step `step`, counted from 1."""
        self._enter(Phase.READING, step, self._config.collective_timeout_seconds)

    def begin(self, kind: Hashable, *, step: int) -> None:
        """A step is about to be launched. kind: of its batch, the same on all ranks."""
        is_measured = self._num_steps[kind] > FIRST_STEPS
        self._enter(Phase.STEP, step, self._measured() if is_measured else self._config.collective_timeout_seconds)

    def took(self, seconds: float, kind: Hashable) -> None:
        """A step on a batch of this kind took so long, reading the batch included."""
        self._num_steps[kind] += 1
        if self._num_steps[kind] > FIRST_STEPS:
            self._latest.append(seconds)

    @contextmanager
    def relaxed(self, phase: Phase = Phase.SAVING) -> Iterator[None]:
        """The long time holds within, for what takes longer than a step. All ranks enter and leave it alike."""
        before, seconds = self._phase, self.seconds
        self._enter(phase, self._step, self._config.collective_timeout_seconds)
        yield
        self._enter(before, self._step, seconds)

    def _measured(self) -> float:
        config = self._config
        normal, slowest = statistics.median(self._latest), max(self._latest)
        wanted = max(config.collective_timeout_ratio * normal, SLOWEST_RATIO * slowest)
        return min(max(wanted, config.collective_timeout_least_seconds), config.collective_timeout_seconds)

    def _enter(self, phase: Phase, step: int, seconds: float) -> None:
        self._phase, self._step, self.seconds = phase, step, seconds
        if self._heart is not None:
            self._heart.beat(phase, step, seconds)


def set_timeouts(config: PretrainConfig, model: "torch.nn.Module") -> None:
    """Let the operations between ranks that a training of `model` needs give up after the long time: groups of a mesh
    have begun with a time of their backend's."""
    from torch.distributed.distributed_c10d import _set_pg_timeout

    for group in process_groups(model):
        _set_pg_timeout(timedelta(seconds=config.collective_timeout_seconds), group)


def process_groups(model: "torch.nn.Module") -> "list[ProcessGroup]":
    """All groups that collective operations of a training of `model` go over."""
    import torch.distributed as dist
    from torch.distributed.tensor import DTensor

    if not dist.is_initialized() or dist.group.WORLD is None:
        return []
    groups = [dist.group.WORLD]
    for parameter in model.parameters():
        if isinstance(parameter, DTensor):
            groups += parameter.device_mesh.get_all_groups()
            break
    return list({id(group): group for group in groups}.values())
