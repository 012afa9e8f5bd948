import io
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import DefaultSavePlanner, FileSystemWriter
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex
from torch.distributed.checkpoint.planner import LoadItemType, ReadItem

from stages.pretrain.checkpoints.checkpoint import fill
from stages.pretrain.checkpoints.restricted import CheckpointError, StrictPlanner


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A small DCP directory with the tensor "a" and the pickled object "b"."""
    folder = tmp_path / "dcp"
    planner = DefaultSavePlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
    content = {"a": torch.arange(6.0).view(2, 3), "b": {"an": "object"}}
    with pytest.warns(UserWarning):
        dcp.save(content, storage_writer=FileSystemWriter(str(folder)), planner=planner, no_dist=True)
    return folder


def load(folder: Path, names: str = "a") -> dict[str, torch.Tensor]:
    tensors = {name: torch.zeros(2, 3) for name in names}
    fill(folder, tensors, partly=True)
    return tensors


class Malicious:
    """Runs a command when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def test_an_honest_index_is_read(saved: Path) -> None:
    assert torch.equal(load(saved)["a"], torch.arange(6.0).view(2, 3))


@pytest.mark.parametrize("wrapped", [True, False])
def test_an_index_that_would_run_code_is_refused_before_it_does(saved: Path, tmp_path: Path, wrapped: bool) -> None:
    harm: Any = Malicious(tmp_path / "harm")
    content = Metadata(state_dict_metadata={}, planner_data=harm) if wrapped else harm
    (saved / ".metadata").write_bytes(pickle.dumps(content))
    with pytest.raises(CheckpointError, match=r"mkdir"):
        load(saved)
    assert not (tmp_path / "harm").exists()
    pickle.loads((saved / ".metadata").read_bytes())
    assert (tmp_path / "harm").exists(), "the index is harmless, so the test shows nothing"


@pytest.mark.parametrize(
    "content", [pickle.dumps({"a": 1}), b"", b"no pickle", pickle.dumps(Metadata(state_dict_metadata={}))]
)
def test_an_index_of_another_kind_is_refused(saved: Path, content: bytes) -> None:
    (saved / ".metadata").write_bytes(content)
    with pytest.raises(CheckpointError):
        load(saved)


def test_a_pickled_object_is_refused(saved: Path) -> None:
    with pytest.raises(CheckpointError, match="b is not a tensor"):
        load(saved, "ab")
    place, nothing = MetadataIndex("b"), torch.Size(())
    item = ReadItem(LoadItemType.BYTE_IO, place, nothing, place, nothing, nothing)
    with pytest.raises(CheckpointError, match="b is a pickled object"):
        StrictPlanner().load_bytes(item, io.BytesIO())


def test_no_file_outside_the_checkpoint_is_opened(saved: Path, tmp_path: Path) -> None:
    index = pickle.loads((saved / ".metadata").read_bytes())
    for place, info in index.storage_data.items():
        index.storage_data[place] = _StorageInfo(f"../{info.relative_path}", info.offset, info.length)
    (saved / ".metadata").write_bytes(pickle.dumps(index))
    with pytest.raises(CheckpointError, match="points outside"):
        load(saved)
