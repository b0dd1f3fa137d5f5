"""HTTP/1.1 load: persistent connections with one request in flight on each, and the latency of every request.

Its own few lines, as a library's client costs more per request than the server does, and `wrk` neither sends another id
with each request nor tells a p99.9. A reply is read as far as its status and its length go.
"""

from __future__ import annotations

import asyncio
import gc
import json
from array import array
from collections.abc import Callable, Iterator
from time import perf_counter_ns, process_time
from typing import NamedTuple, cast

import numpy as np
import uvloop
from numpy.typing import NDArray

__all__ = ["LoadFailed", "Traffic", "drive"]

_LENGTH = b"\r\ncontent-length:"
_PATIENCE = 60.0  # seconds beyond the end for the last replies


class LoadFailed(Exception):
    """A reply was an error, or no reply came."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(f"HTTP {status}: {detail}" if status else detail)
        self.status = status  # 0 where no reply came


class Traffic(NamedTuple):
    """Measurements of one run."""

    latencies: NDArray[np.float64]  # milliseconds, of each request in the order of the replies
    seconds: float  # from the first request to the last reply
    client: float  # processor seconds of the sender
    server: float  # what `meter` grew by
    replies: list[bytes]  # bodies in the order of their requests, with `keep_replies`


class _Load:
    """State that the connections of one run share."""

    def __init__(self, requests: Iterator[bytes], keep_replies: bool) -> None:
        self.requests = requests
        self.keep_replies = keep_replies
        self.replies: dict[int, bytes] = {}
        self.requests_sent = 0
        self.under_way = 0
        self.latencies = array("q")
        self.until = 0
        self.last = 0
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def fail(self, status: int, detail: str) -> None:
        if not self.finished.done():
            self.finished.set_exception(LoadFailed(status, detail))


class _Connection(asyncio.Protocol):
    def __init__(self, load: _Load) -> None:
        self._load = load
        self._transport: asyncio.Transport  # from connection_made on
        self._asking = False
        self._began = 0
        self._number = 0
        self._buffer = b""  # of the reply: the first pieces; all of it with `keep_replies` or for an error
        self._missing = -1  # missing bytes of the body; -1 until the head is complete

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # the transport of uvloop has another base class

    def connection_lost(self, exc: Exception | None) -> None:
        if self._asking:  # an idle connection may be closed before the end
            self._load.fail(0, f"the server closed a connection: {exc or 'no reason given'}")

    def close(self) -> None:
        self._transport.abort()

    def send(self) -> None:
        """Send the next request, unless the time is over or there is none."""
        load = self._load
        now = perf_counter_ns()
        request = next(load.requests, None) if now < load.until else None
        if request is None:
            if load.under_way == 0 and not load.finished.done():
                load.finished.set_result(None)
            return
        load.under_way += 1
        self._asking = True
        self._number = load.requests_sent
        load.requests_sent += 1
        self._began = now
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        if self._missing < 0:
            self._buffer += data
            head = self._buffer.find(b"\r\n\r\n")
            if head < 0:
                return
            length = self._length(head)
            if length < 0:
                return
            self._missing = length - (len(self._buffer) - head - 4)
        else:
            self._missing -= len(data)
            if self._load.keep_replies or self._buffer[9:10] != b"2":
                self._buffer += data
        if self._missing == 0:
            self._answered()

    def _length(self, head: int) -> int:
        """Return the length of the body; fail the run and return -1 if the head does not have it."""
        start = self._buffer[: head + 2].lower().find(_LENGTH)  # Flask capitalises names
        if start < 0:
            self._load.fail(0, f"a reply without content-length: {self._buffer[:head].decode(errors='replace')}")
            return -1
        end = self._buffer.index(b"\r\n", start + 2)
        return int(self._buffer[start + len(_LENGTH) : end])

    def _answered(self) -> None:
        load = self._load
        load.last = perf_counter_ns()
        load.latencies.append(load.last - self._began)
        load.under_way -= 1
        self._asking = False
        if load.keep_replies or self._buffer[9:10] != b"2":
            body = self._buffer.partition(b"\r\n\r\n")[2]
            if self._buffer[9:10] != b"2":
                load.fail(int(self._buffer[9:12]), _error_detail(body))
                return
            load.replies[self._number] = body
        self._buffer, self._missing = b"", -1
        self.send()


def _error_detail(body: bytes) -> str:
    """Return the detail of a problem+json, else the beginning of the body."""
    try:
        return str(json.loads(body)["detail"])
    except (ValueError, LookupError, TypeError):
        return body[:500].decode(errors="replace")


def drive(
    port: int,
    requests: Iterator[bytes],
    connections: int,
    seconds: float = float("inf"),
    meter: Callable[[], float] = lambda: 0.0,
    keep_replies: bool = False,
) -> Traffic:
    """Send `requests` on `connections`, one at a time on each, until they end or `seconds` are over.

    `meter` is read when all are connected and after the last reply. Raises `LoadFailed` for a reply other than 2xx, for
    a connection that ends, and for silence.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_drive(port, requests, connections, seconds, meter, keep_replies))


async def _drive(
    port: int,
    requests: Iterator[bytes],
    connections: int,
    seconds: float,
    meter: Callable[[], float],
    keep_replies: bool,
) -> Traffic:
    loop = asyncio.get_running_loop()
    load = _Load(requests, keep_replies)
    opened = [
        (await loop.create_connection(lambda: _Connection(load), "127.0.0.1", port))[1] for _ in range(connections)
    ]
    collected = gc.isenabled()
    gc.disable()  # a collection here would count as latency of the server
    try:
        server, client = meter(), process_time()
        began = perf_counter_ns()
        endless = seconds == float("inf")
        load.until = 2**62 if endless else began + int(seconds * 1e9)
        for connection in opened:
            connection.send()
        await asyncio.wait_for(load.finished, None if endless else seconds + _PATIENCE)
        client, server = process_time() - client, meter() - server
    except TimeoutError:
        raise LoadFailed(0, f"{load.under_way} requests are not answered {_PATIENCE:.0f} s after the end") from None
    finally:
        if collected:
            gc.enable()
        if not load.finished.done():
            load.finished.cancel()  # a close is no failure from here on
        for connection in opened:
            connection.close()
    replies = [load.replies[number] for number in sorted(load.replies)]
    return Traffic(np.array(load.latencies) / 1e6, (load.last - began) / 1e9, client, server, replies)
