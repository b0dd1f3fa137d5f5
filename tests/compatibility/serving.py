"""Starts the service as a process and talks to it by the standard library's HTTP client."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Reply", "Service", "serve", "source_folder"]

_SECONDS = 120  # for a start with a cold kernel cache


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


def source_folder() -> Path:
    """Return the folder that holds the package `service` under test."""
    spec = find_spec("service")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parents[1]


@contextmanager
def serve(
    store: str, *options: str, environment: Mapping[str, str] | None = None, kill: bool = False
) -> Iterator[Service]:
    """Run `python -m service serve` over this store on a free port until the block ends, then stop it or kill it."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("RARESTREAM_")}
    command = [sys.executable, "-m", "service", "serve", "--store", store, "--port", "0", "--json", *options]
    process = subprocess.Popen(
        [*command, "--log-level", "error"],
        cwd=source_folder(),
        env=clean | dict(environment or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"the service did not start: {process.stderr.read()[-2000:]}")
        service = Service(int(json.loads(line)["url"].rpartition(":")[2].strip("/")))
        try:
            yield service
        finally:
            service.close()
    finally:
        process.kill() if kill else process.terminate()
        process.wait(timeout=60)
        process.stdout.close()
        process.stderr.close()
