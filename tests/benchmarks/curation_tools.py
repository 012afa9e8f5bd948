"""The tools that `make bench-curate` runs, each in a process of its own: what they are set to and what they report."""

import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tests.benchmarks.curation_corpora import Corpus
from tests.benchmarks.harness import Cost, Paired, interleave, measure
from tests.benchmarks.peers.curation.environments import DATATROVE, FASTTEXT, POLARS, RENSA
from tests.benchmarks.peers.environments import Peer, python_of

LEAST_SECONDS = 1.0  # of CPU: a task that is quicker than that is done again and again, as one run
ONE_THREAD = {"POLARS_MAX_THREADS": "1", "RAYON_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A module of peers/curation and how to run it. peer: None for ours."""

    module: str
    title: str
    settings: str
    peer: Peer | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    least_seconds: float = LEAST_SECONDS


OUR_DEDUP = Tool(module="ours_dedup", title="longhaul", settings="bands from the wanted recall", least_seconds=0)
OUR_QUALITY = Tool(module="ours_quality", title="longhaul", settings="Gopher, C4, FineWeb together")
OUR_PII = Tool(module="ours_pii", title="longhaul", settings="e-mail, public IP")
OUR_PHONES = Tool(
    module="ours_pii", title="longhaul", settings="e-mail, public IP, phone", environment={"LONGHAUL_PHONES": "1"}
)
OUR_LANGUAGE = Tool(module="ours_language", title="longhaul", settings="lid.176.ftz, 1,000 characters")
NEAR_DEDUP, QUALITY, PII, LANGUAGE = "near duplicates", "quality", "personal data", "language"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """figure: the name of the ratio."""

    task: str
    figure: str
    ours: Tool
    peer: Tool


COMPARISONS = (
    Comparison(
        task=NEAR_DEDUP,
        figure="near_dedup_ratio_datatrove",
        ours=OUR_DEDUP,
        peer=Tool(module="datatrove_dedup", title="datatrove", settings="14 x 8", peer=DATATROVE, least_seconds=0),
    ),
    Comparison(
        task=NEAR_DEDUP,
        figure="near_dedup_ratio_rensa",
        ours=OUR_DEDUP,
        peer=Tool(
            module="rensa_dedup", title="rensa", settings="14 x 8, 5-grams in Python", peer=RENSA, least_seconds=0
        ),
    ),
    Comparison(
        task=QUALITY,
        figure="quality_ratio_datatrove",
        ours=OUR_QUALITY,
        peer=Tool(module="datatrove_quality", title="datatrove", settings="four filters", peer=DATATROVE),
    ),
    Comparison(
        task=PII,
        figure="pii_ratio_datatrove",
        ours=OUR_PII,
        peer=Tool(module="datatrove_pii", title="datatrove", settings="e-mail, public IP", peer=DATATROVE),
    ),
    Comparison(
        task=PII,
        figure="pii_ratio_polars",
        ours=OUR_PHONES,
        peer=Tool(module="polars_pii", title="polars", settings="e-mail, IP, phone", peer=POLARS),
    ),
    Comparison(
        task=LANGUAGE,
        figure="language_ratio_fasttext",
        ours=OUR_LANGUAGE,
        peer=Tool(
            module="fasttext_language", title="fastText", settings="lid.176.ftz, 1,000 characters", peer=FASTTEXT
        ),
    ),
)


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a tool's process reported; see peers/curation/measured.py."""

    corpus: Corpus
    found: dict[str, Any]

    def cost(self) -> Cost:
        """Of a document."""
        documents = self.corpus.documents
        return Cost(self.found["wall_seconds"] / documents, self.found["cpu_seconds"] / documents)

    @property
    def rate(self) -> float:
        return 1 / self.cost().cpu_seconds


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Runs tools. few: the corpus of the warm-up."""

    folder: Path
    few: Corpus

    def run(self, tool: Tool, corpus: Corpus, environment: Mapping[str, str] | None = None) -> Run:
        python = python_of(tool.peer) if tool.peer else Path(sys.executable)
        result = self.folder / "report.json"
        command = [str(python), "-m", f"tests.benchmarks.peers.curation.{tool.module}"]
        command += ["--input", str(corpus.folder), "--few", str(self.few.folder), "--work", str(self.folder / "work")]
        command += ["--report", str(result), "--least-seconds", str(tool.least_seconds)]
        measure(command, environment=ONE_THREAD | dict(tool.environment) | dict(environment or {}))
        return Run(corpus=corpus, found=json.loads(result.read_text()))

    def pairs(self, ours: Tool, peer: Tool, corpus: Corpus, pairs: int) -> tuple[list[Run], list[Run]]:
        """Runs of both by turns."""
        runs: tuple[list[Run], list[Run]] = ([], [])

        def one(side: int, tool: Tool) -> Cost:
            runs[side].append(self.run(tool, corpus))
            return runs[side][-1].cost()

        interleave(partial(one, 0, ours), partial(one, 1, peer), pairs=pairs, warm_up=False)
        print(f"{peer.module}: {ratio(*runs)}", flush=True)
        return runs


def ratio(ours: Sequence[Run], theirs: Sequence[Run]) -> dict[str, float]:
    """How many times our CPU-seconds theirs are, pair by pair."""
    return Paired(tuple(run.cost() for run in ours), tuple(run.cost() for run in theirs)).ratio("cpu_seconds")


def spread(values: Sequence[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "low": min(values), "high": max(values)}
