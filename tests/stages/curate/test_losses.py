"""A run that loses a source or a language ends with the reason; what the recipe asks for is no loss."""

import numpy as np
import pyarrow as pa
import pytest

from data.errors import InputError
from stages.curate import CurateConfig, Source, losses
from stages.curate.accounting import DROPPED, EDITED, READ, Accounts, Step, tally
from tests.stages.curate.curated import corpus, curate, source, write_jsonl

SOURCES = (
    Source(kind="jsonl", path="a.jsonl", domain="web"),
    Source(kind="jsonl", path="b.jsonl", domain="web"),
)


SHOWN = "`python -m stages dropped 0123`"


def accounts(
    lost: dict[str, int],
    kept: int,
    *,
    source: int = 0,
    language: str = "fi",
    read: int | None = None,
    edited: dict[str, int] | None = None,
) -> Accounts:
    """Documents of ten bytes. edited: bytes that an edit took away of kept ones."""

    def of(step: Step, outcome: str, count: int, size: int = 10, documents: int = 1) -> pa.Table:
        return tally(
            source_number=source,
            source=pa.array(["x"] * count, pa.string()),
            domain="web",
            language=pa.array([language] * count, pa.string()),
            step=step,
            outcome=outcome,
            num_bytes=np.full(count, size),
            documents=documents,
        )

    tables = [of(Step.QUALITY, DROPPED + reason, count) for reason, count in lost.items()]
    tables += [of(Step.QUALITY, EDITED + what, 1, size, documents=0) for what, size in (edited or {}).items()]
    total = sum(lost.values()) + kept if read is None else read
    return Accounts([of(Step.READ, READ, total), of(Step.KEPT, "train", kept), *tables])


def config(**settings) -> CurateConfig:
    return CurateConfig(sources=SOURCES, **settings)


def test_the_limit_is_the_largest_share_that_passes():
    for kept, passes in ((6, True), (5, True), (4, False)):
        found = accounts({"quality: least words": 100 - kept}, kept)
        if passes:
            losses.require_small(found, config(), SHOWN)
        else:
            with pytest.raises(
                InputError,
                match=r"source jsonl a.jsonl lost 96.0% of its bytes: 96 dropped, most bytes as 'quality: least words'",
            ):
                losses.require_small(found, config(), SHOWN)
    losses.require_small(accounts({"quality: least words": 100}, 0), config(most_lost_share=1), SHOWN)


def test_a_language_is_named_where_its_source_is_large_enough():
    tables = [
        accounts({"quality: least words": 30, "quality: most mean word length": 170}, 4).table,
        accounts({}, 9000, language="en").table,
    ]
    with pytest.raises(
        InputError,
        match="language 'fi' lost 98.0% .* most bytes as 'quality: most mean word length' .170 documents, 1700 bytes",
    ):
        losses.require_small(Accounts(tables), config(), SHOWN)


def test_few_documents_may_all_go():
    found = accounts({"quality: least words": 99}, 0)
    losses.require_small(found, config(), SHOWN)
    with pytest.raises(InputError, match="lost 100.0%"):
        losses.require_small(found, config(lost_share_documents=99), SHOWN)


def test_the_biggest_cause_is_the_one_of_most_bytes_and_of_what_is_wanted():
    tables = [
        accounts({"quality: least words": 150, "language: sv not wanted": 400}, 1).table,
        accounts({}, 0, edited={"repeated lines": 900}).table,
        long_documents("exact duplicate of training text", 3, num_bytes=5000),
    ]
    with pytest.raises(
        InputError,
        match=r"153 dropped, most bytes as 'exact duplicate of training text' \(3 documents, 15000 bytes\); "
        r".*--set curate.most_lost_share=1 makes the artifact, and `python -m stages dropped 0123` then shows",
    ):
        losses.require_small(Accounts(tables), config(), SHOWN)


def long_documents(reason: str, count: int, num_bytes: int) -> pa.Table:
    common = {
        "source_number": 0,
        "source": pa.array(["x"] * count, pa.string()),
        "domain": "web",
        "language": pa.array(["fi"] * count, pa.string()),
        "num_bytes": np.full(count, num_bytes),
    }
    read = tally(**common, step=Step.READ, outcome=READ)
    return pa.concat_tables([read, tally(**common, step=Step.EXACT, outcome=DROPPED + reason)])


def warned(found: Accounts, **settings) -> list[str]:
    """The first words of each warning."""
    texts: list[str] = []

    class Told:
        def warning(self, text: str) -> None:
            texts.append(text)

    losses.warn(found, config(**settings), Told(), SHOWN)
    assert all(text.endswith(f"; {SHOWN} shows what went") for text in texts)
    return [" ".join(text.split()[:2]) for text in texts]


@pytest.mark.parametrize(
    ("lost", "languages", "expected"),
    [(11, (), []), (11, ("en", "fi"), ["language 'fi'"]), (14, (), ["language 'fi'"]), (3, ("fi",), [])],
)
def test_a_language_that_loses_much_is_warned_of_if_it_is_wanted_or_has_some_documents(lost, languages, expected):
    tables = [accounts({"quality: least words": lost}, 6).table, accounts({}, 900, language="en").table]
    assert warned(Accounts(tables), languages=languages) == expected
    alone = accounts({"quality: least words": 30}, 6, language="en")
    assert warned(alone) == ["domain 'web'"]
    assert warned(accounts({"language: fi not wanted": 30}, 0), languages=("en",)) == []


def test_what_the_recipe_asks_for_is_no_loss():
    wanted = {
        "language: fi not wanted": 500,
        "quality: no rules for the language": 700,
        "exact duplicate of a known corpus": 300,
        "near duplicate of a known corpus": 90,
    }
    losses.require_small(accounts(wanted, 1), config(), SHOWN)
    with pytest.raises(InputError, match="lost 99.9%"):
        losses.require_small(accounts({"exact duplicate of training text": 1000}, 1), config(), SHOWN)


def test_the_share_is_of_what_the_recipe_means_to_keep():
    known = {"exact duplicate of a known corpus": 5000, "quality: least words": 199}
    with pytest.raises(InputError, match="lost 99.5%"):
        losses.require_small(accounts(known, 1), config(), SHOWN)
    few = {"language: fi not wanted": 5000, "quality: least words": 99}
    losses.require_small(accounts(few, 0), config(), SHOWN)


def test_what_edits_take_away_is_lost_too():
    edited = {"repeated lines": 1950, "personal data": -700}
    with pytest.raises(
        InputError, match="lost 97.5% of its bytes: none dropped, and 1950 bytes edited away as 'repeated lines';"
    ):
        losses.require_small(accounts({}, 200, edited=edited), config(), SHOWN)
    losses.require_small(accounts({}, 200, edited={"repeated lines": 1900}), config(), SHOWN)


def test_a_source_without_a_record_is_named():
    with pytest.raises(InputError, match="source jsonl b.jsonl is empty: not a single record"):
        losses.require_records(accounts({}, 3), SOURCES)


def test_a_domain_needs_both_sides():
    with pytest.raises(
        InputError, match="domain 'web' has no held-out text left: 12 records read, 2 dropped.*curate.heldout_fraction"
    ):
        losses.require_both_sides(accounts({"empty": 2}, 10))


def test_a_language_that_all_but_vanishes_fails_the_run_although_its_source_does_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    german = [{"text": f"Das ist der {n}. Satz, und er ist kurz und auf Deutsch.", "id": f"de{n}"} for n in range(12)]
    write_jsonl("a.jsonl", corpus(60) + german)
    with pytest.raises(
        InputError, match=r"language 'de' lost 100.0% of its bytes: 12 dropped, most bytes as 'quality: least words'"
    ):
        curate(CurateConfig(sources=(source(),), lost_share_documents=12))
    assert curate(CurateConfig(sources=(source(),))).facts["languages"]["de"]["kept_documents"] == 0
