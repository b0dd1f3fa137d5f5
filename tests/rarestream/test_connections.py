"""Connections of a client in several processes and event loops, and settings of the network that are unusable."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from rarestream import AsyncClient, Client, InvalidSetting
from rarestream.client.service_address import ServiceAddress
from rarestream.client.sync_stream import LearnerStream


class Connected(BaseHTTPRequestHandler):
    """Answers with the version "ADDRESS": that of the connection."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = b'{"version":"%d"}' % self.client_address[1]
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Connected)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def in_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Continue with another process's number, as after a fork."""
    process = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: process + 1)


def test_a_forked_process_opens_connections_of_its_own(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Client(url) as client:
        connection = client.version()
        assert client.version() == connection
        with monkeypatch.context() as forked:
            in_another_process(forked)
            other = client.version()
            assert other != connection
            assert client.version() == other
            client.close()
        assert client.version() == connection  # it is still open


def test_an_event_loop_opens_connections_of_its_own(url: str) -> None:
    client = AsyncClient(url)

    async def versions() -> set[str]:
        try:
            return {await client.version(), await client.version()}
        finally:
            await client.close()  # those of this loop; another one opens its own all the same

    first, second = asyncio.run(versions()), asyncio.run(versions())
    assert len(first) == len(second) == 1
    assert first != second


def test_a_forked_process_cannot_use_an_open_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = LearnerStream(ServiceAddress("http://127.0.0.1:1", 1.0, None, None, False), "a", 1)
    stream._socket, stream._process = object(), os.getpid()  # type: ignore[assignment]
    in_another_process(monkeypatch)
    with pytest.raises(RuntimeError, match="opened by another process"):
        stream.predict([{"a": 1}])
    stream.__exit__(None, None, None)  # leaves the connection to the process that opened it


@pytest.mark.parametrize(
    ("variable", "value"),
    [("NO_PROXY", "[::1]"), ("HTTP_PROXY", "http://[::1"), ("ALL_PROXY", "socks4://x"), ("SSL_CERT_FILE", "/nowhere")],
)
def test_unusable_network_settings_are_named(monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    monkeypatch.setenv(variable, value)
    for kind in (Client, AsyncClient):
        with pytest.raises(InvalidSetting, match="correct NO_PROXY") as refused:
            kind("http://10.0.0.1:8000")
        assert refused.value.setting == "network"


def test_blanks_and_line_ends_around_a_url_and_a_key_are_no_part_of_them() -> None:
    address = ServiceAddress(" http://10.0.0.1:8000\r\n", 1.0, None, None, False, " rs_abc\n")
    assert address.url == "http://10.0.0.1:8000"
    assert address.http["headers"]["Authorization"] == "Bearer rs_abc"
