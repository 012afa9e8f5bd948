"""The tensors of a checkpoint, written by torch.distributed.checkpoint: of each the rows that this rank vouches for."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import DefaultSavePlanner, FileSystemWriter
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorProperties
from torch.distributed.checkpoint.planner import SavePlan, TensorWriteData, WriteItem, WriteItemType

from stages.files import sha256_file
from stages.pretrain.checkpoints.checkpoint import expect_single_processes

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from stages.pretrain.checkpoints.tensors import Part, Whole


class RowsPlanner(DefaultSavePlanner):
    """Plans from what every rank knows of all tensors; no tensor need be a DTensor, on whatever device it trains."""

    def __init__(self, wholes: "Mapping[str, Whole]", rank: int) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self._wholes = wholes
        self._rank = rank

    def create_local_plan(self) -> SavePlan:
        items = []
        for name, whole in self._wholes.items():
            part = whole.part_of(self._rank)
            if part is not None:
                items.append(_item(name, whole, part, self.state_dict[name]))
        self.plan = SavePlan(items)
        return self.plan

    def resolve_data(self, write_item: WriteItem) -> torch.Tensor:
        tensor: torch.Tensor = self.state_dict[write_item.index.fqn]
        return tensor


def _item(name: str, whole: "Whole", part: "Part", tensor: torch.Tensor) -> WriteItem:
    offsets = torch.Size((part.first_row, *(0 for _ in part.shape[1:])) if part.shape else ())
    return WriteItem(
        index=MetadataIndex(name, offsets),
        type=WriteItemType.SHARD,
        tensor_data=TensorWriteData(
            chunk=ChunkStorageMetadata(offsets=offsets, sizes=torch.Size(part.shape)),
            properties=TensorProperties.create_from_tensor(tensor),
            size=torch.Size(whole.shape),
        ),
    )


def write_tensors(
    directory: Path,
    wholes: "Mapping[str, Whole]",
    mine: Mapping[str, torch.Tensor],
    *,
    rank: int,
    group: "ProcessGroup | None",
) -> dict[str, str]:
    """Write `mine`, what this rank vouches for, into a directory of all ranks, and bring it to the disk; all of `group`
    call it, and one process alone without a group. Returns the sha256 of the files of this rank, by their names."""
    expect_single_processes()
    dcp.save(
        dict(mine),
        # Nothing is to be copied ahead: all that would do is wait for the device.
        storage_writer=FileSystemWriter(str(directory), sync_files=True, per_thread_copy_ahead=0),
        planner=RowsPlanner(wholes, rank),
        process_group=group,
        no_dist=group is None,
    )
    return {path.name: sha256_file(path) for path in sorted(directory.glob(f"__{rank}_*"))}
