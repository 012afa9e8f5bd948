"""The tally of every record: sums by kind, the funnel, and an imbalance that does not pass."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stages.curate.accounting import DROPPED, EDITED, READ, Accounts, Step, tally
from stages.curate.tables import ACCOUNTING


def of(step: Step, outcome: str, sizes: list[int], *, source: str = "a", language: str = "en", **settings) -> pa.Table:
    return tally(
        **{"source_number": 0, "domain": "web", "documents": 1} | settings,
        source=pa.array([source] * len(sizes)),
        language=pa.array([language] * len(sizes)),
        step=step,
        outcome=outcome,
        num_bytes=np.array(sizes),
    )


def balanced() -> list[pa.Table]:
    return [
        of(Step.READ, READ, [10, 20, 30, 40]),
        of(Step.READ, READ, [7], source="b", language="de"),
        of(Step.CLEAN, f"{DROPPED}empty", [10]),
        of(Step.QUALITY, f"{EDITED}lines", [5], documents=0),
        of(Step.EXACT, f"{DROPPED}exact duplicate of training text", [20]),
        of(Step.KEPT, "train", [25]),
        of(Step.KEPT, "heldout", [40]),
        of(Step.KEPT, "train", [7], source="b", language="de"),
    ]


def test_what_balances_passes_and_gives_the_funnel(tmp_path):
    accounts = Accounts(balanced())
    accounts.assert_conservation()
    counts = accounts.by("domain")["web"]
    assert counts.of(READ) == (5, 107) and counts.of("train") == (2, 32)
    assert counts.funnel() == [[5, 107], [4, 97], [4, 97], [4, 92], [3, 72], [3, 72], [3, 72]]
    assert counts.dropped() == {
        "empty": {"documents": 1, "bytes": 10},
        "exact duplicate of training text": {"documents": 1, "bytes": 20},
    }
    assert counts.edited() == {"lines": 5}
    assert accounts.by("language")["de"].funnel() == [[1, 7]] * 7
    accounts.write(tmp_path / "accounting.parquet")
    table = pq.read_table(tmp_path / "accounting.parquet")
    assert table.schema == ACCOUNTING and table.num_rows == 8
    assert {"source": "b", "domain": "web", "outcome": "train", "documents": 1, "bytes": 7} in table.to_pylist()


@pytest.mark.parametrize("missing", range(1, 8))
def test_a_fate_that_is_missing_is_noticed_in_its_own_file(missing):
    tables = balanced()
    del tables[missing]
    with pytest.raises(AssertionError, match="'source': '[ab]'"):
        Accounts(tables).assert_conservation()


def test_files_do_not_make_up_for_one_another():
    tables = [
        of(Step.READ, READ, [5]),
        of(Step.READ, READ, [5], source="b"),
        of(Step.KEPT, "train", [5, 5], source="b"),
    ]
    with pytest.raises(AssertionError, match="'source': 'a'"):
        Accounts(tables).assert_conservation()


def test_the_sum_is_the_same_however_many_tables_are_added_at_a_time(monkeypatch):
    whole = Accounts(balanced() * 5).table
    monkeypatch.setattr("stages.curate.tables.TABLES_TOGETHER", 3)
    assert Accounts(iter(balanced() * 5)).table.equals(whole)
    assert Accounts([]).table.num_rows == 0
