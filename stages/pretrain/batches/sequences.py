"""The sequences of a training run: which tokens, in which order.

Training step s, counted from 1, has the rows of `SampleOrder.batch(s - 1)`; that is all that a resumed run needs to
know. Held-out sequences are packed as a stream whatever the training's packing, so that losses of runs which differ in
it can be compared; attention is isolated in both alike.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data.errors import InputError
from data.order.batches import SampleOrder
from data.order.loader import BatchLoader, PackedDomain
from data.order.packing import make_packing
from data.shards.streams import open_streams
from stages.pretrain.batches.exclusions import Draws
from stages.pretrain.batches.phases import DomainShare, heldout_phase, train_phases, unread_tokens
from stages.pretrain.config import PretrainConfig

if TYPE_CHECKING:
    from data.shards.streams import ShardFiles

TRAIN, HELDOUT = "train", "heldout"


@dataclass(frozen=True, kw_only=True)
class Sequences:
    """One side of the split. isolates: whether positions start anew with each document; needs_mask: whether a row may
    hold several such segments. shares: of a training, by domain, as the recipe asks for. unread_tokens: by domain, in
    sequences that are too long to be ever drawn. warnings: what the user asked for and does not get.
    """

    order: SampleOrder
    domains: Mapping[str, PackedDomain]
    isolates: bool
    needs_mask: bool
    shares: Mapping[str, DomainShare] = field(default_factory=dict)
    unread_tokens: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def loader(self, *, rank: int, world_size: int) -> BatchLoader:
        """Reads this rank's rows of any batch."""
        return BatchLoader(self.order, self.domains, rank=rank, world_size=world_size, isolate=self.isolates)

    def check_vocabulary(self, *, size: int, padded_size: int, end_id: int) -> None:
        """Raise InputError if the tokens were made for another vocabulary, as when shards were copied by hand."""
        for packed in self.domains.values():
            header = packed.stream.header
            if (header.vocabulary_size, header.padded_vocabulary_size, header.end_id) != (size, padded_size, end_id):
                raise InputError(
                    f"the token shards of domain {packed.stream.domain!r} were made for {header}, but the model is for "
                    f"{size} ids, padded to {padded_size}, with end {end_id}; run pretokenize again"
                )

    def packing_facts(self) -> dict[str, dict[str, Any]]:
        """For each domain that is drawn from, what packing makes of its tokens, and what it wastes."""
        found = {}
        for domain in self.order.domains:
            packing = self.domains[domain].packing
            accounting = packing.accounting
            found[domain] = {
                "tokens": accounting.tokens,
                "unread_tokens": self.unread_tokens.get(domain, 0),
                "sequences": {str(length): count for length, count in sorted(packing.num_sequences.items())},
                "padding_tokens": accounting.padding_tokens,
                "waste": round(accounting.waste, 6),
                "cut_documents": accounting.cut_documents,
            }
        return found

    def mixture_facts(self, num_steps: int) -> dict[str, dict[str, float]]:
        """For each domain that num_steps steps draw from: weight, its share of their tokens by the recipe; epochs, how
        often they read those of its sequences that are read most often; wanted_epochs, how often they would without
        `mixture_most_epochs`.
        """
        read = self.order.epochs(num_steps)
        return {
            domain: {
                **asdict(share),
                "epochs": round(max(times for (name, _), times in read.items() if name == domain), 6),
            }
            for domain, share in self.shares.items()
        }


def open_train(config: PretrainConfig, tokens: Path, *, excluded: Draws = (), local: bool = False) -> Sequences:
    """The training sequences of a tokens artifact, some draws left out. local: from the shards of the artifact,
    whatever `shards_url` says. Raises InputError if no domain of the mixture has one.
    """
    files = None if local else _remote_files(config)
    domains = {
        domain: PackedDomain(
            stream,
            make_packing(
                config.packing,
                num_tokens=len(stream),
                document_lengths=stream.document_lengths,
                sequence_tokens=config.sequence_tokens,
            ),
        )
        for domain, stream in open_streams(tokens / TRAIN, files=files).items()
    }
    num_tokens, num_sequences = _sizes(domains)
    resolved = train_phases(config, num_tokens, num_sequences)
    order = SampleOrder(seed=config.seed, num_sequences=num_sequences, phases=resolved.phases, excluded=excluded)
    return Sequences(
        order=order,
        domains=domains,
        isolates=not config.cross_document_attention,
        needs_mask=config.needs_mask,
        shares=resolved.domains,
        unread_tokens=unread_tokens(resolved.phases, config.num_steps, num_sequences),
        warnings=(*resolved.warnings, *order.warnings(config.num_steps)),
    )


def open_heldout(config: PretrainConfig, tokens: Path) -> Sequences:
    """The held-out sequences, in the proportions of `mixture`; batch 0 has as many as the config asks for, if there are
    so many. Raises InputError if no domain of the mixture has one.
    """
    length = config.sequence_tokens
    streams = open_streams(tokens / HELDOUT)
    domains = {
        domain: PackedDomain(
            stream,
            make_packing(
                "stream", num_tokens=len(stream), document_lengths=stream.document_lengths, sequence_tokens=length
            ),
        )
        for domain, stream in streams.items()
    }
    num_tokens, num_sequences = _sizes(domains)
    phase = heldout_phase(config, num_tokens, num_sequences)
    order = SampleOrder(seed=config.seed, num_sequences=num_sequences, phases=[phase])
    isolates = not config.cross_document_attention
    return Sequences(order=order, domains=domains, isolates=isolates, needs_mask=isolates)


def _remote_files(config: PretrainConfig) -> "ShardFiles | None":
    """The shards behind `shards_url`, read through the cache; None for those of the artifact."""
    if not config.shards_url:
        return None
    from data.shards.cache import BlockCache
    from data.shards.remote import RemoteShards

    return RemoteShards(config.shards_url, BlockCache(Path(config.cache_directory), config.cache_bytes))


def _sizes(domains: Mapping[str, PackedDomain]) -> tuple[dict[str, int], dict[str, Mapping[int, int]]]:
    """Domain -> its tokens, and domain -> length -> its sequences."""
    return (
        {domain: len(packed.stream) for domain, packed in domains.items()},
        {domain: packed.packing.num_sequences for domain, packed in domains.items()},
    )
