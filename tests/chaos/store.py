"""The durable store of a disturbed run: an S3 server on loopback behind a proxy that does to requests what networks
do."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.chaos import plan
from tests.chaos.plan import Fault
from tests.services.proxy import FaultProxy, Faults
from tests.services.s3 import CREDENTIALS, options, s3_server

BUCKET = "chaos"
DOES = {
    plan.STORE_SLOW: Faults(latency_seconds=0.3, bytes_per_second=200_000),
    plan.STORE_BUSY: Faults(busy=0.5),
    plan.STORE_RESET: Faults(reset=0.5),
    plan.STORE_CUT: Faults(cut=0.5),
}


class Store:
    """settings of a training that uses it, and variables of its environment."""

    settings = {"durable_url": f"s3://{BUCKET}/runs"}

    def __init__(self, proxy: FaultProxy) -> None:
        self.variables = {
            "FSSPEC_S3_ENDPOINT_URL": f"http://127.0.0.1:{proxy.port}",
            "FSSPEC_S3_KEY": CREDENTIALS["AWS_ACCESS_KEY_ID"],
            "FSSPEC_S3_SECRET": CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
            **CREDENTIALS,
        }
        self._proxy = proxy
        self._before = 0

    @property
    def is_hit(self) -> bool:
        """Whether a request has met the fault that there is."""
        slow = self._proxy.faults == DOES[plan.STORE_SLOW]
        return (self._proxy.num_requests if slow else self._proxy.num_faults) > self._before

    @contextmanager
    def disturbed(self, fault: Fault) -> Iterator[None]:
        proxy = self._proxy
        proxy.faults = DOES.get(fault.kind, Faults())
        proxy.script = ["stall"] if fault.kind == plan.STORE_STALL else []
        self._before = proxy.num_requests if fault.kind == plan.STORE_SLOW else proxy.num_faults
        try:
            yield
        finally:
            proxy.faults, proxy.script = Faults(), []


@contextmanager
def store() -> Iterator[Store]:
    """A store that is empty and ready."""
    import fsspec

    with s3_server() as port:
        fsspec.filesystem("s3", **options(port)).mkdir(BUCKET)
        with FaultProxy(port) as proxy:
            proxy.writes = True
            yield Store(proxy)
