"""A proxy on loopback that does to HTTP what networks do: it is slow, answers 503, resets connections, cuts bodies
short and falls silent.

    with FaultProxy(upstream_port) as proxy:
        proxy.faults = Faults(latency_seconds=0.1, reset=0.2)
        proxy.script = ["503", "cut", "stall"]      # what happens to the next requests for an object, in any case
        proxy.writes = True                         # to those that are written, too; these know "short" as well

It runs in a thread of the process that uses it. Only bodies with a Content-Length pass.
"""

import asyncio
import random
import threading
from dataclasses import dataclass
from types import TracebackType

BUSY = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
CHUNK = 1 << 16
SILENCE_SECONDS = 60


@dataclass(frozen=True, kw_only=True)
class Faults:
    """latency_seconds: before each answer. busy, reset, cut: the share of requests that get a 503, a connection reset
    instead of an answer, and one in the middle of the body (of a write: in place of the answer, when it is done).
    stall: that are never answered in full. short: of writes, that lose half of their body and succeed.
    bytes_per_second: of each body; 0: no limit.
    """

    latency_seconds: float = 0.0
    busy: float = 0.0
    reset: float = 0.0
    cut: float = 0.0
    stall: float = 0.0
    short: float = 0.0
    bytes_per_second: float = 0.0


class FaultProxy:
    """num_requests, num_faults: what has passed since the proxy began. most_at_once: requests on their way together."""

    def __init__(self, upstream: int, *, seed: int = 0) -> None:
        self.faults = Faults()
        self.script: list[str] = []
        self.writes = False
        self.num_requests = 0
        self.num_faults = 0
        self.most_at_once = 0
        self.port = 0
        self._at_once = 0
        self._upstream = upstream
        self._random = random.Random(seed)
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fault proxy", daemon=True)

    def __enter__(self) -> "FaultProxy":
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._connected, "127.0.0.1", 0, limit=1 << 20))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0.01))
        self._loop.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._one_request(reader, writer):
                pass
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _one_request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection stays open."""
        head = await reader.readuntil(b"\r\n\r\n")
        if b"100-continue" in head.lower():
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            head = head.replace(b"Expect: 100-continue\r\n", b"")
        body = await reader.readexactly(_content_length(head))
        faults = self.faults
        is_write = self.writes and head.startswith((b"PUT", b"POST"))
        fault = self._fault(faults) if is_write or head.startswith(b"GET") else ""
        self.num_requests += 1
        self.num_faults += bool(fault)
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        await asyncio.sleep(faults.latency_seconds)
        self._at_once -= 1
        if fault == "503":
            writer.write(b"HTTP/1.1 503 Slow Down\r\nContent-Type: application/xml\r\n")
            writer.write(b"Content-Length: %d\r\n\r\n%s" % (len(BUSY), BUSY))
            await writer.drain()
            return True
        if fault == "reset":
            writer.transport.abort()
            return False
        if is_write and fault == "stall":
            await asyncio.sleep(SILENCE_SECONDS)
            return False
        if is_write and fault == "short":
            head = head.replace(b"ength: %d\r\n" % len(body), b"ength: %d\r\n" % (len(body) // 2))
            body = body[: len(body) // 2]
        if is_write and faults.bytes_per_second:
            await asyncio.sleep(len(body) / faults.bytes_per_second)
        from_server, to_server = await asyncio.open_connection("127.0.0.1", self._upstream, limit=1 << 20)
        try:
            to_server.write(head.replace(b"\r\n", b"\r\nConnection: close\r\n", 1) + body)
            answer = await from_server.readuntil(b"\r\n\r\n")
            if is_write and fault == "cut":
                writer.transport.abort()
                return False
            writer.write(answer.replace(b"Connection: close\r\n", b""))
            left = 0 if head.startswith(b"HEAD") or b" 204 " in answer[:16] else _content_length(answer)
            stop = left // 2 if fault in ("cut", "stall") else 0
            while left > stop:
                part = await from_server.read(min(CHUNK, left - stop))
                if not part:
                    raise ConnectionError("the server ended in the middle of a body")
                writer.write(part)
                await writer.drain()
                left -= len(part)
                if faults.bytes_per_second:
                    await asyncio.sleep(len(part) / faults.bytes_per_second)
            if fault == "stall":
                await asyncio.sleep(SILENCE_SECONDS)
            if stop:
                writer.transport.abort()
            return not stop
        finally:
            to_server.close()

    def _fault(self, faults: Faults) -> str:
        if self.script:
            return self.script.pop(0)
        chance = self._random.random()
        shares = {"503": faults.busy, "reset": faults.reset, "cut": faults.cut}
        for name, share in (shares | {"stall": faults.stall, "short": faults.short}).items():
            if chance < share:
                return name
            chance -= share
        return ""


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0
