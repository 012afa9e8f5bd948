"""The curate stage's declaration.

Run: python -m stages.curate RECIPE

Result: train/<domain>.parquet and heldout/<domain>.parquet (id, text, domain, group, source; in the order of the
sources), and dropped.parquet, which lists every record that is in neither, with its reason.
"""

from pathlib import Path
from typing import Any

from data.filehash import FileHashes
from eval.suites import digest, harness_version, read_through_harness
from stages.base import Facts, Inputs, Stage
from stages.curate.config import CurateConfig
from stages.errors import TryAgain
from stages.journal import Journal
from stages.store import Store


def externals(config: CurateConfig, store: Store) -> dict[str, Any]:
    """What the text depends on outside the store: the content of every source, and what the suites will ask."""
    from stages.curate.sources import identity

    with FileHashes(store.artifacts_path / ".file-hashes.json") as hashes:
        sources = [identity(source, hashes) for source in config.sources]
    suites = config.suites
    found = {"sources": sources, "suites": digest(suites.names)}
    if read_through_harness(suites.names, suites.waived_tasks):
        found["lm_eval"] = harness_version()  # stands for the items of lm-eval's own tasks
    return found


def run(config: CurateConfig, inputs: Inputs, out: Path, journal: Journal) -> Facts:
    """Raises InputError for a source that cannot be read, and for a corpus or a domain of which nothing is left;
    TryAgain if a source changes meanwhile."""
    from stages.curate.pipeline import curate

    made = curate(config, out, journal)
    if externals(config, inputs.store) != inputs.externals:
        raise TryAgain("a source changed while it was being read; run the same command again once it is complete")
    return made


STAGE = Stage(name="curate", revision=1, config=CurateConfig, inputs={}, run=run, externals=externals)
