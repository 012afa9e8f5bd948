"""The stage: run every check, put each into the journal, and fail only when all have been heard."""

import shutil
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import Any

from data.errors import InputError
from data.shards.files import TokenShard
from data.shards.index import read_index
from stages.base import Facts, Inputs
from stages.disk import free_bytes
from stages.errors import TryAgain
from stages.files import sha256_file, write_json
from stages.journal import Journal
from stages.preflight import checks
from stages.preflight.checks import Check, Status
from stages.preflight.config import PreflightConfig

Trial = dict[str, Any]


def run(config: PreflightConfig, inputs: Inputs, out: Path, journal: Journal) -> Facts:
    """Raises InputError, which names every failed check, or TryAgain if nothing but too little free disk stands in the
    way, after all have run and checks.json is written."""
    from stages.pretrain.trials import trial

    scratch = out / "scratch"
    scratch.mkdir()
    plan = inputs["plan"].facts
    book = _Book(journal)
    book.add("tokens", lambda: _tokens(inputs))
    book.add("decontamination", lambda: _decontamination(config, inputs))
    found: Trial = {}

    def two_batches() -> Check:
        found.update(
            trial(config.pretrain, config.model, inputs["tokens"].path, scratch / "trial", steps=config.trial_steps)
        )
        return checks.steps(found, config.pretrain, plan["vocabulary_size"], config.most_initial_loss_ratio)

    family = config.model.resolved().family
    # Takes as long as the trial's own start.
    Thread(target=_import_what_exporters_need, args=(family,), daemon=True).start()
    book.add("two batches", two_batches)
    if found:
        planned = plan["memory"]["total"] * plan["memory"]["num_processes"]
        available = _available_bytes(found["device"], found["num_processes"])
        book.add(
            "memory",
            lambda: checks.memory(found["peak_memory_bytes"], planned, available, config.memory_reserve_ratio),
        )
    else:
        book.add("memory", lambda: checks.not_applicable("memory", "the two batches did not run"))
    planned_disk = plan["checkpoints"]
    each = max(planned_disk["bytes_each"], found.get("checkpoint_bytes", 0))
    need = planned_disk["total_bytes"] * each // planned_disk["bytes_each"]
    shutil.rmtree(scratch / "trial", ignore_errors=True)
    root = inputs.store.root
    total = shutil.disk_usage(root).total
    book.add("disk", lambda: checks.disk(free_bytes(root), total, need, config.disk_reserve_ratio))
    _try_exporters(config, inputs, scratch, book)
    shutil.rmtree(scratch)

    write_json(out / checks.FILE, [check.values() for check in book.checks])
    wrong = [check for check in book.checks if check.status is Status.FAIL]
    if wrong:
        listed = "\n".join(f"  {check.name}: {check.detail}" for check in wrong)
        error = TryAgain if all(check.may_pass for check in wrong) else InputError
        raise error(f"{len(wrong)} of {len(book.checks)} checks failed before training:\n{listed}")
    return Facts(
        facts={
            "checks": [check.name for check in book.checks],
            "losses": found["losses"],
            "gradient_norms": found["gradient_norms"],
            "heldout_loss": found["heldout_loss"],
            "parameters": found["parameters"],
        },
        measurements={
            "checks": [check.values() for check in book.checks],
            "step_seconds": found["seconds"],
            "peak_memory_bytes": found["peak_memory_bytes"],
            "planned_memory_bytes": planned,
            "checkpoint_bytes": found["checkpoint_bytes"],
            "device": found["device"],
        },
        measured_files=(checks.FILE,),
    )


class _Book:
    """The checks so far, each in the journal as soon as it is known."""

    def __init__(self, journal: Journal) -> None:
        self.checks: list[Check] = []
        self._journal = journal
        self._progress()

    def add(self, name: str, find_out: Callable[[], Check]) -> None:
        """Run a check. An error in it is its failure, so that the others are heard too; what may go away by itself
        (TryAgain, a failing disk) is no verdict."""
        try:
            check = find_out()
        except (TryAgain, OSError):
            raise
        except InputError as error:
            check = checks.failed(name, str(error))
        except Exception as error:
            self._journal.event("note", text=f"{name}: {traceback.format_exc()}")
            check = checks.failed(name, f"{type(error).__name__}: {error}")
        self.checks.append(check)
        self._journal.event("check", **check.values())
        self._progress()

    def _progress(self) -> None:
        self._journal.progress("checks", len(self.checks), len(checks.NAMES), "checks")


def _tokens(inputs: Inputs) -> Check:
    """Opens every shard of both sides."""
    from data.shards.streams import open_streams
    from data.vocabulary.vocabulary import vocabulary_file

    path, tokenizer = inputs["tokens"].path, inputs["tokenizer"]
    headers = set()
    for side in ("train", "heldout"):
        index = read_index(path / side)
        headers.add(index.header)
        for shard in sorted(set(index.shard)):
            TokenShard(path / side / shard, index.header)
    assert len(headers) == 1, f"sides of different vocabularies: {headers}"
    digest = sha256_file(vocabulary_file(tokenizer.path))
    return checks.tokens(headers.pop(), open_streams(path / "train"), tokenizer.facts["vocabulary_size"], digest)


def _decontamination(config: PreflightConfig, inputs: Inputs) -> Check:
    """Asks the manifest of the corpus that the tokens were made from."""
    (entry,) = inputs["tokens"].manifest.inputs["corpus"]
    corpus = inputs.store.find(entry.stage, entry.key)
    if corpus is None:
        return checks.failed(
            "decontamination",
            f"the corpus of the token shards, {entry.stage} {entry.key}, is not in this store, so nothing tells what "
            "it was decontaminated against; bring at least its folder with manifest.json, or run curate again",
        )
    against = corpus.manifest.externals.get("suites", "")
    return checks.decontamination(
        corpus.facts["decontamination"], against, inputs.externals["suites"], config.suites.waived_tasks
    )


def _import_what_exporters_need(family: str) -> None:
    import_module(f"transformers.models.{family}.modeling_{family}")


def _try_exporters(config: PreflightConfig, inputs: Inputs, scratch: Path, book: _Book) -> None:
    from data.vocabulary.vocabulary import vocabulary_file
    from stages.preflight.exporters import Exporters

    facts = inputs["tokenizer"].facts
    exporters = Exporters(
        config.model.resolved(),
        vocabulary_size=facts["vocabulary_size"],
        eos_id=facts["eos_id"],
        tokenizer_model=vocabulary_file(inputs["tokenizer"].path),
        folder=scratch,
        threads=config.pretrain.threads,
    )
    for name, find_out in exporters.checks(config.server_seconds):
        book.add(name, find_out)


def _available_bytes(device: str, num_processes: int) -> int:
    """Memory that the processes share: of this machine, or of one GPU for each of them."""
    if device.startswith("cuda"):
        import torch

        return torch.cuda.get_device_properties(0).total_memory * num_processes
    import psutil

    limit = Path("/sys/fs/cgroup/memory.max")
    text = limit.read_text().strip() if limit.exists() else "max"
    total = psutil.virtual_memory().total
    return total if text == "max" else min(total, int(text))
