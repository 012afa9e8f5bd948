"""The communication layer: what passes between processes in a step, how long that takes, and how much of it nothing
else hides.

Torch's profiler tells. It changes no result, and sees collectives whoever starts them: DDP's reducer from C++ and FSDP2
from its hooks. On GPUs a collective is a kernel whose name says nccl, and computing is every other kernel; ending the
profile waits for the device. On CPUs gloo's collectives are spans from their start to their completion, and computing
is what operators of the other kind take, compiled regions among them.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

Interval = tuple[float, float]
# Bytes that a rank sends, as a share of its input, by the ring algorithms of gloo and NCCL (Thakur, Rabenseifner and
# Gropp, 2005, "Optimization of Collective Communication Operations in MPICH", sections 4.1, 4.4 and 4.5).
SENT = {
    "all_gather": lambda ranks: ranks - 1,
    "reduce_scatter": lambda ranks: (ranks - 1) / ranks,
    "all_reduce": lambda ranks: 2 * (ranks - 1) / ranks,
    "all_to_all": lambda ranks: (ranks - 1) / ranks,
}
# Operators of c10d, without their namespace and underscores, by the collective that they ask for.
ASKED = {
    "allgather": "all_gather",
    "allgather_base": "all_gather",
    "allgather_into_tensor_coalesced": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all",
}
ELEMENT_BYTES = {"double": 8, "long": 8, "long int": 8, "float": 4, "int": 4, "half": 2, "bfloat16": 2}
COMPUTING = ("aten::", "Torch-Compiled Region", "CompiledFunction")


@dataclass(frozen=True, kw_only=True)
class Collective:
    """One, as this rank saw it. `kind`: what was asked for; `sent_bytes`: by this rank; start, end: seconds."""

    kind: str
    sent_bytes: int
    start: float
    end: float


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """What passed in one step of this rank. sent_bytes: by kind of collective; seconds: in which a collective was under
    way, the wait for later ranks included; exposed_seconds: those of them in which this rank did not compute."""

    sent_bytes: dict[str, int]
    seconds: float
    exposed_seconds: float


class Profile:
    """Watches one step. all_reduce_ranks: how many take part in an all-reduce, where the profiler does not say."""

    def __init__(self, device: "torch.device", *, all_reduce_ranks: int) -> None:
        from torch.autograd.profiler import profile  # torch.profiler is the same and imports the compiler

        self._is_cuda = device.type == "cuda"
        self._all_reduce_ranks = all_reduce_ranks
        self._profile = profile(record_shapes=True, use_device="cuda" if self._is_cuda else None)
        self._profile.__enter__()

    def stop(self) -> Traffic:
        """What has been seen. The profile is over."""
        self._profile.__exit__(None, None, None)
        assert self._profile.kineto_results is not None
        events = self._profile.kineto_results.events()
        if self._is_cuda:
            collectives, computing = of_cuda(events)
        else:
            collectives, computing = of_gloo(events, all_reduce_ranks=self._all_reduce_ranks)
        return traffic(collectives, computing)


def traffic(collectives: Sequence[Collective], computing: Iterable[Interval]) -> Traffic:
    """The sums over one step."""
    sent: dict[str, int] = {}
    for collective in collectives:
        if collective.sent_bytes:
            sent[collective.kind] = sent.get(collective.kind, 0) + collective.sent_bytes
    under_way = union((collective.start, collective.end) for collective in collectives)
    hidden = overlap(under_way, union(computing))
    seconds = length(under_way)
    return Traffic(sent_bytes=sent, seconds=seconds, exposed_seconds=seconds - hidden)


def of_gloo(events: Iterable[Any], *, all_reduce_ranks: int) -> tuple[list[Collective], list[Interval]]:
    """Collectives and intervals of computing in a profile of a CPU.

    gloo's spans, in threads of its own, say how long a collective took and what it moved. How many ranks took part is
    seen by the sizes that c10d's operators were asked for; and gloo does a reduce-scatter by an all-reduce of the same
    size, which sends twice as much.
    """
    ranks_of: dict[tuple[str, int], int] = {}
    scatters: Counter[int] = Counter()
    spans, computing = [], []
    for event in events:
        name = event.name()
        if name.startswith("gloo:"):
            spans.append(event)
        elif name.startswith("c10d::"):
            if asked := _asked(event):
                kind, size, ranks = asked
                ranks_of[kind, size] = ranks
                scatters[size] += kind == "reduce_scatter"
        elif name.startswith(COMPUTING):
            computing.append(_interval(event))
    collectives = []
    for event in spans:
        done, size = event.name().removeprefix("gloo:"), num_bytes(event.shapes(), event.dtypes())
        kind = done
        if done == "all_reduce" and scatters[size]:
            kind = "reduce_scatter"
            scatters[size] -= 1
        sent = _share(done, ranks_of.get((kind, size), all_reduce_ranks)) * size
        start, end = _interval(event)
        collectives.append(Collective(kind=kind, sent_bytes=round(sent), start=start, end=end))
    return collectives, computing


def of_cuda(events: Iterable[Any]) -> tuple[list[Collective], list[Interval]]:
    """The same of GPUs: times are those of kernels, and bytes what NCCL's process group notes down with each call."""
    from torch.autograd import DeviceType

    collectives, computing = [], []
    for event in events:
        start, end = _interval(event)
        if event.device_type() == DeviceType.CUDA:
            if "nccl" in event.name().lower():
                collectives.append(Collective(kind="", sent_bytes=0, start=start, end=end))
            else:
                computing.append((start, end))
        elif event.name() == "record_param_comms":
            noted = event.extra_meta()
            kind = ASKED.get(noted.get("Collective name", "").strip("_"), "other")
            ranks, elements = int(noted.get("Group size", 1)), int(noted.get("In msg nelems", 0))
            sent = _share(kind, ranks) * elements * _element_bytes(noted.get("dtype", ""))
            collectives.append(Collective(kind=kind, sent_bytes=round(sent), start=start, end=start))
    return collectives, computing


def _asked(event: Any) -> tuple[str, int, int] | None:
    """Of a c10d operator that gathers or scatters: its kind, the bytes of its input and how many ranks take part, since
    the output of a gather is that many times its input, and the input of a scatter its output. None of any other."""
    kind = ASKED.get(event.name().removeprefix("c10d::").strip("_"), "")
    shapes, dtypes = event.shapes()[:2], event.dtypes()[:2]
    if kind not in ("all_gather", "reduce_scatter") or not all(shapes):
        return None
    output, given = (num_bytes([shape], [dtype]) for shape, dtype in zip(shapes, dtypes, strict=True))
    more, less = max(output, given), min(output, given)
    return (kind, given, more // less) if less else None


def _share(kind: str, ranks: int) -> float:
    return SENT[kind](ranks) if kind in SENT else 1.0


def num_bytes(shapes: Iterable[Sequence[int]], dtypes: Iterable[str]) -> int:
    """Of tensors of these shapes, by torch's names of the types."""
    return sum(math.prod(shape) * _element_bytes(dtype) for shape, dtype in zip(shapes, dtypes, strict=False))


def _element_bytes(dtype: str) -> int:
    return ELEMENT_BYTES.get(dtype.lower().removeprefix("c10::"), 1)


def _interval(event: Any) -> Interval:
    return event.start_ns() / 1e9, (event.start_ns() + event.duration_ns()) / 1e9


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """What the intervals cover, as disjoint ones in ascending order."""
    covered: list[Interval] = []
    for start, end in sorted(intervals):
        if covered and start <= covered[-1][1]:
            covered[-1] = (covered[-1][0], max(end, covered[-1][1]))
        else:
            covered.append((start, end))
    return covered


def length(disjoint: Iterable[Interval]) -> float:
    return sum(end - start for start, end in disjoint)


def overlap(one: Sequence[Interval], other: Sequence[Interval]) -> float:
    """Length of what both cover; each disjoint and ascending."""
    total, place = 0.0, 0
    for start, end in one:
        while place < len(other) and other[place][1] <= start:
            place += 1
        at = place
        while at < len(other) and other[at][0] < end:
            total += min(end, other[at][1]) - max(start, other[at][0])
            at += 1
    return total
