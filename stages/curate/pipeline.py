"""The steps of curation, in the order in which they happen.

1. read and judge each document by itself (`read`): so this can stand before the split without a leak
2. lines that many documents share, if wanted (`lines`)
3. one name for each document (`corpus`); the held-out split by group (`holdout`)
4. exact duplicates, then near duplicates (`duplicates`); held-out text survives against training text
5. decontamination of training text against held-out text and suite items (`overlap`)
6. the record of what was dropped (`settle`), and the kept documents (`write`)

Each is a function mapped over shards by the executor, and leaves whole files in the work directory, behind which a
killed run goes on. At the end read = training + held-out + dropped + edited is asserted in documents and bytes, for
each source file and domain.

The work directory takes as much disk as the kept text does uncompressed, twice that where lines are removed.
"""

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from eval.suites import fixed_texts
from stages.base import Facts
from stages.curate import audit, known, losses
from stages.curate.accounting import Accounts
from stages.curate.config import CurateConfig
from stages.curate.corpus import Corpus, Directory, unique_names
from stages.curate.duplicates import Run, ranks, remove_exact, remove_near
from stages.curate.findings import findings
from stages.curate.holdout import hold_out
from stages.curate.overlap import find_overlaps
from stages.curate.parts import plan_parts
from stages.curate.progress import watched
from stages.curate.read import ReadAndJudge
from stages.curate.settle import Settle, fates
from stages.curate.shard import DROPPED_FILE, SAMPLES_FILE, TALLY_FILE, Shard
from stages.curate.work import read_arrow, whole_file
from stages.curate.write import WriteFile, WriteRecords, plan_files
from stages.executor import Executor, open_executor
from stages.files import fsync_directory, write_json
from stages.journal import Journal

WORK = "work"
FINISHED = "facts.json"


class Curation:
    """One run of the stage. `read` comes first and `settle` and `write` last; any other step may be left out. key: of
    the artifact, by which messages name it."""

    corpus: Corpus

    def __init__(self, config: CurateConfig, out: Path, journal: Journal, executor: Executor, key: str = "") -> None:
        self.config, self.journal, self.executor = _with_whole_paths(config), journal, executor
        self.out = out.absolute()  # another process of the executor may stand elsewhere
        self.shown = f"`python -m stages dropped {key}`" if key else str(self.out / "dropped.parquet")
        self.work = self.out / WORK
        self.work.mkdir(parents=True, exist_ok=True)
        self.directory = Directory(folder=self.work)
        self.facts: dict[str, Any] = {}
        self.read_shards: tuple[Shard, ...] = ()
        self.records: list[Path] = []
        self.overlaps: list[Path] = []
        self._ranks: np.ndarray | None = None
        self._accounts, self._num_counted = Accounts([]), 0

    def read(self) -> None:
        """Read all sources and judge each document."""
        parts = plan_parts(self.config.sources)
        folder = self.work / "read"
        told = 0

        def tell(done: int | None = None, shards: str = "") -> None:
            nonlocal told
            told = told if done is None else done
            self.journal.progress("read", told, len(parts), unit="parts", text=shards)

        tell(0)
        with watched(folder, lambda shards: tell(shards=f"({shards} shards)")):
            found = self.executor.map(ReadAndJudge(config=self.config, folder=folder), parts, done=tell)
        self.read_shards = tuple(shard for shards in found for shard in shards)
        self.records = [shard.folder for shard in self.read_shards]
        accounts = self.accounts()
        losses.require_records(accounts, self.config.sources)
        losses.require_texts(accounts, self.config.sources)
        self._line_up(self.read_shards)

    def remove_repeated_lines(self) -> None:
        """Remove lines that stand in more documents than the configuration allows; planted documents keep theirs."""
        if not self.config.repeated_line_documents:
            return
        from stages.curate.lines import CountLines, RemoveLines, too_frequent

        folder = self.work / "lines"
        edited = [shard for shard in self.corpus.shards if not shard.planted]
        counted = self.map("count lines", CountLines(config=self.config, folder=folder / "counts"), edited)
        table = too_frequent(counted, self.config.repeated_line_documents, folder / "table.arrow")
        task = RemoveLines(config=self.config, table=table, folder=folder / "shards")
        shards = self.map("remove lines", task, edited)
        self.records += [shard.folder for shard in shards]
        self._line_up([*shards, *(shard for shard in self.corpus.shards if shard.planted)])

    def hold_out(self) -> None:
        """Set groups of documents apart for evaluation."""
        self.facts["heldout_groups"] = hold_out(self.corpus, self.config)

    def remove_exact_duplicates(self) -> None:
        remove_exact(self.corpus, self._ranked(), self.work, self._run("exact duplicates"))

    def remove_near_duplicates(self) -> None:
        settings = self.config.near_duplicates()
        self.journal.event("note", text=settings.describe())
        self.facts["near_duplicates"] = remove_near(
            self.corpus, self._ranked(), settings, self.work, self._run("near duplicates")
        )

    def decontaminate(self) -> None:
        """Remove training text that repeats held-out text or suite items."""
        suites = self.config.suites
        self.overlaps, self.facts["decontamination"] = find_overlaps(
            self.corpus,
            self.directory,
            items=fixed_texts(suites.all_names, suites.waived_tasks),
            known_files=known.heldout_files(self.config.known_corpora),
            config=self.config,
            folder=self.work / "overlap",
            run=lambda task, items: self.map("decontamination", task, items),
        )

    def settle(self) -> None:
        """Put on record what became of every document."""
        task = Settle(directory=self.directory, out=self.work / "settled")
        self.records += self.map("settle", task, fates(self.corpus, self.overlaps))
        self.accounts().assert_conservation()

    def require_both_sides(self) -> None:
        """Raises InputError for a domain without training or held-out text."""
        losses.require_both_sides(self.accounts())

    def write(self) -> None:
        """Write the documents that are left, the record of all others, and the facts."""
        accounts = self.accounts()
        losses.require_small(accounts, self.config, self.shown)
        losses.warn(accounts, self.config, self.journal, self.shown)
        files, write = list(plan_files(self.corpus)), WriteFile(directory=self.directory, out=self.out)
        folders = tuple(self.records)
        records = [
            WriteRecords(audit.write_dropped, folders, DROPPED_FILE, self.out / "dropped.parquet"),
            WriteRecords(audit.write_samples, folders, SAMPLES_FILE, self.out / "samples.parquet"),
        ]
        written = self.map("write", _done, [*records, *(partial(write, file) for file in files)], "files")
        assert written[len(records) :] == [file.num_documents for file in files], "not what was to be written"
        with whole_file(self.out / "accounting.parquet") as path:
            accounts.write(path)
        self.facts |= findings(self.config, accounts, self.read_shards, self.renamed)

    def map(self, name: str, function: Callable[[Any], Any], items: Iterable[Any], unit: str = "shards") -> list[Any]:
        """Results of a function over items, by the executor, with progress under a name."""
        items = list(items)
        total = max(1, len(items))
        self.journal.progress(name, 0, total, unit=unit)
        found = self.executor.map(function, items, done=lambda done: self.journal.progress(name, done, total, unit))
        if not items:
            self.journal.progress(name, total, total, unit=unit)
        return found

    def accounts(self) -> Accounts:
        """What is on record so far."""
        new = self.records[self._num_counted :]
        if new:
            tallies = (read_arrow(folder / TALLY_FILE) for folder in new)
            self._accounts = Accounts(chain([self._accounts.table], tallies))
            self._num_counted = len(self.records)
        return self._accounts

    def _line_up(self, shards: Sequence[Shard]) -> None:
        """Number the documents, and give each a name of its own. Raises InputError if too much was lost so far."""
        accounts = self.accounts()
        losses.require_text(accounts)
        losses.require_small(accounts, self.config, self.shown)
        known_shards = known.known_shards(self.config.known_corpora, self.config.near_duplicates())
        self.corpus = Corpus(shards, known_shards)
        renamed = unique_names(self.corpus, known.id_keys(known_shards))
        self.directory.write(self.corpus, renamed)
        self.renamed = Counter(self.corpus.place(row)[0].source_number for row in renamed)

    def _ranked(self) -> np.ndarray:
        if self._ranks is None:
            self._ranks = ranks(self.corpus)
        return self._ranks

    def _run(self, name: str) -> Run:
        steps = iter(range(1, 1000))
        return lambda function, items: self.map(f"{name}, step {next(steps)}", function, items, "tasks")


def _done(task: Callable[[], Any]) -> Any:
    return task()


def _sync_folders(out: Path) -> None:
    """Bring the names of the artifact's files to the disk, without which FINISHED must not be there."""
    for folder, folders, _ in os.walk(out):
        folders[:] = [name for name in folders if name != WORK]
        fsync_directory(Path(folder))


def _with_whole_paths(config: CurateConfig) -> CurateConfig:
    """The configuration with the paths of models as a process that stands elsewhere finds them."""
    paths = {name: getattr(config, name) for name in ("classifier", "perplexity_model")}
    return config.model_copy(update={name: str(Path(path).absolute()) for name, path in paths.items() if path})


def curate(config: CurateConfig, out: Path, journal: Journal, key: str) -> Facts:
    """Read, clean, divide and write the corpus, the artifact of this key."""
    if (out / FINISHED).exists():  # all but the publication was done when an earlier attempt was killed
        shutil.rmtree(out / WORK, ignore_errors=True)
        return Facts(facts=json.loads((out / FINISHED).read_text()))
    for name in config.idle():
        journal.warning(f"curate.{name} has no effect with the other settings as they are; leave it out")
    with open_executor(config.executor, workers=config.workers, ray_address=config.ray_address) as executor:
        curation = Curation(config, out, journal, executor, key)
        curation.read()
        curation.remove_repeated_lines()
        curation.hold_out()
        curation.remove_exact_duplicates()
        curation.remove_near_duplicates()
        curation.decontaminate()
        curation.settle()
        curation.require_both_sides()
        curation.write()
    _sync_folders(out)
    write_json(out / FINISHED, curation.facts)
    shutil.rmtree(out / WORK)
    return Facts(facts=curation.facts)
