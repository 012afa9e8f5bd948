"""What a run may lose: an empty domain and a source or language that is all but gone end it, with the reason that took
most; a domain that loses much is warned of.

What the recipe asks for is no loss: text in languages that it does not want, and documents of known corpora. Shares are
of the rest. What edits take away is lost as what is dropped is.
"""

from collections.abc import Sequence

from data.errors import InputError
from stages.curate.accounting import READ, Accounts, Counts
from stages.curate.artifact import HELDOUT, TRAIN
from stages.curate.config import CurateConfig
from stages.curate.source import Source
from stages.journal import Journal

KNOWN_TEXT = "a known corpus"


def is_loss(reason: str) -> bool:
    """Whether a reason takes what the recipe means to keep."""
    return not (reason.startswith("language: ") or reason.endswith(KNOWN_TEXT))


def require_records(accounts: Accounts, sources: Sequence[Source]) -> None:
    """Raises InputError for a source without a single record."""
    read = accounts.by("source_number")
    for number, source in enumerate(sources):
        if number not in read:
            raise InputError(
                f"source {source.label} is empty: not a single record; take it out of curate.sources, or correct it"
            )


def require_text(accounts: Accounts) -> None:
    """Raises InputError if nothing is left of the corpus or of a domain."""
    domains = accounts.by("domain")
    left = {domain: counts.funnel()[-1][0] for domain, counts in domains.items()}
    if not any(left.values()):
        total = Counts()
        for counts in domains.values():
            total.include(counts)
        raise InputError(
            f"the corpus is empty: {_told(total)}; correct kind and fields of the sources, or loosen what dropped it"
        )
    for domain, documents in left.items():
        if not documents:
            raise InputError(_nothing_left(domain, domains[domain], "text"))


def require_both_sides(accounts: Accounts) -> None:
    """Raises InputError for a domain without training or held-out text."""
    for domain, counts in accounts.by("domain").items():
        for side, name in ((TRAIN, "training text"), (HELDOUT, "held-out text")):
            if not counts.of(side)[0]:
                more = "" if side == TRAIN else "; a larger curate.heldout_fraction sets more of it apart"
                raise InputError(_nothing_left(domain, counts, name) + more)


def require_small(accounts: Accounts, config: CurateConfig) -> None:
    """Raises InputError for a source or a language that loses more than `most_lost_share` of its bytes."""
    groups = [(f"source {config.sources[n].label}", counts) for n, counts in accounts.by("source_number").items()]
    groups += [(f"language {name!r}", counts) for name, counts in accounts.by("language").items() if name]
    for name, counts in groups:
        share = lost_share(counts)
        if share > config.most_lost_share and _wanted(counts)[0] >= config.lost_share_documents:
            raise InputError(
                f"{name} lost {share:.1%} of its bytes: {counts.biggest_reason()}; loosen what dropped it, or raise "
                f"curate.most_lost_share ({config.most_lost_share:g}) if this is right"
            )


def warn(accounts: Accounts, config: CurateConfig, journal: Journal) -> None:
    """A warning for each domain that loses more than `warn_lost_share` of its bytes."""
    for domain, counts in accounts.by("domain").items():
        share = lost_share(counts)
        if share > config.warn_lost_share:
            journal.warning(
                f"domain {domain!r} lost {share:.0%} of its bytes: {counts.biggest_reason()}; "
                "dropped.parquet lists them"
            )


def lost_share(counts: Counts) -> float:
    """The share of the bytes read and wanted that was lost."""
    lost = sum(entry["bytes"] for reason, entry in counts.dropped().items() if is_loss(reason))
    lost += sum(num_bytes for num_bytes in counts.edited().values() if num_bytes > 0)  # placeholders may add some
    return lost / max(1, _wanted(counts)[1])


def _wanted(counts: Counts) -> tuple[int, int]:
    """Documents and bytes that the recipe means to keep."""
    documents, num_bytes = counts.of(READ)
    others = [entry for reason, entry in counts.dropped().items() if not is_loss(reason)]
    return documents - sum(e["documents"] for e in others), num_bytes - sum(e["bytes"] for e in others)


def _nothing_left(domain: str, counts: Counts, what: str) -> str:
    advice = "loosen what dropped it, add text, or take the domain out"
    return f"domain {domain!r} has no {what} left: {_told(counts)}; {advice}"


def _told(counts: Counts) -> str:
    return f"{counts.of(READ)[0]} records read, {counts.biggest_reason()}"
