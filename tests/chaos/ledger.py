"""The sample ledger of a run: which samples each step of the final weights was trained on, against the order that the
recipe asks for.

A rank's processes follow one another; each begins at the checkpoint that it has loaded. So of a step counts what the
last process has done that began at or before it: what earlier ones did of it is in no weight.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

Sample = tuple[int, int]  # domain, sequence


@dataclass
class Took:
    """What one process of a rank did. `resume`: step of the checkpoint that it went on from. By step: monotonic
    seconds at begin and end, and the samples."""

    pid: int
    resume: int
    begins: dict[int, float] = field(default_factory=dict)
    ends: dict[int, float] = field(default_factory=dict)
    samples: dict[int, list[Sample]] = field(default_factory=dict)


class Ledger:
    """The lines that the ranks have written so far. ranks: by rank, its processes in the order of their begin."""

    def __init__(self, folder: Path) -> None:
        self.ranks: dict[int, list[Took]] = defaultdict(list)
        self._folder = folder
        self._read: Counter[Path] = Counter()
        self._processes: dict[tuple[int, str], Took] = {}

    def poll(self) -> None:
        """Read what has been added."""
        for path in sorted(self._folder.iterdir()):
            if path.stat().st_size == self._read[path]:
                continue
            with open(path, "rb") as file:
                file.seek(self._read[path])
                lines = file.read().split(b"\n")
            self._read[path] += sum(len(line) + 1 for line in lines[:-1])
            for line in lines[:-1]:
                self._take(int(path.stem.partition("-")[2]), json.loads(line))

    def _take(self, rank: int, line: dict) -> None:
        key = rank, line["process"]
        if key not in self._processes:
            self._processes[key] = Took(line["pid"], line["resume"])
            self.ranks[rank].append(self._processes[key])
        took = self._processes[key]
        if line["point"] == "begin":
            took.begins[line["step"]] = line["at"]
        else:
            took.ends[line["step"]] = line["at"]
            took.samples[line["step"]] = [(domain, sequence) for domain, sequence in line["samples"]]

    @property
    def step(self) -> int:
        """The highest step that has begun; 0 before the first."""
        return max((step for processes in self.ranks.values() for took in processes for step in took.begins), default=0)

    @property
    def age(self) -> int:
        """How many steps the latest process of every rank has done."""
        return min((len(processes[-1].ends) for processes in self.ranks.values()), default=0)

    def began_after(self, moment: float) -> float | None:
        """When a process that had not begun before `moment` began its first step; None if none has yet."""
        firsts = [min(took.begins.values()) for processes in self.ranks.values() for took in processes if took.begins]
        return min((first for first in firsts if first > moment), default=None)

    def effective(self, step: int) -> list[Took | None]:
        """For each rank the process whose work on `step` is in the weights; None if it never finished it."""
        found: list[Took | None] = []
        for processes in self.ranks.values():
            last = next((took for took in reversed(processes) if took.resume < step), None)
            found.append(last if last and step in last.ends else None)
        return found


def lost_and_doubled(ledger: Ledger, expected: Mapping[int, Iterable[Sample]]) -> tuple[int, int]:
    """Samples of the steps of `expected` that are not in the weights, and those that are there once too often."""
    lost = doubled = 0
    for step, samples in expected.items():
        wanted, had = Counter(samples), Counter[Sample]()
        for took in ledger.effective(step):
            if took is not None:
                had.update(took.samples[step])
        lost += (wanted - had).total()
        doubled += (had - wanted).total()
    return lost, doubled
