"""The documents of one batch on their way through the steps of a pass: fewer and edited, with the record of both."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from data.reading.documents import Rejected
from data.reading.tables import text_buffers
from data.text.keys import hash_keys
from stages.curate import audit
from stages.curate.accounting import DROPPED, EDITED, READ, Step, summed, tally
from stages.curate.shard import COUNTS, DROPPED_FILE, ROWS_FILE, SAMPLES_FILE, SIGNATURES, TALLY_FILE, TEXTS
from stages.curate.tables import DOCUMENTS, SAMPLES
from stages.curate.tables import DROPPED as DROPPED_SCHEMA
from stages.curate.work import whole_folder, write_arrow


class Sieve:
    """documents: `tables.DOCUMENTS` of one domain. quality: float64[n], what survives among duplicates goes by it."""

    def __init__(self, source_number: int, domain: str, documents: pa.RecordBatch, quality: np.ndarray) -> None:
        self.source_number, self.domain = source_number, domain
        self.documents, self.quality = documents, quality
        self.counts: dict[str, Any] = {}
        self._dropped: list[pa.Table] = []
        self._samples: list[pa.Table] = []
        self._tallies: list[pa.Table] = []

    @property
    def texts(self) -> pa.LargeStringArray:
        return self.documents.column("text")

    @property
    def languages(self) -> pa.StringArray:
        return self.documents.column("language")

    @property
    def num_bytes(self) -> np.ndarray:
        """int64[n], of UTF-8 text."""
        return np.diff(text_buffers(self.texts)[1])

    def enter(self) -> None:
        """Account for the documents as read."""
        self._tally(Step.READ, READ, self.num_bytes)

    def reject(self, rejected: Sequence[Rejected]) -> None:
        """Account for records that never were documents, as read and as dropped."""
        by_domain: dict[str, list[Rejected]] = {}
        for record in rejected:
            by_domain.setdefault(record.domain, []).append(record)
        for domain, records in by_domain.items():
            sizes = np.array([record.num_bytes for record in records], np.int64)
            source = _strings(record.source for record in records)
            language = _strings("" for _ in records)
            reason = _strings(record.reason for record in records)
            common = {
                "source_number": self.source_number,
                "source": source,
                "domain": domain,
                "language": language,
                "num_bytes": sizes,
            }
            self._tallies.append(tally(**common, step=Step.READ, outcome=READ))
            self._tallies.append(tally(**common, step=Step.CLEAN, outcome=_prefixed(DROPPED, reason)))
            dropped = audit.dropped_table(
                ids=_strings(record.id for record in records),
                domain=domain,
                source=source,
                language=language,
                reason=reason,
                detail=_strings(record.detail for record in records),
                score=pa.nulls(len(records), pa.float64()),
                survivor=None,
                num_bytes=sizes,
            )
            self._dropped.append(dropped)
            self._samples.append(audit.sample(dropped))

    def drop(
        self,
        leaves: np.ndarray,
        step: Step,
        reason: Callable[[np.ndarray], pa.StringArray],
        *,
        detail: Callable[[np.ndarray], pa.StringArray],
        score: np.ndarray | None = None,
    ) -> None:
        """Let the rows of leaves (bool[n]) go. reason, detail: of the rows (int64) that they are called with. score:
        float64[n], what was measured."""
        if not leaves.any():
            return
        rows = np.nonzero(leaves)[0]
        gone = self.documents.select(["id", "source", "language"]).take(pa.array(rows))
        sizes, reasons = self.num_bytes[rows], reason(rows)
        dropped = audit.dropped_table(
            ids=gone.column("id"),
            domain=self.domain,
            source=gone.column("source"),
            language=gone.column("language"),
            reason=reasons,
            detail=detail(rows),
            score=pa.nulls(len(rows), pa.float64()) if score is None else score[rows],
            survivor=None,
            num_bytes=sizes,
        )
        self._dropped.append(dropped)
        self._samples.append(audit.sample(dropped, self.texts, rows))
        self._tallies.append(
            tally(
                source_number=self.source_number,
                source=gone.column("source"),
                domain=self.domain,
                language=gone.column("language"),
                step=step,
                outcome=_prefixed(DROPPED, reasons),
                num_bytes=sizes,
            )
        )
        self.documents = self.documents.filter(pa.array(~leaves))
        self.quality = self.quality[~leaves]

    def edit(self, texts: pa.LargeStringArray, what: str) -> None:
        """Put other texts in the place of the present ones."""
        if texts is self.texts or texts.equals(self.texts):
            return
        before = self.num_bytes
        at = self.documents.schema.get_field_index("text")
        columns = [texts if i == at else column for i, column in enumerate(self.documents.columns)]
        self.documents = pa.RecordBatch.from_arrays(columns, schema=DOCUMENTS)
        taken = before - self.num_bytes
        changed = np.nonzero(taken)[0]
        if len(changed):
            rows = pa.array(changed)
            self._tallies.append(
                tally(
                    source_number=self.source_number,
                    source=self.documents.column("source").take(rows),
                    domain=self.domain,
                    language=self.languages.take(rows),
                    step=Step.QUALITY,
                    outcome=EDITED + what,
                    num_bytes=taken[changed],
                    documents=0,
                )
            )

    def write(self, folder: Path, sign: Callable[[pa.LargeStringArray], pa.RecordBatch]) -> None:
        """The shard's folder, whole or not at all."""
        rows = pa.table(
            {
                "num_bytes": pa.array(self.num_bytes, pa.int64()),
                "quality": pa.array(self.quality, pa.float64()),
                "id_hash": pa.array(hash_keys(self.documents.column("id"))),
                "group_hash": pa.array(hash_keys(self.documents.column("group"))),
            }
        )
        counts = {"domain": self.domain, "source_number": self.source_number, "documents": self.documents.num_rows}
        with whole_folder(folder) as made:
            write_arrow(made / TEXTS, self.documents)
            write_arrow(made / ROWS_FILE, rows)
            write_arrow(made / SIGNATURES, sign(self.texts))
            write_arrow(made / DROPPED_FILE, pa.concat_tables([DROPPED_SCHEMA.empty_table(), *self._dropped]))
            write_arrow(made / SAMPLES_FILE, pa.concat_tables([SAMPLES.empty_table(), *self._samples]))
            write_arrow(made / TALLY_FILE, summed(self._tallies))
            (made / COUNTS).write_text(json.dumps(counts | self.counts))

    def _tally(self, step: Step, outcome: str, num_bytes: np.ndarray) -> None:
        self._tallies.append(
            tally(
                source_number=self.source_number,
                source=self.documents.column("source"),
                domain=self.domain,
                language=self.languages,
                step=step,
                outcome=outcome,
                num_bytes=num_bytes,
            )
        )


def _strings(values: Any) -> pa.StringArray:
    return pa.array(list(values), pa.string())


def _prefixed(prefix: str, strings: pa.StringArray) -> pa.StringArray:
    return pa.compute.binary_join_element_wise(prefix, strings, "")
