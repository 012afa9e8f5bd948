"""Ours: the rules of Gopher quality, Gopher repetition, C4 and FineWeb together, on a column in memory."""

from pathlib import Path
from typing import Any

import pyarrow as pa

from data.quality.judgement import Verdict, judge
from data.quality.rules import Preset, QualityRules
from tests.benchmarks.peers.curation.measured import main, read_texts

RULES = QualityRules(presets=(Preset.GOPHER_QUALITY, Preset.GOPHER_REPETITION, Preset.C4, Preset.FINEWEB))


class OurQuality:
    def prepare(self, folder: Path) -> pa.LargeStringArray:
        return read_texts(folder).combine_chunks()

    def run(self, prepared: pa.LargeStringArray, out: Path, scratch: Path) -> Verdict:
        return judge(prepared, None, RULES)

    def found(self, prepared: pa.LargeStringArray, result: Verdict, out: Path) -> dict[str, Any]:
        return {"documents": len(prepared), "kept": int((result.rule < 0).sum())}


if __name__ == "__main__":
    main(OurQuality())
