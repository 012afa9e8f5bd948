"""A user relies on: an event reaches the server, however much its journal line holds."""

import json

from flows.showing.events import MOST_PAYLOAD_BYTES, bounded


def test_a_payload_is_no_larger_than_prefect_takes() -> None:
    small = {"kind": "incident", "documents": {"code": ["a"] * 30}}
    assert bounded(small) is small
    huge = {
        "kind": "excluded",
        "step": 7,
        "documents": {f"domain {number}": ["id" * 200] * 5000 for number in range(30)},
        "log": "x" * 5_000_000,
    }
    found = bounded(huge)
    assert len(json.dumps(found).encode()) <= MOST_PAYLOAD_BYTES
    assert (found["kind"], found["step"], found["cut"]) == ("excluded", 7, ["documents", "log"])
    assert found["log"].startswith("xxx"), "as much as there is room for"
