"""A server in a thread, its learner, and clients on raw sockets: for what connections answer themselves."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, NamedTuple

import httpx
import msgspec
import numpy as np

from service.api.app import Application
from service.settings import Settings
from service.telemetry.log_writer import LineWriter
from tests.harness.apps import DENSE, events
from tests.harness.threads import Threaded, in_thread

URL = "/v1/learners/fraud"
PATIENCE = 300.0  # seconds
BODY = b'{"events": [{"x": [1, 2, 3]}]}'
NAMED = b'{"events": [{"x": [1, 2, 3], "id": "a"}]}'
ROUTE = ("POST", "/v1/learners/{name}/predict")
X = np.array([[1.0, 2.0, 3.0]])
PACKED = msgspec.msgpack.encode({"x": {"dtype": "float64", "shape": [1, 3], "data": X.tobytes()}})


class Reply(NamedTuple):
    """What a raw socket reads."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        return dict(self.headers).get(name)

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def request(body: bytes = BODY, path: str = f"{URL}/predict", method: str = "POST", **headers: str) -> bytes:
    """Build a request; `headers` have _ for -; a length of None is not sent."""
    fields = {"host": "localhost", "content-type": "application/json", "content-length": str(len(body))}
    fields |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + body


class Connection:
    """One client."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self._file: BinaryIO = self.socket.makefile("rb")

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def reply(self, empty: bool = False) -> Reply:
        """Read the next reply; `empty`: it has no body, whatever its length says."""
        status = self._file.readline()
        assert status.startswith(b"HTTP/1.1 "), status
        headers = []
        while (line := self._file.readline()) != b"\r\n":
            assert line
            name, _, value = line.decode().rstrip("\r\n").partition(": ")
            headers.append((name, value))
        length = 0 if empty else int(dict(headers)["content-length"])
        return Reply(int(status.split()[1]), headers, self._file.read(length))

    def ask(self, data: bytes) -> Reply:
        self.send(data)
        return self.reply()

    def ended(self) -> bool:
        """Whether the server closes it, now or later, with nothing more to say."""
        return self._file.read() == b""

    def close(self) -> None:
        self._file.close()
        self.socket.close()


class Service:
    """A server in a thread, which counts the requests that reach the ASGI path."""

    def __init__(self, running: Threaded) -> None:
        self.server = running.server
        self.port = running.port
        self.by_asgi = 0
        self.app: Application = running.server.config.app  # type: ignore[assignment]
        self.stop = running.stop
        self._open: list[Connection] = []

    def connect(self) -> Connection:
        self._open.append(Connection(self.port))
        return self._open[-1]

    def ask(self, data: bytes) -> Reply:
        return self.connect().ask(data)

    def http(self, method: str, path: str, **more: Any) -> httpx.Response:
        url = f"http://127.0.0.1:{self.port}{path}"
        return httpx.request(method, url, timeout=PATIENCE, trust_env=False, **more)

    @contextmanager
    def over_asgi(self, count: int) -> Iterator[None]:
        """Expect so many requests over ASGI meanwhile."""
        before = self.by_asgi
        yield
        assert self.by_asgi - before == count

    def answered(self, status: int = 200) -> int:
        """Predicts that are counted."""
        result = self.app.state.access.requests.get((*ROUTE, status))
        return 0 if result is None else result.count

    def close(self) -> None:
        for item in self._open:
            item.close()


@contextmanager
def served(lines: LineWriter | None = None, **settings: Any) -> Iterator[Service]:
    """Run a service with one trained learner; the setting `uvicorn` changes uvicorn's configuration."""
    configured: dict[str, Any] = settings.pop("uvicorn", {})
    with in_thread(Settings(store="memory:", **settings), lines=lines, uvicorn=configured) as running:
        service = Service(running)
        fast_path: Any = service.app._fast_path
        answer = fast_path.answer

        async def counted(*arguments: Any) -> None:
            service.by_asgi += 1
            await answer(*arguments)

        fast_path.answer = counted
        try:
            assert service.http("PUT", URL, json=DENSE).status_code == 201
            assert service.http("POST", f"{URL}/update", json={"events": events(20)}).status_code == 200
            yield service
        finally:
            service.close()
