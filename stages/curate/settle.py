"""The record of what became of a shard's documents once all documents had been compared."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stages.curate import audit
from stages.curate.accounting import DROPPED, Step, summed, tally
from stages.curate.artifact import HELDOUT, TRAIN
from stages.curate.corpus import Corpus, Directory
from stages.curate.shard import DROPPED_FILE, SAMPLES_FILE, TALLY_FILE, Shard, column
from stages.curate.work import read_arrow, whole_folder, write_arrow

EXACT, NEAR = "exact duplicate of ", "near duplicate of "


@dataclass(frozen=True, kw_only=True)
class Fates:
    """What became of each document of a shard. place: of its first document in the directory. fate: uint8[n], 0 for
    what is kept, else one more than a place in `reasons`. score: float64[n]. survivor: int64[n], a place in the
    directory, or -1. overlap: what decontamination found in the shard, if it looked (`overlap.FOUND`)."""

    shard: Shard
    place: int
    heldout: np.ndarray
    reasons: tuple[str, ...]
    fate: np.ndarray
    score: np.ndarray
    survivor: np.ndarray
    overlap: Path | None


def fates(corpus: Corpus, overlaps: Sequence[Path]) -> list[Fates]:
    """The fates of all own documents. overlaps: files of what decontamination found."""
    by_name = {path.stem: path for path in overlaps}
    return [
        Fates(
            shard=shard,
            place=corpus.num_known + int(corpus.first[number]),
            heldout=corpus.heldout[corpus.rows_of(number)],
            reasons=tuple(corpus.fates),
            fate=corpus.fate[corpus.rows_of(number)],
            score=corpus.score[corpus.rows_of(number)],
            survivor=corpus.survivor[corpus.rows_of(number)],
            overlap=by_name.get(shard.name),
        )
        for number, shard in enumerate(corpus.shards)
    ]


@dataclass(frozen=True, kw_only=True)
class Settle:
    """Writes the tally, the dropped documents and their samples of a shard into a folder of its own in `out`."""

    directory: Directory
    out: Path

    def __call__(self, fates: Fates) -> Path:
        folder = self.out / fates.shard.name
        if not folder.exists():
            with whole_folder(folder) as made:
                self._write(fates, made)
        return folder

    def _write(self, fates: Fates, folder: Path) -> None:
        shard = fates.shard
        documents = shard.documents()
        (num_bytes,) = shard.rows("num_bytes")
        tallies = []
        for side, chosen in ((TRAIN, ~fates.heldout), (HELDOUT, fates.heldout)):
            rows = np.flatnonzero(chosen & (fates.fate == 0))
            if len(rows):
                tallies.append(_tally(shard, documents, rows, num_bytes, Step.KEPT, side))
        rows = np.flatnonzero(fates.fate)
        gone = documents.select(["source", "language"]).take(pa.array(rows))
        reasons = pa.array(fates.reasons, pa.string()).take(pa.array(fates.fate[rows].astype(np.int64) - 1))
        for number, reason in enumerate(fates.reasons):
            mine = np.flatnonzero(fates.fate == number + 1)
            if len(mine):
                tallies.append(_tally(shard, documents, mine, num_bytes, step_of(reason), DROPPED + reason))
        detail, repeated = _overlaps(fates.overlap, rows)
        dropped = audit.dropped_table(
            ids=self.directory.names(fates.place + rows),
            domain=shard.domain,
            source=column(gone, "source"),
            language=column(gone, "language"),
            reason=reasons,
            detail=detail,
            score=fates.score[rows],
            survivor=pc.coalesce(self._survivors(fates.survivor[rows]), repeated),
            num_bytes=num_bytes[rows],
        )
        write_arrow(folder / DROPPED_FILE, dropped)
        write_arrow(folder / SAMPLES_FILE, audit.sample(dropped, column(documents, "text"), rows))
        write_arrow(folder / TALLY_FILE, summed(tallies))

    def _survivors(self, places: np.ndarray) -> pa.StringArray:
        """The names of what documents repeat; null where there is no place in the directory."""
        known = places >= 0
        names = self.directory.names(places[known])
        return names.take(pa.array(np.cumsum(known) - 1, mask=~known))


def _overlaps(path: Path | None, rows: np.ndarray) -> tuple[pa.StringArray, pa.StringArray]:
    """What decontamination tells of rows: the detail, else "", and what they repeat, else null."""
    if path is None:
        return pa.repeat(pa.scalar("", pa.string()), len(rows)), pa.nulls(len(rows), pa.string())
    table = read_arrow(path)
    at = pc.index_in(pa.array(rows), column(table, "row"))
    return pc.coalesce(column(table, "detail").take(at), ""), column(table, "survivor").take(at)


def step_of(reason: str) -> Step:
    """The step of the funnel at which a reason takes documents away."""
    return Step.EXACT if reason.startswith(EXACT) else Step.NEAR if reason.startswith(NEAR) else Step.DECONTAMINATION


def _tally(
    shard: Shard, documents: pa.Table, rows: np.ndarray, num_bytes: np.ndarray, step: Step, outcome: str
) -> pa.Table:
    chosen = documents.select(["source", "language"]).take(pa.array(rows))
    return tally(
        source_number=shard.source_number,
        source=column(chosen, "source"),
        domain=shard.domain,
        language=column(chosen, "language"),
        step=step,
        outcome=outcome,
        num_bytes=num_bytes[rows],
    )
