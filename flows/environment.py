"""Prefect's settings for a run from a terminal, unless the user has set them. Import this before prefect."""

import os

DEFAULTS = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",  # a desk takes a run for dead that is silent for long
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",  # the terminal has progress bars; the server keeps the logs
}

for name, value in DEFAULTS.items():
    os.environ.setdefault(name, value)
