"""Links that are slow or cut: the run lives in a network namespace of its own, whose loopback interface is throttled by
a token bucket. Needs root.

A rate near zero holds every packet back for as long as it lasts, and lets them go on after that: a delay.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

# Frames of an Ethernet's size, so that no single packet is more than the bucket holds.
WRAPPER = ["unshare", "--net", "--", "sh", "-c", 'ip link set lo mtu 1500 up && exec "$@"', "sh"]
# The micro model passes about 0.1 MB a step: the first is a fraction of a step more, the second hours.
SLOW, CUT = "4mbit", "800bit"


@contextmanager
def throttled(process: int, rate: str) -> Iterator[None]:
    """The links of the namespace that a process lives in have this rate."""
    _tc(process, "replace", "dev", "lo", "root", "tbf", "rate", rate, "burst", "3200", "limit", "50000000")
    try:
        yield
    finally:
        _tc(process, "del", "dev", "lo", "root", check=False)  # it has gone with its last process, if that has


def _tc(process: int, *words: str, check: bool = True) -> None:
    command = ["nsenter", "--target", str(process), "--net", "tc", "qdisc", *words]
    subprocess.run(command, check=check, capture_output=True)
