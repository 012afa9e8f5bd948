"""What the kernel tells of this machine and of its processes, by files; nothing where there are none."""

from collections.abc import Mapping, Sequence
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


def parent_of(pid: int) -> int:
    """Of a process, the id of its parent; 0 if unknown."""
    fields = _stat(pid)
    return int(fields[1]) if fields else 0


def oom_kills(files: Sequence[Path] | None = None) -> dict[str, int]:
    """How many processes the kernel has killed for want of memory, by who counts them: this process's control group,
    and the whole machine."""
    found = {}
    for path in _counters() if files is None else files:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except OSError:
            continue
        for name, _, count in (line.partition(" ") for line in lines):
            if name == "oom_kill":
                found[str(path)] = int(count)
    return found


def oom_kills_since(before: Mapping[str, int], files: Sequence[Path] | None = None) -> bool:
    """Whether the kernel has killed any process for want of memory since `before`: one of this machine's, perhaps not
    of this program's."""
    return any(count > before.get(name, count) for name, count in oom_kills(files).items())


@cache
def _counters() -> tuple[Path, ...]:
    """Files that count: of the control group, as cgroup v2 and v1 keep them, and of the machine."""
    files, root = [Path("/proc/vmstat")], Path("/sys/fs/cgroup")
    try:
        groups = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        groups = []
    for group in groups:
        _, controllers, place = group.split(":", 2)
        below = place.lstrip("/")
        if not controllers:
            files += [root / below / "memory.events", root / "memory.events"]
        elif "memory" in controllers.split(","):
            files += [root / "memory" / below / "memory.oom_control", root / "memory" / "memory.oom_control"]
    return tuple(dict.fromkeys(files))


def _stat(pid: int) -> list[str]:
    """Of /proc/PID/stat the fields behind the name, which may hold anything, from the state on."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()
