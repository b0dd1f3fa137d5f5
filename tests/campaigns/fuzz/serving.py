"""A server in a thread of this process, whose faults are noted: whatever is logged as an error is one."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from service.server.run import Server, listen
from service.settings import Settings

__all__ = ["LEARNERS", "Served", "served"]

_PATIENCE = 120.0  # seconds
LEARNERS: dict[str, dict[str, Any]] = {
    "dense": {"algorithm": "loam-ada", "features": {"kind": "dense", "dim": 3}, "window": 50, "remembered_ids": 1000},
    "table": {
        "algorithm": "cbr",
        "params": {"capacity": 3},
        "features": {
            "kind": "table",
            "fields": [{"name": "amount", "kind": "numeric"}, {"name": "shop", "kind": "categorical", "categories": 4}],
        },
    },
    "named": {"algorithm": "cbr-diag", "features": {"kind": "named"}, "window": 50},
    "sparse": {"algorithm": "fofo", "features": {"kind": "sparse", "dim": 50}, "window": 50},
    "ordinal": {"algorithm": "npsvor", "params": {"ranks": 3}, "features": {"kind": "dense", "dim": 3}},
}


class _Faults(logging.Handler):
    """Keeps what is logged as an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = logging.Formatter().format(record)
        self.found.append(f"logged by {record.name}: {text}")


class Served:
    """The server that runs."""

    def __init__(self, url: str, server: Server, faults: _Faults) -> None:
        self.url = url
        self.port = int(url.rpartition(":")[2])
        self.server = server
        self._faults = faults
        self.http = httpx.Client(base_url=url, timeout=_PATIENCE, trust_env=False)

    def faults(self) -> list[str]:
        """What has been logged since this was asked before."""
        found, self._faults.found = self._faults.found, []
        return found

    def create(self) -> None:
        """The learners that there should be."""
        for name, config in LEARNERS.items():
            if self.http.get(f"/v1/learners/{name}").status_code == 404:
                self.http.put(f"/v1/learners/{name}", json=config).raise_for_status()

    def alive(self) -> bool:
        """Whether it answers."""
        return self.http.get("/v1/health/ready").status_code == 200

    def digest(self, name: str) -> tuple[int, str]:
        """A learner's position, and the hash of its state."""
        found = self.http.get(f"/v1/learners/{name}/digest").raise_for_status().json()
        return found["position"], found["digest"]


@contextmanager
def served(**settings: Any) -> Iterator[Served]:
    """A server on a free port, with `LEARNERS`."""
    listener = listen("127.0.0.1", 0)
    ready = threading.Event()
    server = Server(Settings(**{"store": "memory:", **settings}), listener, ready=ready.set)
    faults = _Faults()
    logging.getLogger().addHandler(faults)
    thread = threading.Thread(target=server.run, name="server")
    thread.start()
    try:
        if not ready.wait(_PATIENCE):
            raise TimeoutError("the server did not start")
        running = Served(server.url, server, faults)
        with running.http:
            running.create()
            yield running
    finally:
        server.should_exit = True
        thread.join(_PATIENCE)
        logging.getLogger().removeHandler(faults)
