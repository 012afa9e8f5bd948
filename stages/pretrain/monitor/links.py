"""How fast each link of the ring of processes is, and which of them stays slow.

Each rank sends a megabyte to the next one and times what it gets from the one before. A slow link ends nothing: it is
named, and somebody may look at it.
"""

import socket
import statistics
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from stages.pretrain.parallel.ranks import Ranks

MESSAGE_BYTES = 1_000_000
REPEATS = 3  # the fastest counts: a process that was just not running makes no link slow
SLOW_RATIO = 3.0
SLOW_SAMPLES = 3
HOST_BYTES = 64  # of a name, at most


class Links:
    """The ring of all ranks: link n leads from rank n - 1 to rank n. `delay` is called before each sending: a test's
    fault."""

    def __init__(self, ranks: "Ranks", *, delay: Callable[[], None] = lambda: None) -> None:
        """Collective."""
        import torch

        self._ranks = ranks
        self._delay = delay
        self._sent = torch.zeros(MESSAGE_BYTES, dtype=torch.uint8, device=ranks.device)
        self._received = torch.empty_like(self._sent)
        self.hosts = _hosts(ranks)

    def seconds(self) -> float:
        """How long a message takes to this rank from the one before it. Collective."""
        import torch.distributed as dist

        size, rank = self._ranks.size, self._ranks.rank
        fastest = float("inf")
        for _ in range(REPEATS):
            self._ranks.barrier()
            self._delay()
            self._wait()
            began = time.perf_counter()
            works = dist.batch_isend_irecv(
                [
                    dist.P2POp(dist.isend, self._sent, (rank + 1) % size),
                    dist.P2POp(dist.irecv, self._received, (rank - 1) % size),
                ]
            )
            works.pop().wait()  # NCCL has one work for both, and gloo never returns from a second wait
            self._wait()
            fastest = min(fastest, time.perf_counter() - began)
            for work in works:
                work.wait()
        return fastest

    def name(self, link: int) -> str:
        """Of a link, by the ranks and hosts at both ends."""
        before = (link - 1) % self._ranks.size
        return f"rank {before} on {self.hosts[before]} to rank {link} on {self.hosts[link]}"

    def _wait(self) -> None:
        """For a GPU; a CPU is never behind."""
        if self._ranks.device.type == "cuda":
            import torch

            torch.cuda.synchronize(self._ranks.device)


class SlowLinks:
    """Tells which links are slow for SLOW_SAMPLES samples in a row: SLOW_RATIO times the median of all, the lower one
    of two."""

    def __init__(self) -> None:
        self._in_a_row: dict[int, int] = {}

    def after(self, seconds: Sequence[float]) -> list[int]:
        """The links that a sample has made so; each is told once, until it has been fast again."""
        most = SLOW_RATIO * statistics.median_low(seconds)
        slow = [link for link, taken in enumerate(seconds) if taken > most]
        self._in_a_row = {link: self._in_a_row.get(link, 0) + 1 for link in slow}
        return [link for link in slow if self._in_a_row[link] == SLOW_SAMPLES]


def _hosts(ranks: "Ranks") -> list[str]:
    """The names of all ranks' hosts, by rank: a sum of bytes, in which each rank has its places."""
    name = socket.gethostname().encode()[:HOST_BYTES]
    places = [0.0] * (ranks.size * HOST_BYTES)
    places[ranks.rank * HOST_BYTES : ranks.rank * HOST_BYTES + len(name)] = map(float, name)
    summed: torch.Tensor = ranks.sum(ranks.tensor(places))
    rows = summed.view(ranks.size, HOST_BYTES).tolist()
    return [bytes(map(int, row)).rstrip(b"\0").decode(errors="replace") for row in rows]
