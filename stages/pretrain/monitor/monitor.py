"""What is measured of a training step, in three layers, and what it costs to measure it.

Numerical, into metrics.jsonl, the same whenever the step is made again: norms of the gradient on each step; on sampled
steps norms of parameters and updates and ranges of activations too. Communication and hardware, into timing.jsonl: what
is never the same twice.

On a step that is not sampled nothing here makes the host wait for the device, and nothing passes between the ranks.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from stages.pretrain.config import PretrainConfig
from stages.pretrain.memory.precision import compute_dtype
from stages.pretrain.memory.usage import usage
from stages.pretrain.model.counts import flops
from stages.pretrain.monitor.communication import Profile
from stages.pretrain.monitor.hardware import Counters, matrix_rate
from stages.pretrain.monitor.links import SLOW_RATIO, SLOW_SAMPLES, Links, SlowLinks
from stages.pretrain.monitor.numerical import Activations, by_kind, parameter_norms
from stages.pretrain.parallel.layout import layout_of
from stages.pretrain.parallel.spread import unwrapped

if TYPE_CHECKING:
    import torch

    from stages.pretrain.parallel.ranks import Ranks

SLOW = f"the link from {{link}} has taken more than {SLOW_RATIO:g} times the median of all in {SLOW_SAMPLES} samples"


class Found(Protocol):
    """What the monitor reads of a step's result."""

    @property
    def tokens(self) -> int: ...

    @property
    def group_norms(self) -> Mapping[str, float]: ...

    @property
    def measured(self) -> Mapping[str, float]: ...


class Monitor:
    """One for each process. All of its methods are called by every process alike, in the same order."""

    def __init__(
        self, *, config: PretrainConfig, ranks: "Ranks", model: "torch.nn.Module", vocabulary_size: int
    ) -> None:
        """model: spread over the ranks; vocabulary_size: rows of the embedding. Measures for less than half a second
        how fast this device is. Collective."""
        self._config = config
        self._ranks = ranks
        self._model = unwrapped(model)
        self._activations = Activations(self._model, ranks, counted=self._counted)
        replicas = layout_of(config).replicas
        self._all_reduce_ranks = replicas if replicas > 1 else ranks.size
        self._links = Links(ranks) if ranks.size > 1 else None
        self._slow = SlowLinks()
        self._counters = Counters(ranks.device)
        # Products in fp8 are compared with what the device does in bf16.
        rate = matrix_rate(ranks.device, compute_dtype(config.precision))
        self._matrix_rate = float(ranks.sum(ranks.tensor([rate])).item())
        shape = config.model.resolved()
        self._flops_per_place = flops(shape, vocabulary_size, config.sequence_tokens).per_token
        self._communication: dict[int, dict[str, Any]] = {}
        self._seconds = 0.0

    def sampled(self, step: int) -> bool:
        """Whether all is measured on a step, counted from 1; the same on all ranks and in each attempt."""
        return step == 1 or step % self._config.monitor_every_steps == 0

    @contextmanager
    def step(self, step: int) -> Iterator[None]:
        """Around all that a step launches."""
        if not self.sampled(step):
            yield
            return
        with self._counted():
            self._activations.watch()
            profile = Profile(self._ranks.device, all_reduce_ranks=self._all_reduce_ranks) if self._links else None
        began = time.perf_counter()
        try:
            yield
        except BaseException:
            self._activations.leave()
            if profile is not None:
                profile.stop()
            raise
        with self._counted():
            self._activations.leave()
            if profile is not None:
                seconds = time.perf_counter() - began
                self._communication[step] = self._communicated(profile, seconds)

    def measured(self, step: int) -> "dict[str, torch.Tensor]":
        """Scalars on the device that are read with the other numbers of the step; asked for once the step has updated
        the weights. Collective on sampled steps."""
        if not self.sampled(step):
            return {}
        with self._counted():
            return {**parameter_norms(self._model), **self._activations.ranges()}

    def lines(self, step: int, found: Found, *, seconds: float) -> tuple[dict[str, Any], dict[str, Any]]:
        """What the lines of a step in metrics.jsonl and timing.jsonl hold beyond the loop's own numbers. seconds: that
        the step took.

        mfu is the share of the device's measured rate of matrix products that the model's operations are (Chowdhery et
        al., 2022, "PaLM", appendix B), padding among them, recomputation not, attention counted over sequences of
        sequence_tokens. monitor_seconds: CPU time of the training thread in calls of this class, and in hooks of its,
        since the line before.
        """
        with self._counted():
            metrics: dict[str, Any] = {"gradient_norms": dict(found.group_norms), **by_kind(found.measured)}
            operations = self._flops_per_place * self._config.batch_places(step)
            timing: dict[str, Any] = {
                "tokens_per_second": round(found.tokens / seconds, 1),
                "mfu": round(operations / seconds / self._matrix_rate, 6),
            }
            if self.sampled(step):
                timing |= self._hardware()
                if step in self._communication:
                    timing["communication"] = self._communication.pop(step)
                    slow = timing["communication"].pop("slow_links")
                    if slow:
                        timing["warnings"] = [SLOW.format(link=link) for link in slow]
        spent, self._seconds = self._seconds, 0.0
        return metrics, {**timing, "monitor_seconds": round(spent, 6)}

    def _hardware(self) -> dict[str, Any]:
        return {
            "matrix_flops_per_second": round(self._matrix_rate),
            "memory": usage(self._ranks.device),
            "counted": self._counters.read(),
            "device": self._counters.state(),
        }

    def _communicated(self, profile: Profile, seconds: float) -> dict[str, Any]:
        """What passed in the step that has just been launched, as the mean of all ranks where nothing else is said.
        Collective. seconds: that the step took here."""
        assert self._links is not None
        seen, ranks = profile.stop(), self._ranks
        places = [0.0] * ranks.size
        places[ranks.rank] = self._links.seconds()
        here = ranks.tensor([seconds, seen.seconds, seen.exposed_seconds, *places])
        total, under_way, exposed, *links = ranks.sum(here).tolist()
        slowest = max(range(ranks.size), key=links.__getitem__)
        return {
            "sent_bytes": seen.sent_bytes,  # of this rank
            "seconds": round(under_way / ranks.size, 6),
            "exposed_seconds": round(exposed / ranks.size, 6),
            "exposed_share": round(exposed / total, 4),
            "link_seconds": round(sum(links) / ranks.size, 6),
            "slowest_link_seconds": round(links[slowest], 6),
            "slowest_link": self._links.name(slowest),
            "slow_links": [self._links.name(link) for link in self._slow.after(links)],
        }

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """Counts the CPU time of this thread."""
        began = time.thread_time()
        try:
            yield
        finally:
            self._seconds += time.thread_time() - began
