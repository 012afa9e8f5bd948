"""Decontamination: training text that repeats held-out text or an item of a suite goes."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from data.heldout.decontaminate import JudgedText, overlaps
from data.heldout.judged_item import JudgedItem
from stages.curate.config import CurateConfig
from stages.curate.corpus import Corpus, Directory
from stages.curate.duplicates import Run
from stages.curate.shard import Shard, column
from stages.curate.work import read_arrow, whole_file, whole_folder, write_arrow

HELDOUT_TEXT, SUITE_TEXT = "overlap with held-out text", "overlap with suite items"
HOLDS_HELDOUT, HOLDS_ITEM = "holds a held-out text", "holds a suite item"
HELDOUT_TASK = "held-out text"
TEMPLATE_TEXTS = 2  # what more held-out texts than this share is a template, such as a site's navigation

FOUND = pa.schema(
    [
        ("row", pa.int64()),
        ("reason", pa.string()),
        ("detail", pa.string()),
        ("score", pa.float64()),
        ("survivor", pa.string()),
        ("task", pa.string()),
    ]
)


def find_overlaps(
    corpus: Corpus,
    directory: Directory,
    *,
    items: Iterable[JudgedItem],
    known_files: list[Path],
    config: CurateConfig,
    folder: Path,
    run: Run,
) -> tuple[list[Path], dict[str, Any]]:
    """Drop the training documents of the corpus that repeat judged text. Returns the files of what was found, by shard,
    and the facts. known_files: held-out text of known corpora."""
    settings = {"ngram_words": config.overlap_ngram_words, "short_words": config.overlap_short_words}
    judged = {
        "heldout": JudgedText(
            _heldout_items(corpus, directory, known_files), **settings, template_texts=TEMPLATE_TEXTS
        ),
        "items": JudgedText(items, **settings),
    }
    for name, text in judged.items():
        if not (folder / name).exists():
            with whole_folder(folder / name) as made:
                text.save(made)
    trainings = [
        Training(shard=shard, rows=rows)
        for number, shard in enumerate(corpus.shards)
        if not shard.planted and len(rows := np.flatnonzero((~corpus.heldout & corpus.alive)[corpus.rows_of(number)]))
    ]
    task = FindOverlap(config=config, heldout=folder / "heldout", items=folder / "items", out=folder / "found")
    found = run(task, trainings)
    _drop(corpus, found)
    return found, _facts(judged["heldout"], judged["items"], found, config.suites.waived_tasks)


def _drop(corpus: Corpus, found: Sequence[Path]) -> None:
    first = {shard.name: int(row) for shard, row in zip(corpus.shards, corpus.first, strict=False)}
    for path in found:
        table = read_arrow(path)
        rows, scores = first[path.stem] + np.asarray(column(table, "row")), np.asarray(column(table, "score"))
        reasons = np.array(table["reason"].to_pylist(), object)
        for reason in sorted(set(reasons.tolist())):
            mine = np.flatnonzero(reasons == reason)
            corpus.drop(reason, rows[mine], scores[mine], np.full(len(mine), -1, np.int64))


def _heldout_items(corpus: Corpus, directory: Directory, known_files: list[Path]) -> list[JudgedItem]:
    """Every held-out text, of this corpus and of known ones."""
    items = []
    for number, shard in enumerate(corpus.shards):
        rows = np.flatnonzero((corpus.heldout & corpus.alive)[corpus.rows_of(number)])
        if len(rows):
            names = directory.names(corpus.num_known + int(corpus.first[number]) + rows).to_pylist()
            texts = column(shard.documents("text"), "text").take(pa.array(rows)).to_pylist()
            items += [JudgedItem(HELDOUT_TASK, name, text) for name, text in zip(names, texts, strict=True)]
    for path in known_files:
        table = pq.read_table(path, columns=["id", "text"])
        items += [
            JudgedItem(HELDOUT_TASK, name, text)
            for name, text in zip(table["id"].to_pylist(), table["text"].to_pylist(), strict=True)
        ]
    return items


@dataclass(frozen=True, kw_only=True)
class Training:
    """A shard with the rows of it that are training text."""

    shard: Shard
    rows: np.ndarray


@dataclass(frozen=True, kw_only=True)
class FindOverlap:
    """Writes which training rows of a shard repeat judged text. heldout, items: folders of `JudgedText`. out: where the
    answers go, a file for each shard."""

    config: CurateConfig
    heldout: Path
    items: Path
    out: Path

    def __call__(self, training: Training) -> Path:
        path = self.out / f"{training.shard.name}.arrow"
        if not path.exists():
            with whole_file(path) as temporary:
                write_arrow(temporary, self._found(training))
        return path

    def _found(self, training: Training) -> pa.Table:
        texts = column(training.shard.documents("text"), "text")
        if len(training.rows) < len(texts):
            texts = texts.take(pa.array(training.rows))
        heldout, items = JudgedText.load(self.heldout), JudgedText.load(self.items)
        in_heldout, in_items = overlaps([heldout, items], texts)
        text_bound, item_bound = self.config.overlap_text_share, self.config.overlap_item_share
        checks = (
            (HELDOUT_TEXT, in_heldout.text_share, text_bound, heldout, in_heldout.item),
            (SUITE_TEXT, in_items.text_share, text_bound, items, in_items.item),
            (HOLDS_HELDOUT, in_heldout.item_share, item_bound, heldout, in_heldout.item),
            (HOLDS_ITEM, in_items.item_share, item_bound, items, in_items.item),
        )
        over = np.stack([share >= bound for _, share, bound, _, _ in checks])
        found = []
        for row in np.flatnonzero(over.any(axis=0)).tolist():
            reason, share, bound, judged, item = checks[int(over[:, row].argmax())]
            task = judged.tasks[item[row]] if item[row] >= 0 else ""
            name = judged.names[item[row]] if item[row] >= 0 else None
            found.append(
                {
                    "row": int(training.rows[row]),
                    "reason": reason,
                    "detail": f"bound {bound:g}",
                    "score": float(share[row]),
                    "survivor": f"{task} {name}" if judged is items and name is not None else name,
                    "task": "" if judged is heldout else task,
                }
            )
        return pa.Table.from_pylist(found, schema=FOUND)


def _facts(heldout: JudgedText, items: JudgedText, found: Sequence[Path], waived: tuple[str, ...]) -> dict[str, Any]:
    """What was looked for and what was found, by task."""
    dropped: Counter[str] = Counter()
    in_heldout = 0
    for path in found:
        for task in read_arrow(path)["task"].to_pylist():
            if task:
                dropped[task] += 1
            else:
                in_heldout += 1
    of_heldout = heldout.by_task().get(HELDOUT_TASK, {"items": 0, "too_short": 0})
    return {
        "heldout": of_heldout | {"documents": in_heldout},
        "tasks": {task: entry | {"documents": dropped[task]} for task, entry in items.by_task().items()},
        "waived": sorted(waived),
    }
