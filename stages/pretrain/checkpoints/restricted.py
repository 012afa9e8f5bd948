"""Reading what torch.distributed.checkpoint wrote without unpickling anything but plain records.

DCP's index, `.metadata`, is a pickle, and its default planner unpickles every value that is not a tensor. Here the
index goes through an unpickler that knows the record types of an index of tensors and nothing else; the planner refuses
whatever is not a tensor, and demands that each tensor asked for is there in whole, with its shape and dtype. Tensor
data itself is read by torch.load(weights_only=True).
"""

import io
import pathlib
import pickle
from collections.abc import Sequence
from typing import Any

import torch
import torch.serialization
from torch.distributed.checkpoint import DefaultLoadPlanner, FileSystemReader, filesystem, metadata
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta, TensorStorageMetadata
from torch.distributed.checkpoint.planner import LoadPlan, ReadItem


class CheckpointError(RuntimeError):
    """A checkpoint is damaged, incomplete, or does not fit what is to be filled from it."""


def shortened(phrases: Sequence[str]) -> str:
    """The first few of them, and how many more there are."""
    return "; ".join(phrases[:5]) + ("" if len(phrases) <= 5 else f"; and {len(phrases) - 5} more")


_RECORDS = {
    (kind.__module__, kind.__name__): kind
    for kind in (
        metadata.Metadata,
        metadata.MetadataIndex,
        metadata.StorageMeta,
        metadata.TensorStorageMetadata,
        metadata.BytesStorageMetadata,
        metadata.ChunkStorageMetadata,
        metadata.TensorProperties,
        metadata._MEM_FORMAT_ENCODING,
        filesystem._StorageInfo,
        torch.Size,
        pathlib.PosixPath,
    )
} | {
    ("torch.serialization", "_get_layout"): torch.serialization._get_layout,
    ("pathlib", "PosixPath"): pathlib.PosixPath,
}


class IndexUnpickler(pickle.Unpickler):
    """Unpickles the records of a DCP index; any other global raises CheckpointError before it is looked up."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _RECORDS:
            return _RECORDS[module, name]
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        raise CheckpointError(
            f"the index of the checkpoint names {module}.{name}, which no index of tensors needs: "
            "it was not written by this program"
        )


class TensorReader(FileSystemReader):
    """A FileSystemReader that reads the index through `IndexUnpickler` and opens no file outside the checkpoint."""

    def __init__(self, path: str) -> None:
        """Reads the index at once. Raises CheckpointError if it is not one, before DCP has wrapped the error twice."""
        super().__init__(path)
        self._index = self._read_index()

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        return self._index

    def _read_index(self) -> Metadata:
        path = pathlib.Path(self.path) / ".metadata"
        try:
            index = IndexUnpickler(io.BytesIO(path.read_bytes())).load()
        except CheckpointError:
            raise
        except Exception as error:  # a damaged pickle may raise anything
            raise CheckpointError(f"the index {path} cannot be read: {error}") from error
        if not isinstance(index, Metadata) or not isinstance(index.storage_data, dict):
            raise CheckpointError(f"the index {path} is not that of a checkpoint")
        for info in index.storage_data.values():
            if pathlib.PurePosixPath(info.relative_path).name != info.relative_path:
                raise CheckpointError(f"the index {path} points outside the checkpoint: {info.relative_path}")
        if index.storage_meta is None:
            index.storage_meta = StorageMeta()
        index.storage_meta.load_id = self.load_id
        return index


class StrictPlanner(DefaultLoadPlanner):
    """Loads tensors into a flat dict of tensors: all of them, each with the shape and dtype that was saved, and
    nothing else."""

    def __init__(self) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False, allow_partial_load=False)

    def create_local_plan(self) -> LoadPlan:
        assert self.metadata is not None
        saved = self.metadata.state_dict_metadata
        problems = [f"{name} is missing" for name in self.state_dict if name not in saved]
        for name, tensor in self.state_dict.items():
            entry = saved.get(name)
            if isinstance(entry, TensorStorageMetadata):
                if tuple(entry.size) != tuple(tensor.size()):
                    problems.append(f"{name} has shape {list(entry.size)}, not {list(tensor.size())}")
                if entry.properties.dtype != tensor.dtype:
                    problems.append(f"{name} is {entry.properties.dtype}, not {tensor.dtype}")
            elif entry is not None:
                problems.append(f"{name} is not a tensor")
        if problems:
            raise CheckpointError(f"the checkpoint does not fit the model or its optimizer: {shortened(problems)}")
        return super().create_local_plan()

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        raise CheckpointError(f"{read_item.storage_index.fqn} is a pickled object; a checkpoint holds tensors only")
