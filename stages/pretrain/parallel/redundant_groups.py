"""The groups of a redundant training: how its processes are divided, and what one of them is to know.

Imports neither torch nor transformers: the supervisor reads this too.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from stages.pretrain.config import PretrainConfig

GROUP = "LONGHAUL_GROUP"  # number of the group that a rank belongs to, where there are several
JOINS = "LONGHAUL_JOINS"  # "1" for one that has been started to take the place of a lost one


@dataclass(frozen=True)
class Place:
    """The group of a rank. joins: whether it takes its state from the others."""

    group: int
    joins: bool

    @classmethod
    def here(cls) -> Self | None:
        """Of this process, as its environment says; None if its world is all there is."""
        group = os.environ.get(GROUP)
        return None if group is None else cls(int(group), os.environ.get(JOINS) == "1")

    def variables(self) -> Mapping[str, str]:
        """What says so in the environment of a rank."""
        return {GROUP: str(self.group), JOINS: "1" if self.joins else "0"}


def group_processes(config: PretrainConfig) -> int:
    """Processes in a group: those that shard among their own, or one."""
    return config.shard_processes or 1


def num_groups(config: PretrainConfig) -> int:
    return config.num_processes // group_processes(config)


def of_group(config: PretrainConfig) -> PretrainConfig:
    """The training as one group sees it, which is a world of its own."""
    size = group_processes(config)
    sharding = "none" if size == 1 else "full"
    return config.model_copy(
        update={"num_processes": size, "sharding": sharding, "shard_processes": None, "redundant": False}
    )
