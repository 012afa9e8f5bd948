"""The curate stage's declaration.

Run: python -m stages.curate RECIPE

Result: train/, heldout/ and index/ (see `artifact`); dropped.parquet, which lists every record that is in neither, with
its reason; samples.parquet with the beginnings of some of them; accounting.parquet, which proves for each source file
and domain that read = train + heldout + dropped + edited (see `tables` for the columns); and facts.json, by which a run
that was killed while it was published knows that it was done.
"""

import shutil
from pathlib import Path
from typing import Any

from data.errors import InputError
from data.reading.filehash import FileHashes
from eval.suites import digest, harness_version, read_through_harness
from stages.base import Facts, Inputs, Stage
from stages.curate.config import CurateConfig
from stages.errors import TryAgain
from stages.journal import Journal
from stages.manifest import EVENTS
from stages.store import Store


def externals(config: CurateConfig, store: Store) -> dict[str, Any]:
    """What the text depends on outside the store: the content of every source, of models and known corpora, and what
    the suites will ask."""
    from stages.curate.known import identities
    from stages.curate.sources import identity

    found: dict[str, Any] = {}
    with FileHashes(store.artifacts_path / ".file-hashes.json") as hashes:
        found["sources"] = [identity(source, hashes) for source in config.sources]
        for name in ("classifier", "perplexity_model"):
            if path := getattr(config, name):
                if not Path(path).is_file():
                    raise InputError(f"curate.{name}: there is no file {path}; train one with stages.curate.train")
                found[name] = hashes.of(Path(path))[1]
    if config.known_corpora:
        found["known_corpora"] = identities(config.known_corpora)
    suites = config.suites
    found["suites"] = digest(suites.all_names)
    if read_through_harness(suites.all_names, suites.waived_tasks):
        found["lm_eval"] = harness_version()  # stands for the items of lm-eval's own tasks
    return found


def run(config: CurateConfig, inputs: Inputs, out: Path, journal: Journal) -> Facts:
    """Raises InputError for a source that cannot be read, for a source without a text, for a corpus or a domain of
    which nothing is left, and for a source or language that loses too much; TryAgain if a source changes meanwhile."""
    from stages.curate.pipeline import curate

    made = curate(config, out, journal, inputs.key)
    if externals(config, inputs.store) != inputs.externals:
        for path in (path for path in out.iterdir() if path.name != EVENTS):
            shutil.rmtree(path) if path.is_dir() else path.unlink()  # it may be of the old content or of the new
        raise TryAgain("a source changed while it was being read; run the same command again once it is complete")
    return made


STAGE = Stage(name="curate", revision=4, config=CurateConfig, inputs={}, run=run, externals=externals, resumes=True)
