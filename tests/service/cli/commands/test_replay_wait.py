"""Replays that wait for the fits of a batch algorithm."""

from __future__ import annotations

import signal
from pathlib import Path

import httpx
import pytest
from rich.console import Console

from rarestream import Client
from service.cli.replay_engine import ReplayPlan, replay_file
from service.datasets.packed_text import File
from service.datasets.values import RowColumns
from service.pacing import Interruption

pytestmark = pytest.mark.integration


class Fitting:
    """A service whose learner is fitted after each update, until `looks` reads of it; None: forever.

    In that case Ctrl-C arrives at the third read.
    """

    def __init__(self, looks: int | None) -> None:
        self.methods: list[str] = []  # the method of each request
        self._looks = looks
        self._since: int | None = None  # looks since the last update

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.methods.append(request.method)
        if request.method == "POST":
            self._since = 0
            return httpx.Response(200, json={"applied": 10, "duplicate": 0, "position": 1})
        if request.url.path.endswith("/metrics"):
            return httpx.Response(200, json={})
        if request.url.path.endswith("/fields"):
            return httpx.Response(200, json={"reason": None, "fields": [], "absent": [], "omitted": False})
        running = self._since is not None and (self._looks is None or self._since < self._looks)
        if self._since is not None:
            self._since += 1
            if self._looks is None and self._since == 3:
                signal.raise_signal(signal.SIGINT)
        document = {
            "name": "a",
            "birth": "0123456789abcdef",
            "config": {"features": {"kind": "named"}},
            "class_counts": {"negative": 0, "positive": 0},
            "ready": False,
            "not_ready": "the first fit is awaited",
            "sources": {},
            "fit": {"events": 0, "running": running, "waiting": False, "failed": None},
        }
        return httpx.Response(200, json=document)


@pytest.fixture
def thirty(tmp_path: Path) -> Path:
    path = tmp_path / "rows.csv"
    path.write_text("x,label\n" + "1,0\n" * 30)
    return path


def test_a_waiting_replay_sends_nothing_during_a_fit(thirty: Path) -> None:
    service, quiet = Fitting(looks=3), Console(quiet=True)
    with Interruption() as interruption, Client("http://service", transport=httpx.MockTransport(service)) as client:
        outcome = replay_file(
            ReplayPlan(File.of(thirty), "a", RowColumns(), batch=10, wait=True), client, interruption, quiet
        )
    assert (outcome.rows.next, outcome.rows.complete) == (30, True)
    requests = [number for number, method in enumerate(service.methods) if method == "POST"]
    assert len(requests) == 3
    ends = [*requests[1:], len(service.methods) - 2]  # at the end come the figures and the learner once more
    assert all(end - start > 3 for start, end in zip(requests, ends, strict=True))


def test_waiting_for_a_fit_can_be_interrupted(thirty: Path) -> None:
    service, quiet = Fitting(looks=None), Console(quiet=True)
    with Interruption() as interruption, Client("http://service", transport=httpx.MockTransport(service)) as client:
        outcome = replay_file(
            ReplayPlan(File.of(thirty), "a", RowColumns(), batch=10, wait=True), client, interruption, quiet
        )
    assert (outcome.rows.next, outcome.rows.complete) == (10, False)
