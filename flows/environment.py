"""Prefect's settings for a run from a terminal, unless the user has set them. Import this before prefect."""

import os

DEFAULTS = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
    "PREFECT_LOGGING_LEVEL": "WARNING",  # the progress bars tell the story; the server keeps every log line that a flow sends
}

for name, value in DEFAULTS.items():
    os.environ.setdefault(name, value)
