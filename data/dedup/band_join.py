"""Which documents share a key with which others, as tasks of documents that need to know nothing of other tasks.

1. Spill: groups of shards sort their keys by band and key range into one file each (map over groups).
2. Join: what has one key in one band and range is linked (map over bands and ranges, each of which reads one slice of
   each group's file).
3. Unite: linked documents form components; components, in the order of their first row, fill tasks (one pass over the
   links, in one process).

Nothing of it depends on how it was mapped. In memory stand eight bytes per document for the components and four for
the tasks, and per worker the keys of one group or of one range. Files are written under another name and renamed.
"""

import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from data.dedup.signatures import NUM_NGRAMS, DocumentShard, column_values, open_signatures
from data.shards.mapped_file import map_file

Run = Callable[[Callable[[Any], Any], Iterable[Any]], list[Any]]
Item = TypeVar("Item")
Result = TypeVar("Result")

GROUP_DOCUMENTS = (1 << 13, 1 << 20)
GROUPS = 64
RANGE_DOCUMENTS = 1 << 22
TASK_DOCUMENTS = (1 << 12, 1 << 17)
TASKS = 16

ALIVE, TASK, OFFSETS = "alive", "task", "offsets"


def in_turn(function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """The plainest way to map over shards."""
    return [function(item) for item in items]


@dataclass(frozen=True, kw_only=True)
class Group:
    """Shards that one worker goes through, and the row of their first document."""

    number: int
    first_row: int
    shards: tuple[DocumentShard, ...]

    @property
    def num_documents(self) -> int:
        return sum(shard.num_documents for shard in self.shards)


def make_groups(shards: Sequence[DocumentShard]) -> tuple[Group, ...]:
    """Consecutive shards; their number follows from the number of documents alone."""
    num_documents = sum(shard.num_documents for shard in shards)
    least, most = GROUP_DOCUMENTS
    enough = min(max(num_documents // GROUPS, least), most)
    groups: list[Group] = []
    chosen: list[DocumentShard] = []
    first_row = size = 0
    for number, shard in enumerate(shards, start=1):
        chosen.append(shard)
        size += shard.num_documents
        if size >= enough or number == len(shards):
            groups.append(Group(number=len(groups), first_row=first_row, shards=tuple(chosen)))
            first_row, size, chosen = first_row + size, 0, []
    return tuple(groups)


def hidden_name(path: Path) -> Path:
    """Where a file is written before it is renamed; no other attempt uses it."""
    return path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")


def save(path: Path, values: np.ndarray) -> None:
    """The bare values: the whole file or none of it."""
    hidden = hidden_name(path)
    values.tofile(hidden)
    hidden.replace(path)


def load(path: Path, dtype: type, begin: int = 0, end: int | None = None) -> np.ndarray:
    """Values `begin` to `end`, or to the last one."""
    count = -1 if end is None else end - begin
    return np.fromfile(path, dtype, count, offset=begin * np.dtype(dtype).itemsize)


def pick(path: Path, dtype: type, places: np.ndarray) -> np.ndarray:
    """The values at some places, without reading the others."""
    return map_file(path).view(dtype)[places]


@dataclass(frozen=True, kw_only=True)
class SpillKeys:
    """Writes the keys of a group; returns their number by band and range: int64[bands, ranges]."""

    folder: Path
    column: str
    num_bands: int
    num_ranges: int
    needs_ngrams: bool

    def __call__(self, group: Group) -> np.ndarray:
        from data.dedup.join_kernels import scatter_keys

        rows, keys, first = [], [], 0
        alive = load(self.folder / ALIVE, np.bool_, group.first_row, group.first_row + group.num_documents)
        for shard in group.shards:
            signatures = open_signatures(shard)
            chosen = alive[first : first + shard.num_documents]
            if self.needs_ngrams:
                chosen = chosen & (signatures.column(NUM_NGRAMS).to_numpy() > 0)
            rows.append(first + np.nonzero(chosen)[0])
            keys.append(column_values(signatures, self.column, np.uint64)[:, : self.num_bands])
            first += shard.num_documents
        local = np.concatenate(rows)
        counts = np.empty((self.num_bands, self.num_ranges), np.int64)
        out = np.empty((len(local) * self.num_bands, 2), np.uint64)
        shift = 64 - int(math.log2(self.num_ranges))
        scatter_keys(np.concatenate(keys), local, group.first_row, shift, counts, out)
        save(self.folder / f"keys-{group.number}", out)
        return counts


@dataclass(frozen=True, kw_only=True)
class LinkEqualKeys:
    """Writes pairs of rows, int64[m, 2]: of each key that several documents have, the first row and each other one."""

    folder: Path
    num_groups: int

    def __call__(self, slice_number: int) -> None:
        from data.dedup.join_kernels import link_equal_keys

        groups = self.num_groups
        begins, ends = load(
            self.folder / OFFSETS, np.int64, slice_number * groups, (slice_number + 2) * groups
        ).reshape(2, groups)
        entries = np.concatenate(
            [
                load(self.folder / f"keys-{group}", np.uint64, 2 * begin, 2 * end)
                for group, (begin, end) in enumerate(zip(begins.tolist(), ends.tolist(), strict=True))
            ]
        ).reshape(-1, 2)
        links = np.empty((len(entries), 2), np.int64)
        num_links = link_equal_keys(entries, links)
        save(self.folder / f"links-{slice_number}", links[:num_links])


def join(
    groups: Sequence[Group],
    alive: np.ndarray,
    *,
    column: str,
    num_bands: int,
    needs_ngrams: bool,
    folder: Path,
    run: Run,
) -> int:
    """Writes the task of each document, int32[n], -1 for one that shares no key, to `TASK` in the folder; returns the
    number of tasks.

    alive: bool[n], the rows that take part. column: of the signatures, of which the first num_bands keys are taken.
    needs_ngrams: documents without an n-gram take no part.
    """
    if not groups:
        return 0
    num_ranges = 1 << max(0, math.ceil(math.log2(max(1, len(alive)) / RANGE_DOCUMENTS)))
    save(folder / ALIVE, alive)
    spill = SpillKeys(
        folder=folder, column=column, num_bands=num_bands, num_ranges=num_ranges, needs_ngrams=needs_ngrams
    )
    counts = run(spill, groups)
    offsets = np.zeros((num_bands * num_ranges + 1, len(groups)), np.int64)
    for number, of_group in enumerate(counts):
        offsets[1:, number] = np.cumsum(of_group)
    save(folder / OFFSETS, offsets)
    slices = range(num_bands * num_ranges)
    run(LinkEqualKeys(folder=folder, num_groups=len(groups)), slices)
    task = components(len(alive), (folder / f"links-{number}" for number in slices))
    save(folder / TASK, task)
    return int(task.max(initial=-1)) + 1


def components(num_documents: int, links: Iterable[Path]) -> np.ndarray:
    """int32[n]: the task of each document, -1 for one that no link names."""
    from data.dedup.join_kernels import flatten, unite

    parent = np.arange(num_documents)
    for path in links:
        unite(parent, load(path, np.int64).reshape(-1, 2))
    flatten(parent)
    rows = np.arange(num_documents)
    linked = parent != rows
    linked[parent[linked]] = True
    rows = rows[linked]
    roots, component, sizes = np.unique(parent[rows], return_inverse=True, return_counts=True)
    least, most = TASK_DOCUMENTS
    enough = min(max(len(rows) // TASKS, least), most)
    number = (np.cumsum(sizes) - sizes) // enough
    _, dense = np.unique(number, return_inverse=True)
    task = np.full(num_documents, -1, np.int32)
    task[rows] = dense[component] if len(roots) else 0
    return task
