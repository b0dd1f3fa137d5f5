"""Run a server in a thread of this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from service.server.run import Server, listen
from service.settings import Settings
from service.telemetry.log_writer import LineWriter
from tests.harness.waiting import PATIENCE

__all__ = ["Threaded", "in_thread"]


class Threaded:
    """A server and its thread."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.url = server.url
        self.port = int(server.url.rpartition(":")[2])
        self._thread = threading.Thread(target=server.run, name="server")
        self.start = self._thread.start

    def stop(self) -> None:
        """Stop it in order, and wait."""
        self.server.should_exit = True
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()


@contextmanager
def in_thread(
    settings: Settings, *, lines: LineWriter | None = None, uvicorn: Mapping[str, Any] | None = None
) -> Iterator[Threaded]:
    """Serve on a free port from the start to the end of the block; `uvicorn` changes its configuration."""
    ready = threading.Event()
    server = Server(settings, listen("127.0.0.1", 0), ready=ready.set, lines=lines)
    for name, value in (uvicorn or {}).items():
        setattr(server.config, name, value)
    if uvicorn:
        server.config.loaded = False
        server.config.load()
    running = Threaded(server)
    running.start()
    try:
        if not ready.wait(PATIENCE):
            raise TimeoutError("the server did not start")
        yield running
    finally:
        running.stop()
