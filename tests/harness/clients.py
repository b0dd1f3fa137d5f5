"""Use both kinds of Python client in the same way, and over a network that loses requests and replies."""

from __future__ import annotations

import asyncio
import http.client
import inspect
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Literal, Self

from rarestream import AsyncClient, AsyncLearnerStream, AsyncRemoteLearner, AsyncStreamReply, Client

__all__ = ["KINDS", "Fault", "client", "lossy"]

KINDS = ["sync", "async"]
Fault = Literal["none", "half", "answer"]


@contextmanager
def client(kind: str, url: str, **settings: Any) -> Iterator[Any]:
    """Yield a `Client`, or an `AsyncClient` whose calls block; every test runs on both."""
    if kind == "sync":
        with Client(url, **settings) as blocking:
            yield blocking
        return
    with asyncio.Runner() as runner, Awaited(AsyncClient(url, **settings), runner) as awaited:
        yield awaited


class Awaited:
    """Wraps an object of the asynchronous client; its methods block."""

    def __init__(self, inner: Any, runner: asyncio.Runner) -> None:
        self._inner = inner
        self._runner = runner

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._inner, name)
        if not callable(attribute):
            return attribute

        def call(*arguments: Any, **named: Any) -> Any:
            result = attribute(*arguments, **named)
            if inspect.iscoroutine(result):
                result = self._runner.run(result)
            if isinstance(result, (AsyncRemoteLearner, AsyncLearnerStream, AsyncStreamReply)):
                return Awaited(result, self._runner)
            return result

        return call

    def result(self) -> Any:
        """Wait for a reply of a stream."""

        async def awaited() -> Any:
            return await self._inner

        return self._runner.run(awaited())

    def __enter__(self) -> Self:
        self._runner.run(self._inner.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._runner.run(self._inner.__aexit__(kind, error, trace))


@contextmanager
def lossy(port: int, faults: Sequence[Fault], on_loss: Callable[[], None]) -> Iterator[str]:
    """Yield the URL of a proxy to the service on `port` that spoils the first requests, one fault each.

    "half": half of the request arrives. "answer": all of it does, and is answered, but the answer gets lost. Then
    `on_loss` is called, and the client's connection ends.
    """
    left = iter(faults)

    class Way(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            fault = next(left, "none")
            if fault == "half":
                with socket.create_connection(("127.0.0.1", port)) as upstream:
                    head = f"{self.command} {self.path} HTTP/1.1\r\n{self.headers}".replace("\r\n", "\n")
                    upstream.sendall(head.replace("\n", "\r\n").encode() + body[: len(body) // 2])
            else:
                status, kind, answer = self._passed_on(body)
            if fault == "none":
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)
            else:
                on_loss()
                self.close_connection = True

        do_GET = do_PUT = do_POST

        def _passed_on(self, body: bytes) -> tuple[int, str, bytes]:
            upstream = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
            try:
                upstream.request(self.command, self.path, body, dict(self.headers.items()))
                response = upstream.getresponse()
                return response.status, response.headers["Content-Type"], response.read()
            finally:
                upstream.close()

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Way)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
