"""`rarestream consume` as a process of its own, for tests that kill it, and the events that they give it."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

import httpx

__all__ = ["CONFIG", "Consumer", "Target", "event"]

CONFIG: dict[str, Any] = {
    "algorithm": "cbr",
    "params": {"capacity": 5},
    "features": {"kind": "dense", "dim": 2},
    "window": 500,
    "seed": 7,
}
_PATIENCE = 300.0  # seconds


def event(number: int, *, labelled: bool = True, id: str | None = None, **more: Any) -> bytes:
    """Event `number` of the stream as a message; the same number is the same event."""
    rng = random.Random(number)
    label = int(rng.random() < 0.3)
    found: dict[str, Any] = {"x": [rng.gauss(label, 1.0), rng.gauss(0.0, 1.0)], **more}
    if labelled:
        found["label"] = label
    if id is not None:
        found["id"] = id
    return json.dumps(found).encode()


class Target:
    """A learner of a running service; a context manager, which kills the consumers that are left at the end."""

    def __init__(self, url: str, name: str, config: dict[str, Any] = CONFIG) -> None:
        self.url, self.name = url, name
        self.consumers: list[Consumer] = []  # that feed it
        self._ask("PUT", "", config)

    def _ask(self, method: str, what: str, document: object = None) -> dict[str, Any]:
        path = f"{self.url}/v1/learners/{self.name}{what}"
        reply = httpx.request(method, path, json=document, timeout=300, trust_env=False)
        found: dict[str, Any] = reply.raise_for_status().json()
        return found

    def get(self, what: str = "") -> dict[str, Any]:
        """Its document, or one of those under it."""
        return self._ask("GET", what)

    def post(self, what: str, document: object = None) -> dict[str, Any]:
        """The reply to one request."""
        return self._ask("POST", what, document)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self.consumers:
            one.kill()

    @property
    def learnt(self) -> int:
        """Labelled events in all, each as often as it was learnt."""
        return sum(self.get()["class_counts"].values())

    def said_of(self, numbers: range) -> list[Any]:
        """Scores of events by what it has learnt, to the bit, and its AUC over the window."""
        events = [json.loads(event(number, labelled=False)) for number in numbers]
        scores = [one["score"] for one in self.post("/predict", {"events": events})["results"]]
        return [*scores, self.get("/metrics")["window"]["auc"]]

    def sent_at_once(self, source: str, messages: list[tuple[int, bytes]]) -> Target:
        """Another learner, that got the events, with their numbers, in one request."""
        other = Target(self.url, f"{self.name}-at-once")
        offsets = [number for number, _ in messages]
        events = [json.loads(value) for _, value in messages]
        other.post("/update", {"source": {"name": source, "offsets": offsets}, "events": events})
        return other


class Consumer:
    """One process; `log` is what it says, of all its starts."""

    def __init__(self, target: Target, source: str, folder: Path, *options: str, **environment: str) -> None:
        self.log = folder / "consumer.log"
        self._out = folder / "consumer.json"
        self._command = [sys.executable, "-m", "service", "consume", source, "--json"]
        self._command += ["--learner", target.name, "--url", target.url, *options]
        self._environment = {**os.environ, **environment}
        self._process: subprocess.Popen[bytes] | None = None
        target.consumers.append(self)

    def start(self, *options: str) -> None:
        """Start it; it reads when it has said so."""
        with self.log.open("ab") as log, self._out.open("wb") as out:
            self._process = subprocess.Popen(
                [*self._command, *options], stdout=out, stderr=log, env=self._environment, stdin=subprocess.DEVNULL
            )

    def wait(self) -> int:
        """Its exit status, when it has ended."""
        assert self._process is not None
        status = self._process.wait(_PATIENCE)
        self._process = None
        return status

    def run(self, *options: str) -> dict[str, Any]:
        """To the end of what is there now: what it did. Raises RuntimeError where it fails."""
        self.start("--once", *options)
        if status := self.wait():
            raise RuntimeError(f"it ended with {status}: {self.said()[-2000:]}")
        return self.did()

    def did(self) -> dict[str, Any]:
        """What it printed at its end."""
        found: dict[str, Any] = json.loads(self._out.read_text())
        return found

    def said(self) -> str:
        """Everything that it said so far."""
        return self.log.read_text() if self.log.exists() else ""

    def fail(self, *options: str) -> tuple[int, str]:
        """To its end, which is a failure: the exit status, and what it said."""
        before = len(self.said())
        self.start("--once", *options)
        return self.wait(), self.said()[before:]

    def kill(self) -> None:
        """SIGKILL: no handler runs, nothing is flushed. Nothing where it does not run."""
        if self._process is not None:
            self.stop(signal.SIGKILL)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send it a signal; its exit status."""
        assert self._process is not None
        self._process.send_signal(number)
        return self.wait()
