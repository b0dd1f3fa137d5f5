"""Starts the service as a process and talks to it by the standard library's HTTP client."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from tests.harness.process import Process

__all__ = ["Reply", "Service", "serve"]

_SECONDS = 600  # for a reply with a cold kernel cache


class Reply(NamedTuple):
    """A reply over HTTP."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


class Service:
    """A running service."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._connection = HTTPConnection("127.0.0.1", port, timeout=_SECONDS)

    def request(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Reply:
        """Send a request and read the reply. A body that is not bytes goes as JSON."""
        headers = dict(headers or {})
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            headers = {"content-type": "application/json", **headers}
        self._connection.request(method, path, body=body, headers=headers)
        reply = self._connection.getresponse()
        return Reply(reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read())

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


@contextmanager
def serve(store: str, settings: Mapping[str, object] | None = None, kill: bool = False) -> Iterator[Service]:
    """Run `rarestream serve` over this store on a free port until the block ends, then stop it or kill it."""
    with TemporaryDirectory() as folder:
        process = Process(store, Path(folder, "log"), **(settings or {}))
        process.start()
        service = Service(process.port)
        try:
            yield service
        finally:
            service.close()
            process.kill() if kill else process.stop()
