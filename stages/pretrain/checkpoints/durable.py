"""The second tier: healthy durable checkpoints on a store that outlives the machine.

    <url>/<run key>/run.json                                   whose checkpoints these are
    <url>/<run key>/published/step-00000160.json               the artifact that the checkpoint was published as
    <url>/<run key>/step-00000160/<file>.<offset>-<sha256>     bytes of a file from an offset on, at most 64 MiB
    <url>/<run key>/step-00000160/index.json                   sizes and sha256 of parts and files; written last

A checkpoint whose index is there is complete; every part was read back after it was written. Names of parts follow from
their content, so that what an attempt left behind in a stalled call can never replace something else. Beside the files
of the checkpoint there are those records of the run directory that a run needs to go on elsewhere. An upload goes on
where it was, over restarts too: its verified parts are put down in the run directory.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from pydantic import ValidationError

from stages.files import fsync_directory, sha256_file, write_atomic
from stages.journal import torn
from stages.pretrain.checkpoints import checkpoint
from stages.pretrain.checkpoints.index import File, Index, Part, Published
from stages.pretrain.checkpoints.remote_files import RemoteFiles, Stopped
from stages.pretrain.job import RunDirectory, read_lines
from stages.pretrain.supervision.account import ALIVE, ATTEMPTS

INDEX, RUN, PUBLISHED, PARTS = "index.json", "run.json", "published", "parts.jsonl"
PARTS_AT_ONCE = 4
READS = 3  # of a part, before it is the store and not the way to it that has damaged it
CHECKPOINT, RECORDS = "checkpoint", "records"
FETCHED = "-fetched"
PUBLISHED_NAME = re.compile(rf"{PUBLISHED}/{checkpoint.NAME.pattern}\.json")


class NotYet(Exception):
    """The records of the run do not reach a checkpoint: the run has been rolled back, and will make them again."""


class DurableStore:
    """The checkpoints of one run on a store. Safe to use from one thread at a time."""

    def __init__(self, files: RemoteFiles, run: RunDirectory) -> None:
        self.files = files
        self._run = run
        self._key = run.path.name
        self._progress = run.path / "uploads"

    def begin(self, *, patience_seconds: float | None) -> None:
        """See that the store can be written. Raises InputError if it may not be, with patience_seconds; Unreachable."""
        content = json.dumps({"run": self._key}).encode()
        self.files.write(f"{self._key}/{RUN}", content, patience_seconds=patience_seconds)

    def complete(self, *, patience_seconds: float | None = None) -> dict[int, int]:
        """Step: bytes of its index, for all complete checkpoints, ascending."""
        found = {}
        for name, size in self.files.sizes(self._key, patience_seconds=patience_seconds).items():
            folder, _, file = name.removeprefix(f"{self._key}/").partition("/")
            step = checkpoint.NAME.fullmatch(folder)
            if step and file == INDEX:
                found[int(step[1])] = size
        return dict(sorted(found.items()))

    def begun(self) -> set[int]:
        """Steps of which anything is there: of a checkpoint, or of one whose sending or deleting was cut off."""
        folders = (name.removeprefix(f"{self._key}/").partition("/")[0] for name in self.files.sizes(self._key))
        return {int(step[1]) for step in map(checkpoint.NAME.fullmatch, folders) if step}

    def published(self, *, patience_seconds: float | None = None) -> dict[int, Published]:
        """All checkpoints of the run that were ever published, whether or not they are here."""
        found = {}
        folder = f"{self._key}/{PUBLISHED}"
        for name, size in self.files.sizes(folder, patience_seconds=patience_seconds).items():
            step = PUBLISHED_NAME.fullmatch(name.removeprefix(f"{self._key}/"))
            if step:
                content = self.files.read(name, size, patience_seconds=patience_seconds)
                found[int(step[1])] = Published.model_validate_json(content)
        return dict(sorted(found.items()))

    def index(self, step: int, size: int, *, patience_seconds: float | None = None) -> Index | None:
        """That of a complete checkpoint; None if it is damaged."""
        name = f"{self._folder(step)}/{INDEX}"
        content = self.files.read(name, size, patience_seconds=patience_seconds)
        try:
            found = Index.model_validate_json(content)
        except ValidationError:
            return None
        return found if found.step == step and found.signed().digest == found.digest else None

    def record(self, made: Published) -> None:
        """Put down what a checkpoint was published as. Raises Stopped."""
        content = made.model_dump_json(indent=1).encode()
        self.files.write(f"{self._key}/{PUBLISHED}/{checkpoint.step_name(made.step)}.json", content)

    def upload(self, folder: Path, sent: Callable[[int], None]) -> Index:
        """Send the checkpoint in `folder`, and the records of the run, less what an earlier attempt has sent.
        sent(bytes): called after each part that had to be sent. Raises Stopped, NotYet; CheckpointError if the files
        are not those that were saved.
        """
        state = checkpoint.read_state(folder)
        records = self._copy_of_records(state.step)
        recorded = json.loads((folder / checkpoint.CHECKSUMS).read_text(encoding="utf-8"))
        known = self._verified_parts(state.step)
        files = []
        for name in [*sorted(recorded), checkpoint.CHECKSUMS]:
            wanted = recorded[name]["sha256"] if name in recorded else sha256_file(folder / name)
            files.append(self._send(state.step, f"{CHECKPOINT}/{name}", folder / name, wanted, known, sent))
        for path in records:
            files.append(self._send(state.step, f"{RECORDS}/{path.name}", path, sha256_file(path), known, sent))
        index = Index(step=state.step, files=tuple(files)).signed()
        self.files.write(f"{self._folder(state.step)}/{INDEX}", index.model_dump_json(indent=1).encode())
        shutil.rmtree(self._progress / checkpoint.step_name(state.step))
        return index

    def tidy(self, done: Collection[int]) -> None:
        """Delete what is left of the progress of uploads that have come to their end."""
        for step in done:
            shutil.rmtree(self._progress / checkpoint.step_name(step), ignore_errors=True)

    def remove(self, step: int) -> None:
        """Delete a checkpoint, its index first. What it was published as stays known."""
        folder = self._folder(step)
        names = [name for name in self.files.sizes(folder) if name != f"{folder}/{INDEX}"]
        self.files.remove([f"{folder}/{INDEX}", *names])

    def restore(self, index: Index, *, patience_seconds: float) -> Path | None:
        """Bring a checkpoint into the run directory, under the name of an unfinished one and verified, and the records
        of the run unless those in the run directory go as far. Returns the folder; None if the copy on the store is
        damaged. Raises Unreachable.
        """
        for left in self._run.checkpoints.glob(f"*{FETCHED}"):  # by a kill
            shutil.rmtree(left)
        work = self._run.checkpoints / f"{checkpoint.step_name(index.step)}.tmp"
        shutil.rmtree(work, ignore_errors=True)
        fetched = work.with_name(f"{work.name}{FETCHED}")
        try:
            for file in index.files:
                if not self._fetch(index.step, file, fetched / file.file, patience_seconds):
                    return None
            (fetched / CHECKPOINT).rename(work)
            if checkpoint.problems(work):
                return None
            if len(read_lines(self._run.metrics)) < index.step:
                self._take_over(fetched / RECORDS)
            return work
        finally:
            shutil.rmtree(fetched, ignore_errors=True)

    def _take_over(self, records: Path) -> None:
        """Put records into the run directory, metrics last: they say that the others are there."""
        names = sorted(records.iterdir(), key=lambda path: path.name == self._run.metrics.name)
        for path in names:
            write_atomic(self._run.path / path.name, path.read_bytes())

    def _fetch(self, step: int, file: File, target: Path, patience_seconds: float) -> bool:
        """Whether the file is there, as it was sent."""
        target.parent.mkdir(parents=True, exist_ok=True)
        whole = hashlib.sha256()

        def content(part: Part) -> bytearray | None:
            for _ in range(READS):
                try:
                    name = f"{self._folder(step)}/{part.name}"
                    found = self.files.read(name, part.bytes, patience_seconds=patience_seconds)
                except FileNotFoundError:
                    return None
                if hashlib.sha256(found).hexdigest() == part.sha256:
                    return found
            return None

        with open(target, "wb") as out, ThreadPoolExecutor(PARTS_AT_ONCE) as pool:
            for start in range(0, len(file.parts), PARTS_AT_ONCE):
                for found in pool.map(content, file.parts[start : start + PARTS_AT_ONCE]):
                    if found is None:
                        return False
                    whole.update(found)
                    out.write(found)
            out.flush()
            os.fsync(out.fileno())
        fsync_directory(target.parent)
        return whole.hexdigest() == file.sha256

    def _verified_parts(self, step: int) -> dict[tuple[str, int], Part]:
        """(file, offset): part, of those that an earlier attempt has sent and that are there."""
        recorded = read_lines(self._progress / checkpoint.step_name(step) / PARTS)
        there = self.files.sizes(self._folder(step)) if recorded else {}
        parts = [Part.model_validate(line) for line in recorded]
        there_and_whole = [part for part in parts if there.get(f"{self._folder(step)}/{part.name}") == part.bytes]
        return {(part.file, part.offset): part for part in there_and_whole}

    def _send(
        self,
        step: int,
        name: str,
        path: Path,
        wanted: str,
        known: Mapping[tuple[str, int], Part],
        sent: Callable[[int], None],
    ) -> File:
        """Send one file, less those of its parts that are there. wanted: its sha256."""
        sizes = {offset: part.bytes for (file, offset), part in known.items() if file == name}
        whole, parts = hashlib.sha256(), []

        def put(offset: int, content: bytes) -> Part:
            part = Part(file=name, offset=offset, bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
            if part != known.get((name, offset)):
                self.files.write(f"{self._folder(step)}/{part.name}", content)
            return part

        with ThreadPoolExecutor(PARTS_AT_ONCE) as pool, open(path, "rb") as file:
            for slices in self._slices(file, sizes):
                if self.files.stop.is_set():  # what is there already asks the store for nothing
                    raise Stopped
                for _, content in slices:
                    whole.update(content)
                for part in pool.map(put, *zip(*slices, strict=True)):
                    parts.append(part)
                    if part != known.get((name, part.offset)):
                        _append(self._progress / checkpoint.step_name(step) / PARTS, part)
                        sent(part.bytes)
        if whole.hexdigest() != wanted:
            from stages.pretrain.checkpoints.restricted import CheckpointError

            raise CheckpointError(f"{path} has changed since it was written")
        return File(file=name, bytes=path.stat().st_size, sha256=wanted, parts=tuple(parts))

    def _slices(self, file: BinaryIO, sizes: Mapping[int, int]) -> Iterator[list[tuple[int, bytes]]]:
        """(offset, content) of the file from its begin to its end, some at a time. sizes: of the slices at offsets
        where it was cut before."""
        offset, slices = 0, []
        while content := file.read(sizes.get(offset, self.files.writing.bytes)):
            slices.append((offset, content))
            offset += len(content)
            if len(slices) == PARTS_AT_ONCE:
                yield slices
                slices = []
        if slices:
            yield slices

    def _copy_of_records(self, step: int) -> list[Path]:
        """The records of the run as they are now, or as they were when this upload began: the lines of the steps up to
        the checkpoint, and the rest as it is. Raises NotYet."""
        folder = self._progress / checkpoint.step_name(step) / RECORDS
        if not folder.exists():
            work = folder.with_name("records.tmp")
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir(parents=True)
            run = self._run
            for source in (run.metrics, run.timing):
                lines = _first_lines(source, step)
                if len(lines) < step:
                    raise NotYet(f"{source} does not reach step {step} yet")
                write_atomic(work / source.name, b"".join(lines))
            account = (run.path / ATTEMPTS, run.path / ALIVE)
            for source in (run.incidents, run.excluded, run.peak_memory, run.saves, *account):
                if source.exists():
                    write_atomic(work / source.name, source.read_bytes())
            work.rename(folder)
            fsync_directory(folder.parent)
        return sorted(folder.iterdir())

    def _folder(self, step: int) -> str:
        return f"{self._key}/{checkpoint.step_name(step)}"


def _first_lines(path: Path, count: int) -> list[bytes]:
    if not path.exists():
        return []
    with open(path, "rb") as file:
        return [line for line in islice(file, count) if line.endswith(b"\n")]


def _append(path: Path, part: Part) -> None:
    """Put down that a part is there, behind whatever a kill has cut off."""
    with open(path, "ab") as file:
        start = b"\n" if torn(path) else b""
        file.write(start + part.model_dump_json().encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())
