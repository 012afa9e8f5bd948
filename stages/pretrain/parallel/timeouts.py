"""How long a process waits for the others before it takes one of them for hung.

One long time until the first steps have been measured, since they compile and warm up; then a multiple of the slowest
of the latest steps. A rank or a link that is slow, but less so than that, ends nothing. Around checkpoints and held-out
measurements the long time holds again, and so it does for the first steps whose batches are of another size or length:
they compile anew, and may take longer.
"""

from collections import Counter, deque
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from stages.pretrain.config import PretrainConfig
from stages.pretrain.parallel.ranks import Ranks

if TYPE_CHECKING:
    import torch
    from torch.distributed import ProcessGroup

FIRST_STEPS = 3  # not yet normal: compilation, warm-up of the allocator and of connections
LATEST_STEPS = 100


class Timeouts:
    """The timeout of all collective operations of this process."""

    def __init__(self, config: PretrainConfig, ranks: Ranks, groups: "Sequence[ProcessGroup]") -> None:
        """groups: what the operations go over, as `process_groups` gives them; none if there is one process."""
        self._config = config
        self._ranks = ranks
        self._groups = groups
        self._num_steps: Counter[Hashable] = Counter()
        self._latest: deque[float] = deque(maxlen=LATEST_STEPS)
        self._seconds = 0.0
        self._set(config.collective_timeout_seconds)  # groups of a mesh have begun with a time of their backend's

    @property
    def seconds(self) -> float:
        """What holds now."""
        return self._seconds

    def begin(self, kind: Hashable) -> None:
        """A step is about to be launched. kind: of its batch, the same on all ranks."""
        is_measured = self._num_steps[kind] > FIRST_STEPS
        self._set(self._measured() if is_measured else self._config.collective_timeout_seconds)

    def took(self, seconds: float, kind: Hashable) -> None:
        """A step on a batch of this kind took so long, reading the batch included."""
        self._num_steps[kind] += 1
        if self._num_steps[kind] > FIRST_STEPS:
            self._latest.append(seconds)

    @contextmanager
    def relaxed(self) -> Iterator[None]:
        """The long time holds within, for what takes longer than a step. All ranks enter and leave together: one that
        has less to do must not wait for the others in the next step."""
        before = self._seconds
        self._set(self._config.collective_timeout_seconds)
        yield
        self._ranks.barrier()
        self._set(before)

    def _measured(self) -> float:
        config = self._config
        wanted = max(config.collective_timeout_least_seconds, config.collective_timeout_ratio * max(self._latest))
        return min(wanted, config.collective_timeout_seconds)

    def _set(self, seconds: float) -> None:
        if seconds == self._seconds:
            return
        from torch.distributed.distributed_c10d import _set_pg_timeout

        self._seconds = seconds
        for group in self._groups:
            _set_pg_timeout(timedelta(seconds=seconds), group)


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
