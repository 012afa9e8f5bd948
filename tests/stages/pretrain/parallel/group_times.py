"""Two ranks on which the groups of a sharded model are given their time, for `test_timeouts`."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from stages.pretrain.parallel.ranks import join
from stages.pretrain.parallel.timeouts import process_groups, set_timeouts
from tests.stages.pretrain import micro

SECONDS = 77.0


def main() -> None:
    join(2, on_cpu=True, timeout_seconds=SECONDS)
    model = torch.nn.Linear(2, 2)
    fully_shard(model, mesh=init_device_mesh("cpu", (2, 1), mesh_dim_names=("replicas", "shards")))
    groups = process_groups(model)
    assert len(groups) == 2 and times(groups) != [SECONDS] * 2, times(groups)
    set_timeouts(micro.config(collective_timeout_seconds=SECONDS, collective_timeout_least_seconds=1), model)
    assert set(times(groups)) == {SECONDS}, times(groups)


def times(groups: list[dist.ProcessGroup]) -> list[float]:
    """After which the operations of each group give up."""
    return [group._get_backend(torch.device("cpu")).options._timeout.total_seconds() for group in groups]
