"""Connections that stay open for long leave file descriptors to the others."""

from __future__ import annotations

import logging
import resource

import pytest

from service.server.acceptor import limit_connections
from service.settings import Settings


@pytest.mark.parametrize(
    ("limit", "websockets", "streams"),
    [(1024, 256, 100), (256, 64, 64), (400, 100, 100), (resource.RLIM_INFINITY, 256, 100)],
)
def test_websockets_and_streams_take_a_quarter_of_the_descriptors_each(
    limit: int, websockets: int, streams: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    with caplog.at_level(logging.WARNING, "rarestream.connections"):
        limited = limit_connections(Settings(ws_connections=256, max_streams=100))
    assert (limited.ws_connections, limited.max_streams) == (websockets, streams)
    warnings = " ".join(caplog.messages)
    assert ("ws_connections is" in warnings) is (websockets < 256)
    assert ("max_streams is" in warnings) is (streams < 100)
