"""What became of every record: the tally that each step adds to, and what is asserted and told of it at the end.

A tally has one row for each (source, domain, language, step, outcome) with its documents and bytes. Outcomes are
"read", "train", "heldout", "dropped: REASON" and "edited: WHAT"; an edit has no documents, only the bytes that it took
away. For every source file and domain: read = train + heldout + dropped + edited, in documents and bytes.
"""

from collections.abc import Callable, Iterable
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from stages.curate.artifact import HELDOUT, TRAIN
from stages.curate.tables import ACCOUNTING, COMPRESSION, TALLY, few_at_a_time

READ = "read"
DROPPED, EDITED = "dropped: ", "edited: "


class Step(IntEnum):
    """The steps of the funnel, in their order; KEPT is behind them all."""

    READ = 0
    CLEAN = 1
    LANGUAGE = 2
    QUALITY = 3
    EXACT = 4
    NEAR = 5
    DECONTAMINATION = 6
    KEPT = 7


FUNNEL = ("read", "clean", "language", "quality", "exact duplicates", "near duplicates", "decontamination")


def tally(
    *,
    source_number: int,
    source: pa.Array,
    domain: str | pa.Array,
    language: pa.Array,
    step: Step,
    outcome: str | pa.Array,
    num_bytes: np.ndarray,
    documents: int = 1,
) -> pa.Table:
    """One row of `tables.TALLY` for each record, to be summed. source, language, outcome: of each record; num_bytes:
    int64[n] of each. documents: 0 for edits."""
    n = len(source)
    columns = {
        "source_number": _repeated(source_number, n, pa.int32()),
        "source": source,
        "domain": _repeated(domain, n, pa.string()),
        "language": language,
        "step": _repeated(int(step), n, pa.int8()),
        "outcome": _repeated(outcome, n, pa.string()),
        "documents": _repeated(documents, n, pa.int64()),
        "bytes": pa.array(num_bytes, pa.int64()),
    }
    return pa.table(columns, schema=TALLY)


def summed(tables: Iterable[pa.Table]) -> pa.Table:
    """Tallies as one, in a fixed order of rows."""
    keys = ["source_number", "source", "domain", "language", "step", "outcome"]
    every = pa.concat_tables([TALLY.empty_table(), *tables])
    found = every.group_by(keys, use_threads=False).aggregate([("documents", "sum"), ("bytes", "sum")])
    found = found.rename_columns({"documents_sum": "documents", "bytes_sum": "bytes"}).select(TALLY.names).cast(TALLY)
    return found.sort_by([(key, "ascending") for key in keys])


def _repeated(value: Any, n: int, kind: pa.DataType) -> pa.Array:
    return value if isinstance(value, pa.Array) else pa.repeat(pa.scalar(value, kind), n)


class Accounts:
    """The tally of a whole run."""

    def __init__(self, tables: Iterable[pa.Table]) -> None:
        self.table = summed(summed(some) for some in few_at_a_time(tables))

    def assert_conservation(self) -> None:
        """read = train + heldout + dropped + edited for each source and domain."""
        sign = pc.if_else(pc.equal(self.table["outcome"], READ), 1, -1)
        balanced = pa.table(
            {
                "source_number": self.table["source_number"],
                "source": self.table["source"],
                "domain": self.table["domain"],
                "documents": pc.multiply(sign, self.table["documents"]),
                "bytes": pc.multiply(sign, self.table["bytes"]),
            }
        )
        left = balanced.group_by(["source_number", "source", "domain"], use_threads=False).aggregate(
            [("documents", "sum"), ("bytes", "sum")]
        )
        wrong = left.filter(pc.or_(pc.not_equal(left["documents_sum"], 0), pc.not_equal(left["bytes_sum"], 0)))
        assert wrong.num_rows == 0, wrong.slice(0, 5).to_pylist()

    def by(self, name: str) -> dict[Any, "Counts"]:
        """The counts of each value of a column (domain, language, source_number), in the order of the values."""
        totals = self.table.group_by([name, "step", "outcome"], use_threads=False)
        rows = totals.aggregate([("documents", "sum"), ("bytes", "sum")]).to_pylist()
        found: dict[Any, Counts] = {value: Counts() for value in sorted({row[name] for row in rows})}
        for row in rows:
            found[row[name]].add(row["outcome"], row["step"], row["documents_sum"], row["bytes_sum"])
        return found

    def write(self, path: Path) -> None:
        """accounting.parquet: `tables.ACCOUNTING`."""
        keys = ["source", "domain", "outcome"]
        found = self.table.group_by(keys, use_threads=False).aggregate([("documents", "sum"), ("bytes", "sum")])
        found = found.rename_columns({"documents_sum": "documents", "bytes_sum": "bytes"}).select(ACCOUNTING.names)
        pq.write_table(
            found.cast(ACCOUNTING).sort_by([(key, "ascending") for key in keys]), path, compression=COMPRESSION
        )


class Counts:
    """Documents and bytes of one domain, language or source."""

    def __init__(self) -> None:
        self.outcomes: dict[str, list[int]] = {}
        self.lost_at: dict[int, list[int]] = {}
        self.rows: list[tuple[str, int, int, int]] = []

    def add(self, outcome: str, step: int, documents: int, num_bytes: int) -> None:
        self.rows.append((outcome, step, documents, num_bytes))
        entry = self.outcomes.setdefault(outcome, [0, 0])
        entry[0] += documents
        entry[1] += num_bytes
        if outcome.startswith((DROPPED, EDITED)):
            lost = self.lost_at.setdefault(step, [0, 0])
            lost[0] += documents
            lost[1] += num_bytes

    def include(self, other: "Counts") -> None:
        """Add the counts of another."""
        for outcome, step, documents, num_bytes in other.rows:
            self.add(outcome, step, documents, num_bytes)

    def of(self, outcome: str) -> tuple[int, int]:
        documents, num_bytes = self.outcomes.get(outcome, (0, 0))
        return documents, num_bytes

    def dropped(self) -> dict[str, dict[str, int]]:
        """Reason -> documents and bytes."""
        return {
            outcome.removeprefix(DROPPED): {"documents": documents, "bytes": num_bytes}
            for outcome, (documents, num_bytes) in sorted(self.outcomes.items())
            if outcome.startswith(DROPPED)
        }

    def edited(self) -> dict[str, int]:
        """What was edited -> the bytes that it took away."""
        return {
            outcome.removeprefix(EDITED): num_bytes
            for outcome, (_, num_bytes) in sorted(self.outcomes.items())
            if outcome.startswith(EDITED)
        }

    def funnel(self) -> list[list[int]]:
        """[documents, bytes] left after each step of FUNNEL."""
        left = list(self.of(READ))
        found = [list(left)]
        for step in range(Step.CLEAN, Step.KEPT):
            lost = self.lost_at.get(step, [0, 0])
            left = [left[0] - lost[0], left[1] - lost[1]]
            found.append(list(left))
        return found

    def biggest_reason(self, counted: Callable[[str], bool] = lambda reason: True) -> str:
        """How many were dropped for reasons that are counted and what took most bytes of them, and which edit took more
        than that, for a message."""
        reasons = {reason: entry for reason, entry in self.dropped().items() if counted(reason)}
        edits = self.edited()
        told, biggest = "none dropped", 0
        if reasons:
            reason = min(reasons, key=lambda name: (-reasons[name]["bytes"], -reasons[name]["documents"], name))
            total = sum(entry["documents"] for entry in reasons.values())
            documents, biggest = reasons[reason]["documents"], reasons[reason]["bytes"]
            told = f"{total} dropped, most bytes as {reason!r} ({documents} documents, {biggest} bytes)"
        what = max(edits, key=lambda name: (edits[name], name), default="")
        if edits.get(what, 0) > biggest:
            told += f", and {edits[what]} bytes edited away as {what!r}"
        return told


def domain_facts(counts: Counts) -> dict[str, Any]:
    (documents_in, bytes_in), train, heldout = counts.of(READ), counts.of(TRAIN), counts.of(HELDOUT)
    return {
        "documents_in": documents_in,
        "bytes_in": bytes_in,
        "train_documents": train[0],
        "train_bytes": train[1],
        "heldout_documents": heldout[0],
        "heldout_bytes": heldout[1],
        "dropped": counts.dropped(),
        "edited": counts.edited(),
    }


def language_facts(counts: Counts) -> dict[str, Any]:
    (documents_in, bytes_in), train, heldout = counts.of(READ), counts.of(TRAIN), counts.of(HELDOUT)
    return {
        "documents_in": documents_in,
        "bytes_in": bytes_in,
        "kept_documents": train[0] + heldout[0],
        "kept_bytes": train[1] + heldout[1],
        "dropped": counts.dropped(),
    }
