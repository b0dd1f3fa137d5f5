"""Do other clients wait for one that pipelines? `/predict` of one client beside connections that send without waiting.

A process of its own sends, as fast as the server takes it: predicts on one connection, whose replies it reads; predicts
on 30 connections, whose replies it never reads; or GETs of a large document on one connection. Meanwhile another client
asks for one prediction after the other.
"""

from __future__ import annotations

import multiprocessing
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import cycle
from typing import Any

import numpy as np

from benchmarks.service.bodies import DIM, JSON, event, requests
from benchmarks.service.http_load import drive
from benchmarks.service.processors import pinned
from benchmarks.service.rounds import Case, Run, Sample, Verdict, contest, sample
from benchmarks.service.servers import rarestream, sqlite

__all__ = ["measure"]

TAIL = 20.0  # milliseconds: p99 of a prediction meanwhile
PREDICTS, GETS, SILENT = 20_000, 2_000, 30
DOCUMENT = b"GET /v1/algorithms HTTP/1.1\r\nHost: here\r\n\r\n"  # 130 kB


def measure(run: Run) -> Case:
    """Measure the latency of a prediction."""
    with rarestream(run.cores, run.folder, sqlite(run.folder)) as server:
        path = server.taught("asked")
        messages = requests(f"{path}/predict", [event(np.linspace(-1, 1, DIM, dtype=np.float32), JSON)], JSON)
        predicts = messages[0] * run.few(PREDICTS, 50)

        def alone(seconds: float) -> Sample:
            return sample(drive(server.port, cycle(messages), 1, seconds, server.cpu))

        def beside(send: Callable[..., None], *arguments: Any) -> Callable[[float], Sample]:
            def turn(seconds: float) -> Sample:
                with _sending(send, server.port, *arguments, core=run.cores.client):
                    return alone(seconds)

            return turn

        crowds = {
            "one pipelines predicts, and reads": beside(_talk, predicts),
            f"{SILENT} pipeline predicts, and never read": beside(_shout, predicts, run.few(SILENT, 2)),
            "one pipelines GETs, and reads": beside(_talk, DOCUMENT * run.few(GETS, 5)),
        }
        result = contest({"alone": alone, **crowds}, run.rounds, run.seconds)
    verdicts = [
        Verdict(f"p99 of a prediction, ms: {crowd}", result.median(crowd, lambda item: item.p99), TAIL, "at most")
        for crowd in crowds
    ]
    return Case("/predict of one client beside others that pipeline", result.rows(), verdicts)


@contextmanager
def _sending(send: Callable[..., None], *arguments: Any, core: int) -> Iterator[None]:
    """Run a process that sends during the block."""
    spawning = multiprocessing.get_context("spawn")
    ready = spawning.Event()
    with pinned(core):
        process = spawning.Process(target=send, args=(ready, *arguments), daemon=True)
        process.start()
    try:
        if not ready.wait(60):
            raise RuntimeError("the process that pipelines did not start")
        yield
    finally:
        process.terminate()
        process.join()


def _talk(ready: Any, port: int, data: bytes) -> None:
    """Send requests again and again on one connection, and read the replies in another thread."""
    connection = socket.create_connection(("127.0.0.1", port))
    threading.Thread(target=_read, args=(connection,), daemon=True).start()
    ready.set()
    while True:
        connection.sendall(data)


def _read(connection: socket.socket) -> None:
    while connection.recv(2**20):
        pass


def _shout(ready: Any, port: int, data: bytes, connections: int) -> None:
    """Send requests on some connections as far as the server takes them, and never read."""
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(connections)]
    for connection in silent:
        connection.setblocking(False)
    counts = dict.fromkeys(silent, 0)
    ready.set()
    while True:
        for connection in silent:
            with suppress(OSError):  # full, or dropped by the server in the end
                counts[connection] += connection.send(data[counts[connection] :][: 2**16])
        time.sleep(0.001)
