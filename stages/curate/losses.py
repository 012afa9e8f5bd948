"""What a run may lose: an empty domain, a source without a text and a source or language that is all but gone end it,
with the reason that took most bytes; a domain or language that loses much and damaged files are warned of.

What the recipe asks for is no loss: text in languages that it does not want or that no rule covers, and documents of
known corpora. Shares are of the rest. What edits take away is lost as what is dropped is.
"""

from collections.abc import Sequence

import pyarrow.compute as pc

from data.canaries import DOMAIN as CANARY_DOMAIN
from data.errors import InputError
from data.quality.rules import UNCOVERED
from data.reading.documents import INVALID_UTF8, MALFORMED_JSON, MISSING_TEXT, TEXT_NOT_A_STRING
from data.reading.warc import DAMAGED
from stages.curate.accounting import DROPPED, READ, Accounts, Counts
from stages.curate.artifact import HELDOUT, TRAIN
from stages.curate.config import CurateConfig
from stages.curate.first_record import first_fields, other_format
from stages.curate.source import Source
from stages.journal import Journal

KNOWN_TEXT = "a known corpus"
WARNED_LANGUAGE_DOCUMENTS = 20  # of fewer, a language that the recipe does not name is often a misread text
MOST_DAMAGED_FILES = 10  # that are warned of one by one


def is_loss(reason: str) -> bool:
    """Whether a reason takes what the recipe means to keep. A language without rules is dropped only where the recipe
    says so."""
    return not (reason.startswith("language: ") or reason == UNCOVERED or reason.endswith(KNOWN_TEXT))


def require_records(accounts: Accounts, sources: Sequence[Source]) -> None:
    """Raises InputError for a source without a single record."""
    read = accounts.by("source_number")
    for number, source in enumerate(sources):
        if number not in read:
            raise InputError(
                f"source {source.label} is empty: not a single record; take it out of curate.sources, or correct it"
            )


def require_texts(accounts: Accounts, sources: Sequence[Source]) -> None:
    """Raises InputError for a source none of whose records is a text, however few they are: it is read wrongly."""
    for number, counts in accounts.by("source_number").items():
        records, texts = counts.funnel()[0][0], counts.funnel()[1][0]
        if texts:
            continue
        source, dropped = sources[number], counts.dropped()
        reason = min(dropped, key=lambda name: (-dropped[name]["documents"], name))
        raise InputError(
            f"source {source.label} has no text: {records} records read, {dropped[reason]['documents']} of them set "
            f"aside as {reason!r}; {_correction(source, reason)}"
        )


def _correction(source: Source, reason: str) -> str:
    """What to look at in a source all of whose records were set aside."""
    if reason in (INVALID_UTF8, MALFORMED_JSON):
        found = other_format(source)
        known = f": its first file is {found}" if found else ": its files seem to be in another format"
        return f"check its kind ({source.kind.value}){known}"
    if reason in (MISSING_TEXT, TEXT_NOT_A_STRING):
        fields = first_fields(source)
        known = f": the first record has {', '.join(map(repr, fields))}" if fields else ""
        return f"check its text_field ({source.text_field!r}){known}"
    return "correct its kind and fields, or take it out of curate.sources"


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
    """Raises InputError for a domain without training or, unless it was planted, held-out text."""
    for domain, counts in accounts.by("domain").items():
        for side, name in ((TRAIN, "training text"), (HELDOUT, "held-out text")):
            if not counts.of(side)[0] and (side, domain) != (HELDOUT, CANARY_DOMAIN):
                more = "" if side == TRAIN else "; a larger curate.heldout_fraction sets more of it apart"
                raise InputError(_nothing_left(domain, counts, name) + more)


def require_small(accounts: Accounts, config: CurateConfig, shown: str) -> None:
    """Raises InputError for a source or a language that loses more than `most_lost_share` of its bytes. shown: what
    lists the dropped documents of the artifact once it is there."""
    groups = [(f"source {config.sources[n].label}", counts) for n, counts in accounts.by("source_number").items()]
    groups += [(f"language {name!r}", counts) for name, counts in accounts.by("language").items() if name]
    for name, counts in groups:
        share = lost_share(counts)
        if share > config.most_lost_share and _wanted(counts)[0] >= config.lost_share_documents:
            raise InputError(
                f"{name} lost {share:.1%} of its bytes: {counts.biggest_reason(is_loss)}; loosen what dropped it, or "
                f"if this is right raise curate.most_lost_share ({config.most_lost_share:g}): "
                f"--set curate.most_lost_share=1 makes the artifact, and {shown} then shows what went"
            )


def warn(accounts: Accounts, config: CurateConfig, journal: Journal, shown: str) -> None:
    """A warning for each domain and language that loses more than `warn_lost_share` of its bytes, a language if the
    recipe names it or it has some documents, and for damaged files. shown: see `require_small`."""
    groups = [(f"domain {name!r}", counts) for name, counts in accounts.by("domain").items()]
    languages = {name: counts for name, counts in accounts.by("language").items() if name and _wanted(counts)[0]}
    if len(languages) > 1:  # what a single one loses is told of the domains
        groups += [
            (f"language {name!r}", counts)
            for name, counts in languages.items()
            if name in config.languages or _wanted(counts)[0] >= WARNED_LANGUAGE_DOCUMENTS
        ]
    for name, counts in groups:
        share = lost_share(counts)
        if share > config.warn_lost_share:
            journal.warning(
                f"{name} lost {share:.0%} of its bytes: {counts.biggest_reason(is_loss)}; {shown} shows what went"
            )
    _warn_of_damage(accounts, journal)


def _warn_of_damage(accounts: Accounts, journal: Journal) -> None:
    table = accounts.table.filter(pc.equal(accounts.table["outcome"], DROPPED + DAMAGED))
    totals = table.group_by("source", use_threads=False).aggregate([("documents", "sum"), ("bytes", "sum")])
    files = totals.sort_by([("documents_sum", "descending"), ("source", "ascending")]).to_pylist()
    for row in files[:MOST_DAMAGED_FILES]:
        journal.warning(
            f"{row['source']}: damaged records left out: {row['documents_sum']} ({row['bytes_sum']} bytes); "
            "fetch or write the file again to have them"
        )
    if others := files[MOST_DAMAGED_FILES:]:
        records = sum(row["documents_sum"] for row in others)
        journal.warning(f"damaged records left out in other files: {records}, in {len(others)} files")


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
