"""A run that loses a source or a language ends with the reason; what the recipe asks for is no loss."""

import numpy as np
import pyarrow as pa
import pytest

from data.errors import InputError
from stages.curate import CurateConfig, Source, losses
from stages.curate.accounting import DROPPED, READ, Accounts, Step, tally

SOURCES = (
    Source(kind="jsonl", path="a.jsonl", domain="web"),
    Source(kind="jsonl", path="b.jsonl", domain="web"),
)


def accounts(
    lost: dict[str, int], kept: int, *, source: int = 0, language: str = "fi", read: int | None = None
) -> Accounts:
    """Documents of ten bytes."""

    def of(step: Step, outcome: str, count: int) -> pa.Table:
        return tally(
            source_number=source,
            source=pa.array(["x"] * count, pa.string()),
            domain="web",
            language=pa.array([language] * count, pa.string()),
            step=step,
            outcome=outcome,
            num_bytes=np.full(count, 10),
        )

    tables = [of(Step.QUALITY, DROPPED + reason, count) for reason, count in lost.items()]
    total = sum(lost.values()) + kept if read is None else read
    return Accounts([of(Step.READ, READ, total), of(Step.KEPT, "train", kept), *tables])


def config(**settings) -> CurateConfig:
    return CurateConfig(sources=SOURCES, **settings)


def test_the_limit_is_the_largest_share_that_passes():
    for kept, passes in ((6, True), (5, True), (4, False)):
        found = accounts({"quality: least words": 100 - kept}, kept)
        if passes:
            losses.require_small(found, config())
        else:
            with pytest.raises(
                InputError, match=r"source jsonl a.jsonl lost 96.0% of its bytes: 96 dropped, 96 of them"
            ):
                losses.require_small(found, config())
    losses.require_small(accounts({"quality: least words": 100}, 0), config(most_lost_share=1))


def test_a_language_is_named_where_its_source_is_large_enough():
    tables = [
        accounts({"quality: least words": 30, "quality: most mean word length": 170}, 4).table,
        accounts({}, 9000, language="en").table,
    ]
    with pytest.raises(InputError, match="language 'fi' lost 98.0% .* 170 of them as 'quality: most mean word length'"):
        losses.require_small(Accounts(tables), config())


def test_few_documents_may_all_go():
    found = accounts({"quality: least words": 99}, 0)
    losses.require_small(found, config())
    with pytest.raises(InputError, match="lost 100.0%"):
        losses.require_small(found, config(lost_share_documents=99))


def test_what_the_recipe_asks_for_is_no_loss():
    wanted = {
        "language: fi not wanted": 500,
        "exact duplicate of a known corpus": 300,
        "near duplicate of a known corpus": 90,
    }
    losses.require_small(accounts(wanted, 1), config())
    with pytest.raises(InputError, match="lost 99.9%"):
        losses.require_small(accounts({"exact duplicate of training text": 1000}, 1), config())


def test_a_source_without_a_record_is_named():
    with pytest.raises(InputError, match="source jsonl b.jsonl is empty: not a single record"):
        losses.require_records(accounts({}, 3), SOURCES)


def test_a_domain_needs_both_sides():
    with pytest.raises(InputError, match="domain 'web' has no held-out text left: 12 records read, 2 dropped"):
        losses.require_both_sides(accounts({"empty": 2}, 10))
