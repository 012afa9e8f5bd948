"""docs/desk.md says what the settings are."""

from tests.flows.desk.settings_page import PAGE, written


def test_the_page_holds_the_settings() -> None:
    """Else: `python -m tests.flows.desk.settings_page`."""
    assert PAGE.read_text(encoding="utf-8") == written()
