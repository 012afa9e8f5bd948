"""What the kernel tells of this machine and of its processes, by files; nothing where there are none."""

from functools import cache
from pathlib import Path


@cache
def boot_id() -> str:
    """Names the time since this machine was started, in which monotonic clocks can be compared; "" if unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def state_of(pid: int) -> str:
    """Of a process, by one letter: T is stopped, Z has ended and has not been asked how; "" if unknown."""
    return (_stat(pid) or [""])[0]


def started(pid: int) -> float | None:
    """When a process was started, in clock ticks since boot: setting the clock does not move it. None if unknown."""
    fields = _stat(pid)
    return float(fields[19]) if fields else None


def _stat(pid: int) -> list[str]:
    """Of /proc/PID/stat the fields behind the name, which may hold anything, from the state on."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()
