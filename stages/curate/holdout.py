"""The held-out split: groups of documents that are set apart for evaluation."""

import numpy as np

from data.heldout.split import heldout_rows
from stages.curate.config import CurateConfig
from stages.curate.corpus import Corpus


def hold_out(corpus: Corpus, config: CurateConfig) -> int:
    """Mark the documents to hold out. Returns how many groups they are. Raises InputError for a domain that cannot have
    text on both sides."""
    names, domains = corpus.domains()

    def group_name(row: int) -> str:
        shard, at = corpus.place(row)
        return str(shard.documents("group")["group"][at])

    keys = corpus.keys("group_hash")
    corpus.heldout = heldout_rows(
        groups=keys,
        domains=domains,
        num_bytes=corpus.num_bytes,
        domain_names=names,
        fraction=config.heldout_fraction,
        most_bytes=config.heldout_max_bytes,
        seed=config.heldout_seed,
        group_name=group_name,
    )
    return len(np.unique(keys[corpus.heldout]))
