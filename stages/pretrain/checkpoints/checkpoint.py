"""Checkpoints that are whole or not there, and that say so when a byte of theirs has changed.

    checkpoints/step-00000160/
      dcp/             tensors by name (see `tensors`), written by torch.distributed.checkpoint
      config.json      the model, as transformers knows it
      state.json       what else the training state consists of: one `StepState`
      checksums.json   size and sha256 of every other file; written last

A checkpoint is written into `step-00000160.tmp`, brought to the disk and renamed. `checksums.json` under the exact name
is complete; anything else is unfinished. Loading verifies every byte and unpickles nothing.
"""

import json
import re
import warnings
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from data.errors import InputError
from stages.files import fsync_directory, fsync_file, sha256_file, tree, write_json
from stages.pretrain.batches.exclusions import Draws
from stages.pretrain.optimise.loss_scale import LossScale

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from stages.pretrain.checkpoints.tensors import State

CHECKSUMS, STATE, MODEL_CONFIG, TENSORS = "checksums.json", "state.json", "config.json", "dcp"
SCHEMA = 2  # of state.json; another one is refused
NAME = re.compile(r"step-(\d{8})")
DAMAGED, UNHEALTHY = "damaged", "unhealthy"
ASIDE = re.compile(rf"step-(\d{{8}})\.({DAMAGED}|{UNHEALTHY})-(\d+)")


class StepState(BaseModel):
    """What a training state is besides its tensors; all of it follows from the step. The position in the data does too,
    so there is no cursor.

    `vocabulary_size`: ids that there are; the model may have more rows, which only pad. `excluded`: ranges of draws
    that were left out on the way here (see `batches.exclusions`). `heldout`: (step, held-out loss in nats per
    token) at the durable steps so far. `skipped_in_a_row`: latest steps whose batch had no target. `loss_scale`: of
    the next step, with fp16. `state_digest`: of tensors and step; of durable checkpoints only, elsewhere "".
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    step: int
    tokens_seen: int
    vocabulary_size: int
    config_fingerprint: str
    data_fingerprint: str
    excluded: Draws = ()
    heldout: tuple[tuple[int, float], ...] = ()
    skipped_in_a_row: int = 0
    loss_scale: LossScale = LossScale()
    guard: dict[str, float] = {}
    state_digest: str = ""
    schema_version: int = SCHEMA

    @property
    def heldout_loss(self) -> float | None:
        """The held-out loss measured at this step, if one was."""
        return self.heldout[-1][1] if self.heldout and self.heldout[-1][0] == self.step else None


def step_name(step: int) -> str:
    """The folder of a step's checkpoint."""
    return f"step-{step:08d}"


def seal(work: Path, hashes: Mapping[str, str] | None = None) -> int:
    """Bring all files of a checkpoint to the disk and record their sizes and hashes, last. hashes: sha256 of files, by
    their names, that are on the disk and hashed already. Returns the bytes of all files."""
    known = hashes or {}
    names = [name for name in tree(work) if name != CHECKSUMS]
    assert known.keys() <= {*names}, f"{sorted(known.keys() - {*names})} have gone from {work}"
    unknown = [name for name in names if name not in known]
    for name in unknown:
        fsync_file(work / name)
    for directory in [work, *(path for path in work.rglob("*") if path.is_dir())]:
        fsync_directory(directory)
    with ThreadPoolExecutor(4) as pool:
        found = {**known, **dict(zip(unknown, pool.map(lambda name: sha256_file(work / name), unknown), strict=True))}
    sizes = {name: (work / name).stat().st_size for name in names}
    write_json(work / CHECKSUMS, {name: {"bytes": size, "sha256": found[name]} for name, size in sizes.items()})
    return sum(sizes.values()) + (work / CHECKSUMS).stat().st_size


def problems(directory: Path) -> list[str]:
    """What is wrong with the checkpoint in `directory`, one phrase each; empty if every byte is as it was written."""
    try:
        recorded: dict[str, Any] = json.loads((directory / CHECKSUMS).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return [f"{CHECKSUMS} cannot be read ({error})"]
    if not {STATE, MODEL_CONFIG, f"{TENSORS}/.metadata"} <= recorded.keys():
        return [f"{CHECKSUMS} does not list all parts of a checkpoint"]

    def problem(name: str) -> str:
        path = directory / name
        if not path.is_file():
            return f"{name} is missing"
        if path.stat().st_size != recorded[name]["bytes"]:
            return f"{name} has {path.stat().st_size} bytes, not {recorded[name]['bytes']}"
        return "" if sha256_file(path) == recorded[name]["sha256"] else f"{name} has changed since it was written"

    with ThreadPoolExecutor(4) as pool:
        return [found for found in pool.map(problem, sorted(recorded)) if found]


def require_intact(directory: Path) -> None:
    """Raise CheckpointError unless every byte of the checkpoint is as it was written."""
    found = problems(directory)
    if found:
        from stages.pretrain.checkpoints.restricted import CheckpointError

        raise CheckpointError(f"the checkpoint {directory} is damaged: {'; '.join(found)}")


def read_state(directory: Path) -> StepState:
    """The StepState of a complete checkpoint. Raises InputError if it is of another schema."""
    content = json.loads((directory / STATE).read_text(encoding="utf-8"))
    schema = content.get("schema_version")
    if schema != SCHEMA:
        raise InputError(
            f"{directory} has schema {schema}, and this version reads schema {SCHEMA}: go on with the version that "
            "made it, or move it away"
        )
    return StepState.model_validate_json(json.dumps(content))


def load(
    folder: Path,
    step: int,
    tensors: "State",
    *,
    data_fingerprint: str,
    excluded: Draws,
    verified: bool = False,
) -> StepState:
    """Fill `tensors` in place from the checkpoint of `step` below `folder`: on each rank what it holds, whatever the
    layout was that saved them. verified: every byte of it has just been found to be as it was written.

    Raises InputError if there is none, or if it was made from other data or with other draws left out than `excluded`,
    CheckpointError if it is damaged or does not fit.
    """
    directory = folder / step_name(step)
    if not (directory / CHECKSUMS).exists():
        there = ", ".join(map(str, scan(folder).complete)) or "none"
        raise InputError(f"there is no checkpoint of step {step} in {folder}; complete ones there: {there}")
    if not verified:
        require_intact(directory)
    state = read_state(directory)
    if state.step != step:
        raise InputError(f"{directory} holds step {state.step}")
    if state.data_fingerprint != data_fingerprint:
        raise InputError(
            f"{directory} was made from other data (fingerprint {state.data_fingerprint[:12]}, "
            f"now {data_fingerprint[:12]}): restore the data, or move the run directory away to begin anew"
        )
    if state.excluded != excluded:
        raise InputError(
            f"{directory} was made with the draws {list(state.excluded)} left out, now {list(excluded)}: restore "
            f"excluded.json in {folder.parent}, or move the run directory away to begin anew"
        )
    fill(directory / TENSORS, tensors)
    return state


def fill(dcp_directory: Path, tensors: "State", *, partly: bool = False) -> None:
    """Poison `tensors`, then read what this rank holds of each of them from a DCP directory. No rank waits for another.
    partly: the directory may hold other tensors too. Raises CheckpointError."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.api import CheckpointException

    from stages.pretrain.checkpoints.restricted import CheckpointError, StrictPlanner, TensorReader, shortened
    from stages.pretrain.checkpoints.tensors import here, poison

    held = here(tensors)
    poison(held)
    reader = TensorReader(str(dcp_directory))
    extra = sorted(reader.read_metadata().state_dict_metadata.keys() - tensors.keys())
    if extra and not partly:
        raise CheckpointError(f"{dcp_directory} holds what neither the model nor its optimizer has: {shortened(extra)}")
    expect_single_processes()
    try:
        dcp.load(held, storage_reader=reader, planner=StrictPlanner(), no_dist=True)
    except CheckpointException as error:
        causes = [failure[0] for failure in error.failures.values()]
        first = next((cause for cause in causes if isinstance(cause, CheckpointError)), causes[0])
        raise CheckpointError(f"{dcp_directory}: {first}") from error


def expect_single_processes() -> None:
    """Let DCP not warn from here on that a single process is a single process. Not for a while only: filters of
    warnings belong to all threads."""
    warnings.filterwarnings("ignore", message="torch.distributed is disabled")


def load_model(directory: Path) -> "PreTrainedModel":
    """The model of a checkpoint artifact: float32, on the CPU, in eval mode, without rows that only pad its vocabulary.
    Its weights are their moving average where the checkpoint holds one. Verifies every byte and unpickles nothing.
    Raises CheckpointError."""
    from stages.pretrain.checkpoints.restricted import TensorReader
    from stages.pretrain.checkpoints.tensors import model_tensors
    from stages.pretrain.model.build import build, config_of, trimmed

    require_intact(directory)
    model = build(config_of(json.loads((directory / MODEL_CONFIG).read_text(encoding="utf-8"))))
    saved = TensorReader(str(directory / TENSORS)).read_metadata().state_dict_metadata
    wanted = {}
    for name, tensor in model_tensors(model).items():
        average = f"ema.{name.removeprefix('model.')}"
        wanted[average if average in saved else name] = tensor
    fill(directory / TENSORS, wanted, partly=True)
    return trimmed(model, read_state(directory).vocabulary_size).eval()


@dataclass(frozen=True)
class Scan:
    """What stands in a folder of checkpoints. `complete`: step: folder, ascending; `unfinished`: folders that a kill
    left."""

    complete: dict[int, Path]
    unfinished: tuple[Path, ...]


def scan(folder: Path) -> Scan:
    """Look at names and the presence of checksums only. Folders of any other name are nobody's business here and are
    never touched."""
    complete, unfinished = {}, []
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        exact = NAME.fullmatch(path.name)
        if exact and (path / CHECKSUMS).exists():
            complete[int(exact[1])] = path
        elif exact or (path.name.endswith(".tmp") and NAME.fullmatch(path.name.removesuffix(".tmp"))):
            unfinished.append(path)
    return Scan(dict(sorted(complete.items())), tuple(unfinished))


def set_aside(path: Path, why: str) -> Path:
    """Rename a checkpoint so that nothing takes it for one, and keep it for whoever wants to look, until
    `superseded`."""
    number = 1
    while (target := path.with_name(f"{path.name}.{why}-{number}")).exists():
        number += 1
    path.rename(target)
    fsync_directory(path.parent)
    return target


def superseded(folder: Path) -> list[Path]:
    """Checkpoints that were set aside, less the newest of each reason: that of the highest step, then of the highest
    number."""
    found: dict[str, list[tuple[int, int, Path]]] = {}
    for path in folder.iterdir() if folder.is_dir() else []:
        aside = ASIDE.fullmatch(path.name)
        if aside:
            found.setdefault(aside[2], []).append((int(aside[1]), int(aside[3]), path))
    return [path for _, _, path in sorted(entry for entries in found.values() for entry in sorted(entries)[:-1])]
