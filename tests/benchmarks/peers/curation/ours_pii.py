"""Ours: e-mail addresses, public IP addresses and, with LONGHAUL_PHONES=1, phone numbers, on a column in memory."""

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from data.pii.scrub import PiiKind, Scrubbed, scrub
from tests.benchmarks.peers.curation.measured import main, read_texts

PHONES = os.environ.get("LONGHAUL_PHONES") == "1"
KINDS = (PiiKind.EMAIL, PiiKind.IP, *((PiiKind.PHONE,) if PHONES else ()))


class OurPii:
    def prepare(self, folder: Path) -> pa.LargeStringArray:
        return read_texts(folder).combine_chunks()

    def run(self, prepared: pa.LargeStringArray, out: Path, scratch: Path) -> Scrubbed:
        return scrub(prepared, KINDS)

    def found(self, prepared: pa.LargeStringArray, result: Scrubbed, out: Path) -> dict[str, Any]:
        changed = pc.sum(pc.not_equal(prepared, result.texts)).as_py()
        return {"documents": len(prepared), "changed": int(changed or 0)}


if __name__ == "__main__":
    main(OurPii())
