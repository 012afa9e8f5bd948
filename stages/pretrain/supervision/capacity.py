"""On how many processes the training can go on now, and on which.

With `least_processes` a run is elastic: a process, a GPU or a node less, it goes on with fewer, and with all of them
again when they are back. The data order, the global batch and the schedule follow from the step alone, so only
low-order bits move. The number may be told by hand, or by a batch system, in the file `processes` of the run directory.
"""

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from stages.pretrain.config import PretrainConfig

GPUS = Path("/proc/driver/nvidia/gpus")
VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass
class Capacity:
    """What there is for the run of `config`. file: with the number of processes that may run; suspected: places whose
    hardware is not trusted any more."""

    config: PretrainConfig
    file: Path
    suspected: set[int] = field(default_factory=set)
    _told: int | None = None

    @property
    def is_elastic(self) -> bool:
        return self.config.least_processes is not None

    def possible(self) -> int:
        """Processes that can run now; 0 if that is fewer than may be."""
        if not self.is_elastic:
            return self.config.num_processes
        self._told = told(self.file, before=self._told)
        return usable(self.config, gpus=gpus(self.config), told=self._told, suspected=self.suspected)

    def too_few(self) -> str:
        """Why no process can run now."""
        least = f"fewer than pretrain.least_processes = {self.config.least_processes} processes can run here now"
        return least if self._told is None else f"{least} (the file {self.file} says {self._told})"

    def may_lose_another(self) -> bool:
        """Whether the run may go on if one more place is not trusted."""
        return self.is_elastic and usable(self.config, suspected={*self.suspected, -1}) > 0

    def variables(self) -> Mapping[str, str]:
        """For the environment of ranks: the GPUs that are trusted."""
        if not self.suspected or self.config.device == "cpu":
            return {}
        devices = visible() or [str(number) for number in range(self.config.num_processes)]
        return {VISIBLE: ",".join(device for place, device in enumerate(devices) if place not in self.suspected)}

    def place_of(self, rank: int) -> int:
        """The place, among all that there would be without suspicion, of a rank of the present attempt."""
        trusted = [place for place in range(self.config.num_processes) if place not in self.suspected]
        return trusted[rank]


def usable(
    config: PretrainConfig, *, gpus: int | None = None, told: int | None = None, suspected: Collection[int] = ()
) -> int:
    """Processes for `config`: whole groups with hybrid sharding, and 0 for fewer than least_processes. gpus: that are
    there, and told: by the file; None: no limit."""
    limits = [config.num_processes - len(suspected)]
    limits += [] if told is None else [told]
    limits += [] if gpus is None else [gpus - len(suspected)]
    most = max(min(limits), 0)
    if config.shard_processes is not None:
        most -= most % config.shard_processes
    least = config.least_processes or config.num_processes
    return most if most >= least else 0


def told(file: Path, *, before: int | None) -> int | None:
    """The number in the file; None if there is no file. One that holds no number, as while it is being written, changes
    nothing: the number is the one `before`."""
    try:
        return int(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return before


def gpus(config: PretrainConfig) -> int | None:
    """GPUs of this machine that the run may use, without asking CUDA; None where that cannot be said, or on a CPU."""
    if config.device == "cpu":
        return None
    try:
        found = sum(1 for _ in GPUS.iterdir())
    except OSError:
        return None
    chosen = visible()
    return found if chosen is None else min(found, len(chosen))


def visible() -> list[str] | None:
    """The GPUs that the user has chosen."""
    chosen = os.environ.get(VISIBLE)
    return None if chosen is None else [device for device in chosen.split(",") if device]


def with_processes(config: PretrainConfig, number: int) -> PretrainConfig:
    """The same training on `number` processes. One group of hybrid sharding is a world that is fully sharded."""
    if number == config.num_processes:
        return config
    changes: dict[str, object] = {"num_processes": number}
    if config.shard_processes == number:
        changes |= {"sharding": "full", "shard_processes": None}
    return PretrainConfig.model_validate({**config.model_dump(), **changes})
