"""Run `rarestream consume` as a process that tests can kill, and make events for it."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from pathlib import Path
from typing import Any, Self

import httpx

from tests.harness.forked import ForkedProgram, start_program

__all__ = ["CONFIG", "Consumer", "Target", "event"]

CONFIG: dict[str, Any] = {
    "algorithm": "cbr",
    "params": {"capacity": 5},
    "features": {"kind": "dense", "dim": 2},
    "threshold": {"cautious": False},  # so that some of a few events are alerts
    "window": 500,
    "seed": 7,
}
_PATIENCE = 300.0  # seconds


def event(number: int, *, labelled: bool = True, id: str | None = None, **more: Any) -> bytes:
    """Return event `number` of the stream as a message; the same number gives the same event."""
    rng = random.Random(number)
    label = int(rng.random() < 0.3)
    result: dict[str, Any] = {"x": [rng.gauss(label, 1.0), rng.gauss(0.0, 1.0)], **more}
    if labelled:
        result["label"] = label
    if id is not None:
        result["id"] = id
    return json.dumps(result).encode()


class Target:
    """A learner of a running service; a context manager that kills the remaining consumers at its end."""

    def __init__(self, url: str, name: str, config: dict[str, Any] = CONFIG) -> None:
        self.url, self.name = url, name
        self.consumers: list[Consumer] = []  # that feed it
        self._ask("PUT", "", config)

    def _ask(self, method: str, what: str, document: object = None) -> dict[str, Any]:
        path = f"{self.url}/v1/learners/{self.name}{what}"
        reply = httpx.request(method, path, json=document, timeout=300, trust_env=False)
        members: dict[str, Any] = reply.raise_for_status().json()
        return members

    def get(self, what: str = "") -> dict[str, Any]:
        """Get the learner's document, or one below it."""
        return self._ask("GET", what)

    def post(self, what: str, document: object = None) -> dict[str, Any]:
        """Post a request and return the reply."""
        return self._ask("POST", what, document)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for consumer in self.consumers:
            consumer.kill()

    @property
    def learnt(self) -> int:
        """Count the labelled events, each as often as it was learnt."""
        return sum(self.get()["class_counts"].values())

    def said_of(self, numbers: range) -> list[Any]:
        """Return the scores of these events, exact to the bit, and the AUC over the window."""
        events = [json.loads(event(number, labelled=False)) for number in numbers]
        scores = [result["score"] for result in self.post("/predict", {"events": events})["results"]]
        return [*scores, self.get("/metrics")["window"]["auc"]]

    def sent_at_once(self, source: str, messages: list[tuple[int, bytes]]) -> Target:
        """Create another learner and send it all events, with their numbers, in one request."""
        other = Target(self.url, f"{self.name}-at-once")
        offsets = [number for number, _ in messages]
        events = [json.loads(value) for _, value in messages]
        other.post("/update", {"source": {"name": source, "offsets": offsets}, "events": events})
        return other


class Consumer:
    """One process; `log` has the standard error of all its starts."""

    def __init__(self, target: Target, source: str, folder: Path, *options: str, **environment: str) -> None:
        self.log = folder / "consumer.log"
        self._out = folder / "consumer.json"
        self._arguments = ["consume", source, "--json", "--learner", target.name, "--url", target.url, *options]
        self._environment = {**os.environ, **environment}
        self._process: subprocess.Popen[bytes] | ForkedProgram | None = None
        target.consumers.append(self)

    def start(self, *options: str) -> None:
        """Start the process; its log says when it reads."""
        self._out.write_bytes(b"")
        self._process = start_program([*self._arguments, *options], self._environment, self._out, self.log)

    def wait(self) -> int:
        """Wait for the end and return the exit status."""
        assert self._process is not None
        status = self._process.wait(_PATIENCE)
        self._process = None
        return status

    def run(self, *options: str) -> dict[str, Any]:
        """Consume the messages that are there now and return the summary. Raises RuntimeError if it fails."""
        self.start("--once", *options)
        if status := self.wait():
            raise RuntimeError(f"it ended with {status}: {self.output()[-2000:]}")
        return self.did()

    def did(self) -> dict[str, Any]:
        """Return the summary that it printed at its end."""
        result: dict[str, Any] = json.loads(self._out.read_text())
        return result

    def output(self) -> str:
        """Return everything on standard error so far."""
        return self.log.read_text() if self.log.exists() else ""

    def fail(self, *options: str) -> tuple[int, str]:
        """Run to a failure; return the exit status and the standard error."""
        before = len(self.output())
        self.start("--once", *options)
        return self.wait(), self.output()[before:]

    def kill(self) -> None:
        """Send SIGKILL: no handler runs, nothing is flushed. Does nothing if it does not run."""
        if self._process is not None:
            self.stop(signal.SIGKILL)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and return the exit status."""
        assert self._process is not None
        self._process.send_signal(number)
        return self.wait()
