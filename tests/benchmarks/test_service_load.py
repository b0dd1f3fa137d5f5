"""Requests of the benchmark of the service, and its handling of replies."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain, islice, repeat
from pathlib import Path

import msgspec
import numpy as np
import pytest
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.frames import Frame, Opcode
from websockets.streams import StreamReader

from benchmarks.service import http_load, socket_load
from benchmarks.service.bodies import DIM, FIRST, JSON, MSGPACK, encoded, event, numbered, requests, stream, update
from benchmarks.service.http_load import LoadFailed
from benchmarks.service.socket_load import BINARY, TEXT, frame
from tests.benchmarks.made import binary, write_dense

pytestmark = pytest.mark.integration


@contextmanager
def looping(start: Callable[[], Awaitable[asyncio.Server | Server]]) -> Iterator[int]:
    """Run a server in a thread; yield its port."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def started() -> asyncio.Server | Server:
        return await start()

    async def ended() -> None:
        server.close()
        await server.wait_closed()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for _ in range(3):  # transports that were closed close their sockets in the loop's next round
            await asyncio.sleep(0)

    server = asyncio.run_coroutine_threadsafe(started(), loop).result()
    try:
        yield next(iter(server.sockets)).getsockname()[1]
    finally:
        asyncio.run_coroutine_threadsafe(ended(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@contextmanager
def aborted(writer: asyncio.StreamWriter) -> Iterator[None]:
    """Close a connection at the end of the block, even with unsent data."""
    try:
        yield
    finally:
        writer.transport.abort()


@contextmanager
def http(answer: Callable[[bytes], list[bytes]]) -> Iterator[int]:
    """Run a server that writes these pieces, one after the other, for each body; yield its port."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with aborted(writer), suppress(asyncio.IncompleteReadError, ConnectionError):  # the client has what it wants
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                pieces = answer(await reader.readexactly(length))
                for piece in pieces:
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0.001)  # so that they arrive separately
                if not pieces:
                    return

    with looping(lambda: asyncio.start_server(connected, "127.0.0.1", 0)) as port:
        yield port


def reply(body: bytes, status: int = 200, length: bytes = b"Content-Length") -> bytes:
    return b"HTTP/1.1 %d Said\r\ndate: now\r\n%b: %d\r\n\r\n%b" % (status, length, len(body), body)


def posted(bodies: list[bytes]) -> list[bytes]:
    return [b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body) for body in bodies]


@pytest.mark.parametrize("size", [1, 7, 60, 100_000])
@pytest.mark.parametrize("connections", [1, 3])
def test_every_request_is_answered_once_however_replies_are_split(size: int, connections: int) -> None:
    received: list[bytes] = []

    def answer(body: bytes) -> list[bytes]:
        received.append(body)
        reply_bytes = reply(body * 3, length=b"content-length")
        return [reply_bytes[at : at + size] for at in range(0, len(reply_bytes), size)]

    bodies = [b"%d" % number for number in range(10)]
    readings = chain([2.0], repeat(5.0))
    with http(answer) as port:
        result = http_load.drive(
            port, iter(posted(bodies)), connections, meter=lambda: next(readings), keep_replies=True
        )
    assert sorted(received) == bodies
    assert result.replies == [body * 3 for body in bodies]  # in the order of the requests
    assert len(result.latencies) == 10
    assert (result.latencies > 0).all()
    assert result.seconds > 0
    assert result.server == 3.0


def test_a_connection_may_close_while_others_are_awaited() -> None:
    closed = threading.Event()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with aborted(writer), suppress(ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            if await reader.readexactly(1) == b"0":
                writer.write(reply(b"soon"))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
                closed.set()
                return
            while not closed.is_set():  # noqa: ASYNC110 (set in this loop, by the other connection)
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.05)  # so that the client has seen it
            writer.write(reply(b"late"))
            await reader.read()

    with looping(lambda: asyncio.start_server(connected, "127.0.0.1", 0)) as port:
        result = http_load.drive(port, iter(posted([b"0", b"1"])), 2, keep_replies=True)
    assert result.replies == [b"soon", b"late"]


def test_the_load_stops_in_time_with_every_request_answered() -> None:
    received: list[bytes] = []

    def answer(body: bytes) -> list[bytes]:
        received.append(body)
        return [reply(b"")]

    endless = (request for number in range(10**9) for request in posted([b"%d" % number]))
    with http(answer) as port:
        result = http_load.drive(port, endless, 2, seconds=0.05)
    assert len(result.latencies) == len(received) >= 2
    assert result.replies == []


@pytest.mark.parametrize(
    ("pieces", "status", "message"),
    [
        ([reply(b'{"code":"x","detail":"no such thing"}', 404)], 404, "HTTP 404: no such thing"),
        ([reply(b"oh", 500)[:-1], b"h"], 500, "HTTP 500: oh"),
        ([reply(b"", 503)], 503, "HTTP 503: "),
        ([b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"], 0, "chunked"),
        ([], 0, "closed"),
    ],
)
def test_an_invalid_reply_ends_the_load(pieces: list[bytes], status: int, message: str) -> None:
    with http(lambda _: pieces) as port, pytest.raises(LoadFailed) as failed:
        http_load.drive(port, iter(posted([b"1", b"2"])), 1)
    assert message in str(failed.value)
    assert failed.value.status == status


def test_each_request_has_new_numbers_of_constant_width() -> None:
    X, y = stream(3).X, stream(3).y
    for media, decode in ((JSON, json.loads), (MSGPACK, msgspec.msgpack.decode)):
        bodies = [
            encoded(update(X[[i]], y[[i]], media, ids=True, seq=FIRST, op="update", note="5 %s"), media)
            for i in range(3)
        ]
        created = list(islice(numbered(bodies, FIRST + 7), 5))
        decoded = [decode(body) for body in created]
        assert [item["seq"] for item in decoded] == list(range(FIRST + 7, FIRST + 12))
        ids = [item["ids"][0] if media == MSGPACK else item["events"][0]["id"] for item in decoded]
        assert ids == [str(number) for number in range(FIRST + 7, FIRST + 12)]
        assert {item["note"] for item in decoded} == {"5 %s"}
        assert [len(body) for body in created] == [len(bodies[i % 3]) for i in range(5)]


def test_both_encodings_carry_the_same_events() -> None:
    events = stream(4)
    spelt, packed = (update(events.X, events.y, media, ids=False) for media in (JSON, MSGPACK))
    rows = np.frombuffer(packed["x"]["data"], packed["x"]["dtype"]).reshape(packed["x"]["shape"])
    np.testing.assert_array_equal(rows, np.array([item["x"] for item in spelt["events"]], dtype=np.float32))
    assert packed["labels"] == {"dtype": "int8", "shape": [4], "data": events.y.tobytes()}
    assert [item["label"] for item in spelt["events"]] == events.y.tolist()
    assert event(events.X[2], MSGPACK)["x"]["shape"] == [1, DIM]
    (request,) = requests("/path", [event(events.X[2], JSON)], JSON)
    head, _, body = request.partition(b"\r\n\r\n")
    assert head.startswith(b"POST /path HTTP/1.1\r\n")
    assert b"content-length: %d" % len(body) in head
    assert json.loads(body)["events"][0]["x"] == spelt["events"][2]["x"]


def test_the_peers_stream_is_covtype_if_available(tmp_path: Path) -> None:
    X, labels = binary(300, DIM, labels=(2, 7), share=0.2)
    write_dense(tmp_path, "covtype", X, labels)
    result = stream(300, tmp_path)
    assert result.name.startswith("covtype")
    assert result.X.dtype == np.float32
    assert sorted(map(tuple, result.X)) == sorted(map(tuple, X.astype(np.float32)))
    of = {tuple(row): label for row, label in zip(X.astype(np.float32), labels, strict=True)}
    assert [7 if label else 2 for label in result.y] == [of[tuple(row)] for row in result.X]
    again = stream(300, tmp_path)
    np.testing.assert_array_equal(result.X, again.X)
    fewer = stream(50, tmp_path)
    assert len(fewer.y) == 50
    np.testing.assert_array_equal(fewer.X, result.X[:50])
    assert stream(50).name.startswith("made up")


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536])
@pytest.mark.parametrize("opcode", [TEXT, BINARY])
def test_frames_are_masked_like_those_of_a_client(size: int, opcode: int) -> None:
    payload = bytes(range(65, 91)) * (size // 26 + 1)
    reader = StreamReader()
    reader.feed_data(frame(payload[:size], opcode))
    parsing = Frame.parse(reader.read_exact, mask=True)  # refuses unmasked frames
    with pytest.raises(StopIteration) as stop:
        next(parsing)
    assert stop.value.value == Frame(Opcode(opcode), payload[:size])


@contextmanager
def socket(handler: Callable[[ServerConnection], Awaitable[None]]) -> Iterator[int]:
    """Run a websocket server; yield its port."""

    with looping(lambda: serve(handler, "127.0.0.1", 0, compression=None)) as port:
        yield port


def messages(count: int) -> Iterator[bytes]:
    body = encoded({"seq": FIRST, "op": "predict", "filler": "x" * 100}, JSON)
    return islice(numbered([frame(body)]), count)


def test_the_window_is_kept_full_within_the_credit() -> None:
    most, received = 0, list[int]()

    async def handler(connection: ServerConnection) -> None:
        nonlocal most
        await connection.send('{"type":"hello","credit":3,"max_bytes":1000}')
        waiting: asyncio.Queue[int] = asyncio.Queue()

        async def answer() -> None:
            while True:
                seq = await waiting.get()
                await connection.ping()  # control frames between the replies
                await connection.send(json.dumps({"seq": seq, "status": 200}))

        answering = asyncio.create_task(answer())
        try:
            async for message in connection:
                received.append(json.loads(message)["seq"])
                waiting.put_nowait(received[-1])
                most = max(most, waiting.qsize())
        finally:
            answering.cancel()

    with socket(handler) as port:
        result = socket_load.drive(port, "/", messages(50), 64, seconds=60)
    assert received == list(range(FIRST, FIRST + 50))
    assert 1 <= most <= 3
    assert len(result.latencies) == 50
    assert result.seconds > 0


@pytest.mark.parametrize("size", [1, 125, 126, 300, 70_000])
def test_replies_of_every_length_are_counted(size: int) -> None:
    async def handler(connection: ServerConnection) -> None:
        async for _ in connection:
            await connection.send(b"z" * size)

    with socket(handler) as port:
        result = socket_load.drive(port, "/", messages(20), 4, seconds=60, greeting=False)
    assert len(result.latencies) == 20


@pytest.mark.parametrize(
    ("answer", "part"),
    [
        ('{"seq":1,"status":422,"code":"invalid","title":"no"}', '{"seq":1,"status":422,'),
        (msgspec.msgpack.encode({"seq": 1, "status": 422, "code": "invalid"}), "invalid"),
        (None, "03f0 beyond the credit"),
    ],
)
def test_a_refused_request_ends_the_load(answer: str | bytes | None, part: str) -> None:
    async def handler(connection: ServerConnection) -> None:
        await connection.recv()
        if answer is None:
            await connection.close(1008, "beyond the credit")
        else:
            await connection.send(answer)
            await connection.wait_closed()

    with socket(handler) as port, pytest.raises(LoadFailed) as failed:
        socket_load.drive(port, "/", messages(5), 1, seconds=60, greeting=False)
    assert part in str(failed.value)


def test_a_missing_websocket_endpoint_is_reported() -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    with (
        looping(lambda: asyncio.start_server(connected, "127.0.0.1", 0)) as port,
        pytest.raises(LoadFailed, match="403") as failed,
    ):
        socket_load.drive(port, "/ws", messages(5), 1, seconds=60)
    assert failed.value.status == 403
