"""A server in a thread of this process, whose faults are noted: whatever is logged as an error is one."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from service.settings import Settings
from tests.harness.threads import Threaded, in_thread

__all__ = ["LEARNERS", "Served", "served"]

_PATIENCE = 300.0  # seconds
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
        self.entries: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = logging.Formatter().format(record)
        self.entries.append(f"logged by {record.name}: {text}")


class Served:
    """The server that runs."""

    def __init__(self, running: Threaded, faults: _Faults) -> None:
        self.url, self.port, self.server = running.url, running.port, running.server
        self._faults = faults
        self.http = httpx.Client(base_url=self.url, timeout=_PATIENCE, trust_env=False)

    def faults(self) -> list[str]:
        """Return what has been logged since this was asked before."""
        actual, self._faults.entries = self._faults.entries, []
        return actual

    def create(self) -> None:
        """Return the learners that there should be."""
        for name, config in LEARNERS.items():
            if self.http.get(f"/v1/learners/{name}").status_code == 404:
                self.http.put(f"/v1/learners/{name}", json=config).raise_for_status()

    def alive(self) -> bool:
        """Whether it answers."""
        return self.http.get("/v1/health/ready").status_code == 200

    def digest(self, name: str) -> tuple[int, str]:
        """Return a learner's position, and the hash of its state."""
        document = self.http.get(f"/v1/learners/{name}/digest").raise_for_status().json()
        return document["position"], document["digest"]


@contextmanager
def served(**settings: Any) -> Iterator[Served]:
    """Return a server on a free port, with `LEARNERS`."""
    faults = _Faults()
    logging.getLogger().addHandler(faults)
    try:
        with in_thread(Settings(**{"store": "memory:", **settings})) as running:
            actual = Served(running, faults)
            with actual.http:
                actual.create()
                yield actual
    finally:
        logging.getLogger().removeHandler(faults)
