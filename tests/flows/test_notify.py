"""A user relies on: what somebody may wait for arrives in Prefect as an event."""

from typing import Any

import pytest

from flows import notify


@pytest.mark.parametrize(
    ("kind", "emitted"),
    [
        ("incident", True),
        ("excluded", True),
        ("store.stalled", True),
        ("account", False),
        ("checkpoint.saved", True),
        ("note", False),
    ],
)
def test_what_somebody_may_wait_for_becomes_an_event(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kind: str, emitted: bool
) -> None:
    import logging

    found: list[tuple[str, dict[str, Any]]] = []
    monkeypatch.setattr(notify, "get_run_logger", lambda: logging.getLogger("flow"))
    monkeypatch.setattr(notify, "emit_event", lambda kind, resource, payload: found.append((kind, payload)))
    event = {"time": 1.0, "stage": "pretrain", "kind": kind, "first": 14, "documents": {"code": ["a"]}}
    notify.Notifier()(event)
    assert found == ([(kind, event)] if emitted else [])
