"""The documents of each task side by side: what stands in many shards is gathered into few files, ordered by task.

A group of shards becomes an Arrow file of its candidates (task, row, place, count, and what of their signatures is
compared) and a file of payloads. A payload is what is compared exactly: the set of a text's n-grams, or the text. A
task then reads one slice of each group's files. In memory stands one shard with its payloads.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from data.dedup.band_join import TASK, Group, hidden_name, load
from data.dedup.signatures import (
    BANDS,
    FINGERPRINT,
    NUM_BYTES,
    NUM_NGRAMS,
    SKETCH,
    column_values,
    open_signatures,
    texts_with,
)
from data.reading.tables import text_buffers
from data.shards.mapped_file import map_file, open_arrow_file

NO_NGRAMS = 0


@dataclass(frozen=True, kw_only=True)
class GatherCandidates:
    """Writes the candidates of a group; returns their number. ngram_words: NO_NGRAMS if texts are compared."""

    folder: Path
    ngram_words: int

    def __call__(self, group: Group) -> int:
        task = load(self.folder / TASK, np.int32, group.first_row, group.first_row + group.num_documents)
        columns = (BANDS, SKETCH) if self.ngram_words else (FINGERPRINT,)
        parts, first = [], 0
        for shard in group.shards:
            mine = np.nonzero(task[first : first + shard.num_documents] >= 0)[0]
            signatures = open_signatures(shard).take(pa.array(mine))
            if self.ngram_words:
                room = signatures.column(NUM_NGRAMS).to_numpy().astype(np.int64)
            else:
                room = (signatures.column(NUM_BYTES).to_numpy() + 7) // 8
            arrays = [pa.array(task[first + mine]), pa.array(group.first_row + first + mine), pa.array(room)]
            arrays += [signatures.column(name) for name in columns]
            parts.append(pa.RecordBatch.from_arrays(arrays, names=["task", "row", "room", *columns]))
            first += shard.num_documents
        candidates = pa.concat_batches(parts)
        order = np.lexsort((candidates["row"].to_numpy(), candidates["task"].to_numpy()))
        candidates = candidates.take(pa.array(order))
        rows, room = candidates["row"].to_numpy(), candidates["room"].to_numpy()
        places, counts = np.cumsum(room) - room, np.zeros(len(rows), np.int64)
        self._write_payloads(group, rows, places, room, counts)
        candidates = candidates.drop_columns("room").append_column("place", pa.array(places))
        candidates = candidates.append_column("count", pa.array(counts))
        path = self.folder / f"candidates-{group.number}.arrow"
        hidden = hidden_name(path)
        with pa.OSFile(str(hidden), "wb") as file, pa.ipc.new_file(file, candidates.schema) as writer:
            writer.write_batch(candidates)
        hidden.replace(path)
        return len(rows)

    def _write_payloads(
        self, group: Group, rows: np.ndarray, places: np.ndarray, room: np.ndarray, counts: np.ndarray
    ) -> None:
        """Payload by payload at its place; sets the counts of their elements."""
        path = self.folder / f"payloads-{group.number}"
        hidden = hidden_name(path)
        with hidden.open("wb", buffering=0) as file:
            file.truncate(8 * int(room.sum()))
            first = group.first_row
            for shard in group.shards:
                wanted = np.zeros(shard.num_documents, bool)
                wanted[rows[(rows >= first) & (rows < first + shard.num_documents)] - first] = True
                for begin, texts in texts_with(shard, wanted):
                    begin += first
                    chosen = np.nonzero((rows >= begin) & (rows < begin + len(texts)))[0]
                    payloads, inside = self._payloads(texts, rows[chosen] - begin, room[chosen], counts, chosen)
                    _write_runs(file.fileno(), payloads, inside, places[chosen], room[chosen])
                first += shard.num_documents
        hidden.replace(path)

    def _payloads(
        self, texts: pa.LargeStringArray, rows: np.ndarray, room: np.ndarray, counts: np.ndarray, chosen: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """(uint64 payloads one after another, int64 place of each among them)."""
        from data.dedup.dedup_kernels import ANOTHER_TEXT, write_gram_sets, write_single_spaced

        inside, found = np.cumsum(room) - room, np.empty(len(rows), np.int64)
        payloads = np.empty(int(room.sum()), np.uint64)
        if self.ngram_words:
            write_gram_sets(*text_buffers(texts), rows, self.ngram_words, payloads, inside, room, found)
        else:
            write_single_spaced(*text_buffers(texts), rows, payloads.view(np.uint8), inside, room, found)
        assert (found != ANOTHER_TEXT).all(), "these are not the texts that were signed"
        counts[chosen] = found
        return payloads, inside


@dataclass(frozen=True)
class Candidates:
    """The documents of one task. rows: int64[c]. addresses: uint64[c] of their payloads, which stay in place as long
    as this does. counts: int64[c] of their elements. columns: of the signatures, as arrays of two dimensions."""

    rows: np.ndarray
    addresses: np.ndarray
    counts: np.ndarray
    columns: dict[str, np.ndarray]
    payloads: list[np.ndarray]

    def sorted_by(self, *keys: np.ndarray) -> "Candidates":
        """By the last key, then the one before it, as np.lexsort has it."""
        order = np.lexsort(keys)
        columns = {name: values[order] for name, values in self.columns.items()}
        return Candidates(self.rows[order], self.addresses[order], self.counts[order], columns, self.payloads)


def read_candidates(folder: Path, num_groups: int, task: int, columns: dict[str, type]) -> Candidates:
    """columns: those of the signatures that are wanted, with the dtype of their values."""
    rows, addresses, counts, payloads = [], [], [], []
    found: dict[str, list[np.ndarray]] = {name: [] for name in columns}
    for group in range(num_groups):
        batch = _of_task(folder / f"candidates-{group}.arrow", task)
        if not batch.num_rows:
            continue
        payload = _mapped(folder / f"payloads-{group}")
        payloads.append(payload)
        rows.append(batch.column("row").to_numpy())
        addresses.append(np.uint64(payload.ctypes.data) + 8 * batch.column("place").to_numpy().astype(np.uint64))
        counts.append(batch.column("count").to_numpy())
        for name, dtype in columns.items():
            found[name].append(column_values(batch, name, dtype))
    return Candidates(
        np.concatenate(rows),
        np.concatenate(addresses),
        np.concatenate(counts),
        {name: np.concatenate(parts) for name, parts in found.items()},
        payloads,
    )


def _of_task(path: Path, task: int) -> pa.RecordBatch:
    """The candidates of a task, memory-mapped: no others are read, but for those that a search by halves looks at."""
    batch = open_arrow_file(path).get_batch(0)
    # Both of one type, or all would be converted first.
    begin, end = np.searchsorted(batch.column("task").to_numpy(), np.array([task, task + 1], np.int32)).tolist()
    return batch.slice(begin, end - begin)


def _mapped(path: Path) -> np.ndarray:
    """uint64 values of a file, memory-mapped; one 0 of an empty one, which cannot be."""
    return map_file(path).view(np.uint64) if path.stat().st_size else np.zeros(1, np.uint64)


def _write_runs(
    descriptor: int, payloads: np.ndarray, inside: np.ndarray, places: np.ndarray, room: np.ndarray
) -> None:
    """Writes payloads that are neighbours both here and in the file at once."""
    if not len(places):
        return
    breaks = np.nonzero(places[1:] != places[:-1] + room[:-1])[0] + 1
    data = payloads.view(np.uint8).data
    for begin, end in zip([0, *breaks], [*breaks, len(places)], strict=True):
        run = data[8 * inside[begin] : 8 * (inside[end - 1] + room[end - 1])]
        offset = 8 * int(places[begin])
        while run:
            written = os.pwrite(descriptor, run, offset)
            run, offset = run[written:], offset + written
