"""Measures how long a client waits for each answer beside crowds of clients that send without waiting.

`/predict` beside clients that send as fast as the server takes it: pipelined predicts on one connection or on 30;
predicts on 30 connections that never read; GETs of a large document; messages of a websocket; an NDJSON stream; and ten
uploads of the largest gzip bodies. Then `/update` of a light learner while three heavy ones learn. A crowd is a process
of its own, on the core of the client.
"""

from __future__ import annotations

import gzip
import multiprocessing
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from itertools import cycle
from typing import Any

import numpy as np

from benchmarks.service import socket_load
from benchmarks.service.bodies import DIM, FIRST, JSON, encoded, event, numbered, requests, stream, update
from benchmarks.service.http_load import drive
from benchmarks.service.processors import pinned
from benchmarks.service.rounds import Case, Measure, Run, Sample, Verdict, contest, sample
from benchmarks.service.servers import Server, rarestream, sqlite

__all__ = ["measure"]

TAIL, UPLOAD_TAIL, LEARNING_TAIL = 20.0, 60.0, 250.0  # milliseconds: p99 of an answer meanwhile
PREDICTS, GETS, LINES, MANY, UPLOADS, HEAVY = 20_000, 2_000, 5_000, 30, 10, 3
PINGS, CHUNKS = 40_000, 200_000
DOCUMENT = b"GET /v1/algorithms HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"  # 130 kB
BODY = 16 * 2**20  # bytes of a body, uncompressed: the default of RARESTREAM_MAX_BODY_BYTES
WIDE, BATCH = 300, 1000  # columns of the heavy learners, and events of their updates
_PING = 9  # opcode of a frame
WINDOW = 1000  # messages of a websocket under way, or its credit


def measure(run: Run) -> Case:
    """Measure the latency of an answer."""
    with rarestream(run.cores, run.folder, sqlite(run.folder)) as server:
        bounds, contestants = {}, {}
        for name, (bound, measurement) in {**_predicts(run, server), **_updates(run, server)}.items():
            bounds[name], contestants[name] = bound, measurement
        result = contest(contestants, run.rounds, run.seconds)
    verdicts = [
        Verdict(f"p99, ms: {name}", result.median(name, lambda item: item.p99), bound, "at most")
        for name, bound in bounds.items()
    ]
    return Case("/predict of one client beside clients that do not wait", result.rows(), verdicts)


def _predicts(run: Run, server: Server) -> dict[str, tuple[float, Measure]]:
    """Return the measurements of a client that asks for one prediction after the other."""
    learner, other = server.taught("asked"), server.taught("other")
    row = event(np.linspace(-1, 1, DIM, dtype=np.float32), JSON)
    (request,) = requests(f"{learner}/predict", [row], JSON)
    pipelined = request * run.few(PREDICTS, 50)
    many = run.few(MANY, 2)
    stream_head, lines = _ndjson(f"{other}/update", run.few(LINES, 20))

    def beside(crowd: Callable[..., None], *arguments: Any, bound: float = TAIL) -> tuple[float, Measure]:
        return bound, _beside(run, server, request, crowd, *arguments)

    return {
        "alone": (TAIL, _beside(run, server, request, None)),
        "1 pipelines predicts, and reads": beside(_talk, pipelined),
        f"{many} pipeline predicts, and read": beside(_talk, pipelined, b"", many),
        f"{many} pipeline predicts, and never read": beside(_shout, pipelined, many),
        "1 pipelines GETs of 130 kB, and reads": beside(_talk, DOCUMENT * run.few(GETS, 5)),
        "1 floods a websocket with predicts": beside(_flood, f"{other}/ws", {"seq": FIRST, "op": "predict", **row}),
        "1 floods a websocket with pings": beside(_talk, socket_load.frame(b"", _PING) * PINGS, _handshake(other)),
        "1 streams NDJSON to another learner": beside(_talk, lines, stream_head),
        "1 streams NDJSON in chunks of one byte": beside(_talk, b"1\r\n\n\r\n" * CHUNKS, stream_head),
        f"{UPLOADS} upload gzip bodies of 16 MiB": beside(
            _talk, _gzip(f"{other}/update", run.few(BODY, 2**14)), b"", UPLOADS, bound=UPLOAD_TAIL
        ),
    }


def _updates(run: Run, server: Server) -> dict[str, tuple[float, Measure]]:
    """Return the measurements of a client that makes one update of one event after the other."""
    light = server.taught("light")
    events = stream(1)
    (request,) = requests(f"{light}/update", [update(events.X, events.y, JSON, ids=False)], JSON)
    dim = run.few(WIDE, 10)
    config = {"algorithm": "cbr", "params": {"capacity": 50}, "features": {"kind": "dense", "dim": dim}}
    random = np.random.default_rng(1)
    y = (random.random(BATCH) < 0.05).astype(np.int8)
    batch = update(random.normal(size=(BATCH, dim)).astype(np.float32), y, JSON, ids=False)
    heavy = [requests(f"{server.blank(f'heavy-{n}', config)}/update", [batch], JSON)[0] for n in range(HEAVY)]
    for message in heavy:
        drive(server.port, iter([message]), 1)  # compile, and fill the buffers
    return {
        "light learner, alone": (LEARNING_TAIL, _beside(run, server, request, None)),
        f"light learner, {HEAVY} heavy ones learn": (LEARNING_TAIL, _beside(run, server, request, _teach, heavy)),
    }


def _beside(run: Run, server: Server, request: bytes, crowd: Callable[..., None] | None, *arguments: Any) -> Measure:
    """Return the measurement of a client that sends a request again and again, beside a crowd if there is one."""

    def turn(seconds: float) -> Sample:
        if crowd is None:
            return sample(drive(server.port, cycle([request]), 1, seconds, server.cpu))
        with _sending(crowd, server.port, *arguments, core=run.cores.client):
            return sample(drive(server.port, cycle([request]), 1, seconds, server.cpu))

    return turn


def _ndjson(path: str, count: int) -> tuple[bytes, bytes]:
    """Return the head of an endless stream, and a chunk of so many lines of it."""
    events = stream(count)
    lines = b"".join(
        encoded(document, JSON) + b"\n" for document in update(events.X, events.y, JSON, ids=False)["events"]
    )
    head = (
        f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/x-ndjson\r\n"
        "transfer-encoding: chunked\r\n\r\n"
    )
    return head.encode(), b"%x\r\n%b\r\n" % (len(lines), lines)


def _handshake(path: str) -> bytes:
    """Return the head that opens a websocket of a learner."""
    return (
        f"GET {path}/ws HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
        "sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    ).encode()


def _gzip(path: str, size: int) -> bytes:
    """Return an update of about `size` bytes before its compression."""
    events = stream(100)
    document = encoded(update(events.X, events.y, JSON, ids=False), JSON)
    count = max(1, size // len(document))
    body = encoded(update(np.tile(events.X, (count, 1)), np.tile(events.y, count), JSON, ids=False), JSON)
    packed = gzip.compress(body, 6)
    head = (
        f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: {JSON}\r\ncontent-encoding: gzip\r\n"
        f"content-length: {len(packed)}\r\n\r\n"
    )
    return head.encode() + packed


@contextmanager
def _sending(crowd: Callable[..., None], *arguments: Any, core: int) -> Iterator[None]:
    """Run a process that sends during the block."""
    spawning = multiprocessing.get_context("spawn")
    ready = spawning.Event()
    with pinned(core):
        process = spawning.Process(target=crowd, args=(ready, *arguments), daemon=True)
        process.start()
    try:
        if not ready.wait(60):
            raise RuntimeError("the process that sends did not start")
        yield
        if not process.is_alive():
            raise RuntimeError("the process that sends has ended: the server refused what it sent")
    finally:
        process.terminate()
        process.join()


def _talk(ready: Any, port: int, data: bytes, head: bytes = b"", connections: int = 1) -> None:
    """Send data again and again on some connections after a head, and read the replies in other threads."""
    with ThreadPoolExecutor(2 * connections) as pool:
        tasks = []
        for _ in range(connections):
            connection = socket.create_connection(("127.0.0.1", port))
            connection.sendall(head)
            tasks += [pool.submit(_read, connection), pool.submit(_send, connection, data)]
        ready.set()
        for task in as_completed(tasks):  # a task ends by an error only
            task.result()


def _send(connection: socket.socket, data: bytes) -> None:
    while True:
        connection.sendall(data)


def _read(connection: socket.socket) -> None:
    status = connection.recv(12, socket.MSG_WAITALL)
    if status not in (b"HTTP/1.1 200", b"HTTP/1.1 101", b"HTTP/1.1 429"):  # the queue may be full
        raise RuntimeError(f"the server answered {status.decode()}")
    while connection.recv(2**20):
        pass
    raise RuntimeError("the server closed a connection")


def _shout(ready: Any, port: int, data: bytes, connections: int) -> None:
    """Send requests on some connections as far as the server takes them, and never read."""
    silent = [_silent(port) for _ in range(connections)]
    offsets = [0] * connections
    ready.set()
    while True:
        for number, connection in enumerate(silent):
            try:
                offsets[number] += connection.send(data[offsets[number] :][: 2**16])
            except BlockingIOError:
                continue  # full
            except OSError:  # dropped by the server
                silent[number], offsets[number] = _silent(port), 0
        time.sleep(0.001)


def _silent(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setblocking(False)
    return connection


def _flood(ready: Any, port: int, path: str, message: dict[str, Any]) -> None:
    """Keep as many messages of a websocket under way as the server grants."""
    frames = numbered([socket_load.frame(encoded(message, JSON))])
    ready.set()
    socket_load.drive(port, path, frames, WINDOW, 3600)


def _teach(ready: Any, port: int, messages: list[bytes]) -> None:
    """Send updates, one under way for each message."""
    ready.set()
    drive(port, cycle(messages), len(messages))
