"""`make bench-curate`: near duplicates, quality rules, personal data, languages, on one core, against what others use.

Every run is a process of its own, after a warm-up in it; what of its time counts is said in peers/curation/measured.py,
what the tools are set to in their modules there, and what stands in the texts in curation_corpora.py. Runs of ours
alternate with those of one peer at a time, on the same documents. Numba's compiled kernels are in its cache on disk.

Duplicates are looked for from Parquet files to Parquet files of what is kept, on the documents of
../shared/data/near_duplicates where they are present, else on --documents generated ones. Ours also works on --many
generated ones alone, on one core, and at last on one and on two threads with all cores (`two_threads_speedup`, of wall
time: on a machine whose cores are shared, `two_processes_speedup` is all that there is to gain). What recall and
precision are is said in clustering_score.py: the figures are of what our search finds, the column of the table is of
what each tool keeps. The other tasks are done on --filtered documents.
"""

import argparse
import os
import statistics
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tests.benchmarks.clustering_score import Score, recall, score
from tests.benchmarks.curation_corpora import Corpus, duplicates, part, write_near_duplicates, write_planted
from tests.benchmarks.curation_tools import (
    COMPARISONS,
    LANGUAGE,
    NEAR_DEDUP,
    OUR_DEDUP,
    Bench,
    Run,
    Tool,
    ratio,
    spread,
)
from tests.benchmarks.harness import Cost, Paired, report
from tests.benchmarks.near_duplicate_text import SOURCE_BYTES, read_texts, sentences
from tests.benchmarks.peers.environments import BENCH, python_of

NUM_FEW_PAIRS = 20
QUICK = {"documents": 400, "many": 800, "filtered": 100, "source_bytes": 0}
PACKAGES = ("numba", "numpy", "pyarrow")
HEADERS = (
    *("task", "tool", "version", "settings", "documents", "CPU s", "documents per CPU s", "MB per CPU s"),
    *("CPU per document to ours", "peak MiB", "kept or changed", "recall at 0.8 of removal"),
)


def clustering(run: Run) -> Score:
    """Of what our search found: documents that a chain of pairs leads to, each similar enough or equal."""
    clusters = {document: document for document in read_texts(run.corpus.folder)}

    def root(document: str) -> str:
        while clusters[document] != document:
            document = clusters[document]
        return document

    for document, other in [*run.found["clusters"].items(), *run.found["survivors"].items()]:
        clusters[root(document)] = root(other)
    roots = {document: root(document) for document in clusters}
    return score(roots, run.corpus.truth(), partial(read_texts, run.corpus.folder))


def scored(bench: Bench, corpus: Corpus, prefix: str) -> tuple[list[Any], dict[str, float]]:
    """A line of the table, and figures whose names begin with `prefix`."""
    run = bench.run(OUR_DEDUP, corpus, {"LONGHAUL_CLUSTERS": "1"})
    found = clustering(run)
    print(f"{corpus.name}: {found}", flush=True)
    figures = {
        "recall_at_0.8": found.recall_high,
        "precision_at_0.8": found.precision_high,
        "precision_at_0.7": found.precision_low,
        "recall_exact": found.recall_exact,
        "recall_white_space": found.recall_spaces,
        "largest_cluster": found.largest,
        "recall_at_0.8_of_removal": recall(run.found["kept"], corpus.truth(), 0.8),
    }
    return row(NEAR_DEDUP, OUR_DEDUP, [run], 1.0), {f"{prefix}{name}": value for name, value in figures.items()}


def alike(ours: Run, theirs: Run) -> float:
    """Share of documents that get the same language from both; where ours is not sure enough counts as well."""
    pairs = list(zip(ours.found["labels"], theirs.found["labels"], strict=True))
    return sum(left == right for left, right in pairs) / len(pairs)


def row(task: str, tool: Tool, runs: Sequence[Run], to_ours: float) -> list[Any]:
    """A line of the table, with medians of the runs."""
    truth = runs[0].corpus.truth() if task == NEAR_DEDUP else ()
    rate = statistics.median(run.rate for run in runs)
    corpus, found = runs[0].corpus, runs[0].found
    outcome = found.get("kept", found.get("changed", ""))
    megabytes = rate * corpus.num_bytes / corpus.documents / 1e6
    return [
        *(task, tool.title, tool.peer.version if tool.peer else "", tool.settings, corpus.documents),
        *(corpus.documents / rate, rate, megabytes, to_ours, max(run.found["peak_mib"] for run in runs)),
        len(outcome) if isinstance(outcome, list) else outcome,
        recall(outcome, truth, 0.8) if truth else "",
    ]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=12_000, help="generated, where near_duplicates is absent")
    parser.add_argument("--generated", action="store_true", help="compare on generated documents in any case")
    parser.add_argument("--many", type=int, default=100_000, help="generated, for ours alone")
    parser.add_argument("--filtered", type=int, default=1000)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--source-bytes", type=int, default=SOURCE_BYTES, help="source whose docstrings are read")
    parser.add_argument("--quick", action="store_true", help="tiny texts, no peers, nothing recorded")
    arguments = parser.parse_args(argv)
    if arguments.quick:
        vars(arguments).update(QUICK)
    everywhere = os.sched_getaffinity(0)
    BENCH.mkdir(exist_ok=True)
    if not arguments.quick:
        for comparison in COMPARISONS:
            assert comparison.peer.peer is not None
            python_of(comparison.peer.peer)
    with tempfile.TemporaryDirectory(dir=BENCH, prefix="curate-") as name:
        folder = Path(name).resolve()
        pool = sentences(arguments.source_bytes)
        planted = write_planted(folder / "planted", pool, arguments.documents)
        many = write_planted(folder / "many", pool, arguments.many)
        real = None if arguments.quick or arguments.generated else write_near_duplicates(folder / "near_duplicates")
        compared = real or planted
        filtered = part(compared, folder / "filtered", arguments.filtered)
        bench = Bench(folder=folder, few=duplicates(compared, folder / "few", NUM_FEW_PAIRS))
        os.sched_setaffinity(0, {max(everywhere)})  # inherited: one core for every run
        try:
            rows, figures = alone(bench, many, 1 if arguments.quick else arguments.pairs)
            for corpus, prefix in ((compared, ""), *([(planted, "planted_")] if real else [])):
                line, some = scored(bench, corpus, prefix)
                rows.append(line)
                figures |= some
            if not arguments.quick:
                for comparison in COMPARISONS:
                    corpus = compared if comparison.task == NEAR_DEDUP else filtered
                    ours, theirs = bench.pairs(comparison.ours, comparison.peer, corpus, arguments.pairs)
                    figures[comparison.figure] = ratio(ours, theirs)
                    to_ours = figures[comparison.figure]["median"]
                    rows.append(row(comparison.task, comparison.ours, ours, 1.0))
                    rows.append(row(comparison.task, comparison.peer, theirs, to_ours))
                    if comparison.task == LANGUAGE:
                        figures["same_language_as_fasttext"] = alike(ours[0], theirs[0])
                os.sched_setaffinity(0, everywhere)
                figures |= on_two_cores(bench, many, arguments.pairs)
        finally:
            os.sched_setaffinity(0, everywhere)
    figures |= {"compared_corpus": compared.name, "text_bytes": many.num_bytes}
    report("curate", HEADERS, rows, figures, PACKAGES, keep=not arguments.quick)


def alone(bench: Bench, many: Corpus, runs: int) -> tuple[list[list[Any]], dict[str, Any]]:
    """Our near duplicates among many documents: lines of the table, figures."""
    found = [bench.run(OUR_DEDUP, many) for _ in range(runs)]
    figures = {
        "near_dedup_documents_per_cpu_second": spread([run.rate for run in found]),
        "peak_memory_mb": max(run.found["peak_mib"] for run in found) * 2**20 / 1e6,
        "bands": found[0].found["bands"],
        "rows": found[0].found["rows"],
        "expected_recall": found[0].found["expected_recall"],
    }
    return [row(NEAR_DEDUP, OUR_DEDUP, found, 1.0)], figures


def on_two_cores(bench: Bench, many: Corpus, pairs: int) -> dict[str, dict[str, float]]:
    """What a second core is worth, in wall time: to two threads of one run; and, as the most that this machine has to
    give at that moment, to two runs of one thread that have nothing to do with each other."""
    others = [replace(bench, folder=bench.folder / name) for name in ("one", "other")]
    for other in others:
        other.folder.mkdir()

    def run(workers: int, bench: Bench = bench) -> Cost:
        return bench.run(OUR_DEDUP, many, {"LONGHAUL_WORKERS": str(workers)}).cost()

    def both() -> Cost:
        with ThreadPoolExecutor(2) as pool:
            costs = list(pool.map(partial(run, 1), others))
        return Cost(max(cost.wall_seconds for cost in costs) / 2, sum(cost.cpu_seconds for cost in costs) / 2)

    rounds = [(run(2), both(), run(1)) for _ in range(pairs)]
    threads, processes, one = zip(*rounds, strict=True)
    return {
        "two_threads_speedup": Paired(threads, one).ratio("wall_seconds"),
        "two_processes_speedup": Paired(processes, one).ratio("wall_seconds"),
        "two_threads_to_two_processes": Paired(threads, processes).ratio("wall_seconds"),
    }


if __name__ == "__main__":
    main()
