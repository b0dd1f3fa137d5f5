"""A service for the browser's tests, with learners and a stream that goes on while a test looks."""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import numpy as np

from tests.harness.process import Process

__all__ = ["COLUMNS", "T0", "Serving", "Stream"]

COLUMNS = 4
T0 = 1_767_225_600.0  # 2026-01-01T00:00:00Z: the events' times


class Serving:
    """A process of the service, and a client of it."""

    def __init__(self, folder: Path, **settings: object) -> None:
        self.database = folder / "store.db"
        self.process = Process(f"sqlite:///{self.database}", folder / "log", **settings)
        self.url = self.process.url
        self.http = httpx.Client(base_url=f"{self.url}/v1", timeout=300, trust_env=False)
        self._event_counts: dict[str, int] = {}

    def __enter__(self) -> Self:
        self.process.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.http.close()
        self.process.kill()

    def create(self, name: str, **config: Any) -> None:
        """Create a learner, of dense events unless `config` differs."""
        body = {"algorithm": "loam-ada", "features": {"kind": "dense", "dim": COLUMNS}, **config}
        self.http.put(f"/learners/{name}", json=body).raise_for_status()

    def feed(self, path: str, count: int, **options: Any) -> None:
        """Send the next `count` events of the stream to a learner or a group: `learners/NAME` or `groups/NAME`."""
        start = self._event_counts.get(path, 0)
        for first in range(start, start + count, 500):
            body = {"events": events(first, min(first + 500, start + count), **options)}
            self.http.post(f"/{path}/update", json=body).raise_for_status()
        self._event_counts[path] = start + count


def events(start: int, stop: int, *, shift: float = 2.0) -> list[dict[str, Any]]:
    """Labelled events of a stream, one in ten positive; the same at every call."""
    created = []
    for i in range(start, stop):
        label = int(i % 10 == 3)
        x = np.random.default_rng(i).normal(size=COLUMNS) + np.array([shift * label, 0, 0, 0])
        created.append({"id": f"e{i}", "time": T0 + 10 * i, "x": x.round(3).tolist(), "label": label})
    return created


class Stream:
    """Feeds a learner or a group from a thread, until its block ends; a service that is away is waited for."""

    def __init__(self, serving: Serving, path: str, batch: int = 40, pause: float = 0.1) -> None:
        self._serving = serving
        self._path = path
        self._batch = batch
        self._pause = pause
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._over.wait(self._pause):
            try:
                self._serving.feed(self._path, self._batch)
            except (httpx.TransportError, httpx.HTTPStatusError):
                continue  # the same events again: they have ids

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
