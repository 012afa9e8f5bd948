"""From batches back to documents: which ones a batch holds, and which ones a training has seen so far.

All of it follows from the order, the packing and the shards' index; nothing was recorded while training.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from data.order.packing import covered, tokens_seen
from stages.pretrain.batches.sequences import Sequences


@dataclass(frozen=True, kw_only=True)
class SeenDocuments:
    """What a training has read of one domain, document by document, in the order of the stream. num_tokens, num_seen:
    int64[documents], the end of each document included; num_seen counts a token each time that it was a target.
    """

    domain: str
    ids: list[str]
    num_tokens: np.ndarray
    num_seen: np.ndarray


def documents_of_draw(sequences: Sequences, draw: int) -> dict[str, list[str]]:
    """Domain -> ids of the documents of which a batch holds a token to predict, in the order of the stream. Reads only
    the shards in which these tokens stand; raises InputError if one cannot be used.
    """
    samples = sequences.order.samples_of_draw(draw)
    found = {}
    for index in np.unique(samples.domain):
        domain = sequences.order.domains[index]
        packed = sequences.domains[domain]
        pieces = packed.packing.pieces(samples.length, samples.sequence[samples.domain == index])
        found[domain] = packed.stream.ids_of(pieces)
    return found


def documents_seen(sequences: Sequences, num_steps: int) -> Iterator[SeenDocuments]:
    """What steps 1 to num_steps have read, domain by domain, of every domain that is drawn from."""
    counts = sequences.order.counts(num_steps)
    for domain in sequences.order.domains:
        packed = sequences.domains[domain]
        mine = {length: times for (name, length), times in counts.items() if name == domain}
        num_tokens = packed.stream.document_lengths()
        yield SeenDocuments(
            domain=domain,
            ids=packed.stream.document_ids(),
            num_tokens=num_tokens,
            num_seen=tokens_seen(num_tokens, covered(packed.packing, mine)),
        )
