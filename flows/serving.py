"""How a Prefect server is started and asked whether it serves. Without an import of Prefect, which takes seconds."""

import sys
from http.client import HTTPException
from urllib.request import ProxyHandler, build_opener

DIRECT = build_opener(ProxyHandler({}))  # a proxy for the internet knows nothing of loopback
HEALTH_SECONDS = 5.0
# For whoever starts the process: the application is the only one in it, and may be built for that.
SERVER_ENVIRONMENT = {"PREFECT__SERVER_FINAL": "1"}


def server_command(factory: str, host: str, port: int, *, log_level: str = "warning") -> tuple[str, ...]:
    """The command of a server; `factory` (module:function) makes its application. Clients that stay connected do not
    hold up its end."""
    return (
        *(sys.executable, "-m", "uvicorn", "--factory", factory, "--host", host, "--port", str(port)),
        *("--log-level", log_level, "--lifespan", "on", "--timeout-graceful-shutdown", "3"),
    )


def is_healthy(api_url: str, seconds: float = HEALTH_SECONDS) -> bool:
    """Whether a server answers there within so many seconds."""
    try:
        with DIRECT.open(f"{api_url}/health", timeout=seconds) as response:
            return bool(response.status == 200)
    except (OSError, HTTPException):
        return False
