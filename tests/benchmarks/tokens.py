"""`make bench-tokens`: documents to token shards, JSONL in, on one core, against what others use for it.

Every run is a process of its own with an empty table of words; what of its CPU time counts is said in
peers/measured.py, what stands in the texts in token_text.py. Numba's compiled kernels are in its cache on disk from the
first run on. Runs of ours alternate with those of one peer at a time, on the same text, since a table of words gets
cheaper per token with more of it: all of the text against datatrove, followed by a second one of the same domains in
the same process, and a sample of it against the other peers.

All get one vocabulary, a SentencePiece model trained on a part of the first text, either as it is or as the
tokenizer.json that stages.export.tokenizer makes of it. "same ids" says whether a peer's tokens, an end token after
each document included, are ours in the same order.

Apart from that, each document of ../shared/data/prose and fuzzed strings are encoded here and by SentencePiece itself.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import sentencepiece

from data.vocabulary.training import train_vocabulary
from data.vocabulary.training_sample import draw_sample
from data.vocabulary.vocabulary import END_ID, MODEL_FILE, SPACE_SYMBOL, Vocabulary
from stages.export.tokenizer import read_sentencepiece, tokenizer_json
from tests.benchmarks.harness import Cost, Paired, interleave, measure, report
from tests.benchmarks.peers.environments import BENCH, PEERS, Peer, python_of
from tests.benchmarks.token_text import Texts, fuzzed, prose, read_texts, write_texts

WHOLE_TEXT = "datatrove"  # the peer that reads both texts; the others read the sample
NUM_FUZZED = 10_000
SEED = 1
ONE_THREAD = {"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
PACKAGES = ("sentencepiece", "numba", "numpy", "pyarrow")
HEADERS = (
    *("tool", "version", "settings", "tokens", "CPU s", "M tokens per CPU s", "M tokens per CPU s, with start-up"),
    *("CPU per token to ours", "same ids", "bytes per token"),
)


@dataclass(frozen=True)
class Run:
    """What a tool's process reported; see peers/measured.py."""

    gross_cpu_seconds: float
    texts: tuple[dict[str, Any], ...]

    def cost(self, text: int = 0) -> Cost:
        """Of a million tokens."""
        found = self.texts[text]
        millions = found["tokens"] / 1e6
        return Cost(found["wall_seconds"] / millions, found["cpu_seconds"] / millions)

    def gross_cost(self) -> Cost:
        """Of a million tokens of the first text, with all that comes before it."""
        return Cost(0.0, self.gross_cpu_seconds / self.texts[0]["tokens"] * 1e6)

    def bytes_per_token(self, text: int = 0) -> float:
        return self.texts[text]["bytes"] / self.texts[text]["tokens"]


@dataclass(frozen=True)
class Bench:
    """Runs of the tools on texts that stand in `folder`."""

    folder: Path
    texts: Texts

    @property
    def vocabulary(self) -> Path:
        return self.folder / "vocabulary"

    def run(self, python: str | Path, tool: str, texts: Sequence[Path], few: bool) -> Run:
        result = self.folder / "report.json"
        options: list[str | Path] = ["--vocabulary", self.vocabulary, "--end-id", str(END_ID)]
        options += ["--work", self.folder / "work", "--report", result]
        options += [word for text in texts for word in ("--text", text)] + (["--few", self.texts.few] if few else [])
        environment = ONE_THREAD | OFFLINE | {"HF_HOME": str(self.folder / "huggingface")}
        measure([str(python), "-m", f"tests.benchmarks.peers.{tool}", *map(str, options)], environment=environment)
        found = json.loads(result.read_text())
        return Run(found["gross_cpu_seconds"], tuple(found["texts"]))

    def ours(self, texts: Sequence[Path]) -> Run:
        return self.run(sys.executable, "ours", texts, few=False)

    def pairs(self, peer: Peer, pairs: int) -> tuple[list[Run], list[Run]]:
        """Runs of ours and of the peer on the same text, by turns, after a warm-up on a few documents that reads both
        from disk.
        """
        python = python_of(peer)
        texts = [self.texts.first, self.texts.second] if peer.name == WHOLE_TEXT else [self.texts.sample]
        ours: list[Run] = []
        theirs: list[Run] = []
        self.ours([self.texts.few])
        self.run(python, peer.name, [self.texts.few], few=False)

        def one(runs: list[Run], run: Run) -> Cost:
            runs.append(run)
            return run.cost()

        interleave(
            lambda: one(ours, self.ours(texts)),
            lambda: one(theirs, self.run(python, peer.name, texts, few=True)),
            pairs=pairs,
            warm_up=False,
        )
        print(f"{peer.title}: {ratio(ours, theirs)}", flush=True)
        return ours, theirs


def train(folder: Path, texts: Path, size: int) -> None:
    """tokenizer.model and tokenizer.json in `folder`, from at most 20 MB of the texts."""
    folder.mkdir()
    columns = {
        domain: pa.chunked_array([documents], pa.large_string()) for domain, documents in read_texts(texts).items()
    }
    sample = draw_sample(columns, budget_bytes=20_000_000, seed=SEED)
    (folder / MODEL_FILE).write_bytes(train_vocabulary(sample.chunks, size=size))
    model = read_sentencepiece(folder / MODEL_FILE)
    (folder / "tokenizer.json").write_text(tokenizer_json(model), encoding="utf-8")


def mismatches(vocabulary: Path, texts: Iterable[str]) -> tuple[int, int]:
    """How many documents have other ids than SentencePiece gives them, and of how many.

    SentencePiece reads U+2581 as a space, so it gets the text between these; they themselves are three byte pieces.
    """
    processor = sentencepiece.SentencePieceProcessor(model_file=str(vocabulary / MODEL_FILE))
    symbol = [processor.piece_to_id(f"<0x{value:02X}>") for value in SPACE_SYMBOL.encode()]
    documents = list(texts)
    tokens, offsets = Vocabulary.load_folder(vocabulary).encode_documents(documents, np.uint32)
    wrong = 0
    for text, (start, end) in zip(documents, pairwise(offsets), strict=True):
        first, *others = map(processor.encode, text.split(SPACE_SYMBOL))
        expected = [*first, *(token for part in others for token in (*symbol, *part)), END_ID]
        wrong += tokens[start:end].tolist() != expected
    return wrong, len(documents)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, default=100, help="of each of the two texts")
    parser.add_argument("--sample-megabytes", type=float, default=30, help="of the slower peers' text")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--vocabulary", type=int, default=8192, help="ids of the vocabulary")
    arguments = parser.parse_args()
    text_bytes = int(arguments.megabytes * 1e6)
    sample_bytes = min(int(arguments.sample_megabytes * 1e6), text_bytes)
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # inherited: one core for every run
    BENCH.mkdir(exist_ok=True)
    for peer in PEERS:
        python_of(peer)
    with tempfile.TemporaryDirectory(dir=BENCH, prefix="tokens-") as name:
        folder = Path(name).resolve()
        texts = write_texts(folder, text_bytes=text_bytes, sample_bytes=sample_bytes)
        bench = Bench(folder, texts)
        train(bench.vocabulary, texts.first, arguments.vocabulary)
        compared = compare(bench)
        runs = {peer.name: bench.pairs(peer, arguments.pairs) for peer in PEERS}
    ours = runs[WHOLE_TEXT][0]
    on_sample = [run for name, (mine, _) in runs.items() if name != WHOLE_TEXT for run in mine]
    ratios = {name: ratio(*pair) for name, pair in runs.items()}
    best = min(ratios, key=lambda name: ratios[name]["median"])
    figures = {
        "tokens_per_cpu_second": spread([1e6 / run.cost().cpu_seconds for run in ours]),
        "tokens_per_cpu_second_second": spread([1e6 / run.cost(1).cpu_seconds for run in ours]),
        "tokens_per_cpu_second_sample": spread([1e6 / run.cost().cpu_seconds for run in on_sample]),
        **{f"ratio_{name}": found for name, found in ratios.items()},
        "best_peer": best,
        "ratio_best_peer": ratios[best],
        "ratio_datatrove_second": ratio(*runs[WHOLE_TEXT], cost=partial(Run.cost, text=1)),
        "ratio_datatrove_with_start_up": ratio(*runs[WHOLE_TEXT], cost=Run.gross_cost),
        **compared,
        "bytes_per_token_on_disk": ours[0].bytes_per_token(),
        "text_bytes": text_bytes,
        "sample_bytes": sample_bytes,
        "vocabulary_size": arguments.vocabulary,
    }
    rows = [
        row("longhaul", "", "uint16, with ids, index, checksums", ours, 0, [1.0, "yes"]),
        row("longhaul, second text", "", "the table of words is warm", ours, 1, [1.0, "yes"]),
        row("longhaul, sample", "", "uint16, with ids, index, checksums", on_sample, 0, [1.0, "yes"]),
    ]
    for peer in PEERS:
        mine, theirs = runs[peer.name]
        for text in range(len(theirs[0].texts)):
            title = f"{peer.title}, second text" if text else peer.title
            same = "yes" if theirs[0].texts[text]["digest"] == mine[0].texts[text]["digest"] else "no"
            to_ours = ratio(mine, theirs, partial(Run.cost, text=text))["median"]
            rows.append(row(title, peer.version, peer.settings, theirs, text, [to_ours, same]))
    report("tokens", HEADERS, rows, figures, PACKAGES)


def compare(bench: Bench) -> dict[str, int]:
    """The figures of `mismatches`, over the prose and over fuzzed strings."""
    some = [text for documents in read_texts(bench.texts.sample).values() for text in documents]
    wrong_documents, documents = mismatches(bench.vocabulary, prose())
    wrong_strings, strings = mismatches(bench.vocabulary, fuzzed(NUM_FUZZED, some, SEED))
    print(f"{wrong_documents} of {documents} documents and {wrong_strings} of {strings} strings differ", flush=True)
    return {
        "mismatched_documents": wrong_documents + wrong_strings,
        "compared_documents": documents,
        "compared_fuzzed_strings": strings,
    }


def ratio(ours: Sequence[Run], theirs: Sequence[Run], cost: Callable[[Run], Cost] = Run.cost) -> dict[str, float]:
    """How many times our CPU-seconds per token theirs are, pair by pair."""
    return Paired(tuple(map(cost, ours)), tuple(map(cost, theirs))).ratio("cpu_seconds")


def spread(values: Sequence[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "low": min(values), "high": max(values)}


def row(title: str, version: str, settings: str, runs: Sequence[Run], text: int, compared: Sequence[Any]) -> list[Any]:
    """A line of the table, with medians of the runs. Start-up stands before the first text only."""
    cpu = statistics.median(run.texts[text]["cpu_seconds"] for run in runs)
    rate = statistics.median(1 / run.cost(text).cpu_seconds for run in runs)
    gross = "" if text else statistics.median(1 / run.gross_cost().cpu_seconds for run in runs)
    last = [*compared, runs[0].bytes_per_token(text)]
    return [title, version, settings, runs[0].texts[text]["tokens"], cpu, rate, gross, *last]


if __name__ == "__main__":
    main()
