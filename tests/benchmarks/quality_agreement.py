"""How far the published quality presets decide as datatrove's filters do: `make bench-quality-agreement`.

    python -m tests.benchmarks.quality_agreement [--documents N]

Each filter of datatrove, with its defaults, and each preset judge the same English texts: of every corpus under
../shared/data, N drawn by the hash of their text. A figure is a share of the texts of all corpora: equal decisions, and
what either keeps. Texts of more than 900,000 characters are left out, which spaCy refuses, and those of fewer than 300:
of a sentence in which nothing repeats, datatrove takes the first n-gram for the most frequent one and drops it, which
we do not.
"""

import argparse
import hashlib
import json
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from data.quality.judgement import judge
from data.quality.rules import Preset, QualityRules
from tests.benchmarks.harness import report
from tests.benchmarks.peers.curation.environments import DATATROVE
from tests.benchmarks.peers.environments import python_of

PRESETS = (Preset.GOPHER_QUALITY, Preset.GOPHER_REPETITION, Preset.C4, Preset.FINEWEB)
SHARED = Path(__file__).parents[3] / "shared" / "data"
ENGLISH = ("en", "C")
LEAST_CHARACTERS, MOST_CHARACTERS = 300, 900_000


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """Shares of the texts of a corpus by one filter."""

    corpus: str
    preset: Preset
    texts: int
    equal: float
    kept_by_peer: float
    kept: float


def corpora(most: int) -> dict[str, list[str]]:
    """English texts by corpus, of each those with the smallest hashes."""
    found = {}
    for path in sorted(SHARED.rglob("*.parquet")):
        table = pq.read_table(path)
        if "lang" in table.column_names:
            table = table.filter(pc.is_in(table["lang"], pa.array(ENGLISH)))
        texts = [text for text in table["text"].to_pylist() if LEAST_CHARACTERS <= len(text) <= MOST_CHARACTERS]
        texts.sort(key=lambda text: hashlib.blake2b(text.encode(), digest_size=8).digest())
        if texts:
            found[path.stem] = texts[:most]
    return found


def peer_decisions(texts: list[str]) -> dict[str, np.ndarray]:
    """Which texts each filter keeps: bool[n]."""
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder, "texts.jsonl"), Path(folder, "decisions.json")
        source.write_text("".join(json.dumps(text) + "\n" for text in texts))
        peer = "tests.benchmarks.peers.curation.datatrove_decisions"
        subprocess.run([str(python_of(DATATROVE)), "-m", peer, str(source), str(out)], check=True)
        return {name: np.array(reasons) == "" for name, reasons in json.loads(out.read_text()).items()}


def compare(corpus: str, texts: list[str], decisions: dict[str, np.ndarray]) -> list[Agreement]:
    column = pa.array(texts, pa.large_string())
    found = []
    for preset in PRESETS:
        kept = judge(column, ["en"] * len(texts), QualityRules(presets=(preset,))).rule < 0
        peer = decisions[preset.value]
        shares = {"equal": np.mean(kept == peer), "kept_by_peer": peer.mean(), "kept": kept.mean()}
        found.append(
            Agreement(corpus=corpus, preset=preset, texts=len(texts), **{k: float(v) for k, v in shares.items()})
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--documents", type=int, default=500, help="texts of each corpus")
    texts = corpora(parser.parse_args().documents)
    decisions = peer_decisions([text for each in texts.values() for text in each])
    found, begin = [], 0
    for corpus, each in texts.items():
        window = {name: kept[begin : begin + len(each)] for name, kept in decisions.items()}
        found += compare(corpus, each, window)
        begin += len(each)
    rows = [[a.corpus, a.texts, a.preset.value, a.equal, a.kept_by_peer, a.kept] for a in found]
    figures = {}
    for preset in PRESETS:
        own = [a for a in found if a.preset is preset]
        weights = [a.texts for a in own]
        name = preset.value.replace("-", "_")
        for field in ("equal", "kept_by_peer", "kept"):
            figures[f"{name}_{field}"] = float(np.average([getattr(a, field) for a in own], weights=weights))
    headers = ["corpus", "texts", "preset", "equal decisions", "kept by datatrove", "kept"]
    report("quality-agreement", headers, rows, {"texts": begin, **figures}, ["numba", "pyarrow"])


if __name__ == "__main__":
    main()
