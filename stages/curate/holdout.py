"""The held-out split: groups of documents that are set apart for evaluation."""

import numpy as np

from data.heldout.split import heldout_rows
from stages.curate.config import CurateConfig
from stages.curate.corpus import Corpus


def hold_out(corpus: Corpus, config: CurateConfig) -> int:
    """Mark the documents to hold out, none of them a planted one. Returns how many groups they are. Raises InputError
    for a domain that cannot have text on both sides."""
    names, domains = corpus.domains()
    rows = np.flatnonzero(~corpus.planted)
    present = np.unique(domains[rows])

    def group_name(row: int) -> str:
        shard, at = corpus.place(int(rows[row]))
        return str(shard.documents("group")["group"][at])

    keys = corpus.keys("group_hash")
    corpus.heldout[rows] = heldout_rows(
        groups=keys[rows],
        domains=np.searchsorted(present, domains[rows]),
        num_bytes=corpus.num_bytes[rows],
        domain_names=[names[domain] for domain in present],
        fraction=config.heldout_fraction,
        most_bytes=config.heldout_max_bytes,
        seed=config.heldout_seed,
        group_name=group_name,
    )
    return len(np.unique(keys[corpus.heldout]))
