"""The protocols under uvicorn: what is written, what is read before an error, and how a connection ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from uvicorn.config import Config
from uvicorn.server import ServerState
from websockets.frames import Frame, Opcode
from websockets.streams import StreamReader

from service.protocol import EXTENSION, HttpProtocol, Transport, WebSocketProtocol

HANDSHAKE = (
    b"GET / HTTP/1.1\r\nHost: here\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
Application = Callable[[Any, Any, Any], Awaitable[None]]


class Pipe(asyncio.Transport):
    """A transport that keeps what is written, and whose peer never reads."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.grown = asyncio.Event()
        self.aborted = asyncio.Event()

    def write(self, data: Any) -> None:
        self.written += data
        self.grown.set()

    async def until(self, size: int) -> None:
        """Until so many bytes are written."""
        while len(self.written) < size:
            self.grown.clear()
            await asyncio.wait_for(self.grown.wait(), 60)

    def close(self) -> None:
        pass

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def abort(self) -> None:
        self.aborted.set()


async def connected(app: Application, **settings: Any) -> tuple[WebSocketProtocol, Pipe]:
    """A connection whose handshake is done; what is written after it."""
    config = Config(app, log_level="warning", ws=WebSocketProtocol, ws_per_message_deflate=False, **settings)
    config.load()
    protocol, pipe = WebSocketProtocol(config, ServerState(), {}, asyncio.get_running_loop()), Pipe()
    protocol.connection_made(pipe)
    protocol.data_received(HANDSHAKE)
    await pipe.until(1)
    assert pipe.written.startswith(b"HTTP/1.1 101")
    del pipe.written[: pipe.written.index(b"\r\n\r\n") + 4]
    return protocol, pipe


def ended(protocol: WebSocketProtocol) -> None:
    """The connection is lost."""
    protocol.connection_lost(ConnectionResetError())


def frames(data: bytes) -> list[tuple[Opcode, bytes]]:
    """What a client reads, by websockets itself."""
    reader = StreamReader()
    reader.feed_data(data)
    found = []
    while reader.buffer:
        parsing = Frame.parse(reader.read_exact, mask=False)
        with pytest.raises(StopIteration) as done:
            next(parsing)
        frame = done.value.value
        found.append((frame.opcode, bytes(frame.data)))
    return found


def sent(opcode: Opcode, payload: bytes) -> bytes:
    """A frame of a client."""
    return Frame(opcode, payload).serialize(mask=True)


async def test_messages_of_every_size_are_frames_in_their_order() -> None:
    sizes = [0, 1, 125, 126, 65_535, 65_536, 70_000]
    messages = [bytes([65 + i]) * size for i, size in enumerate(sizes)]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        transport: Transport = scope["extensions"][EXTENSION]
        await send({"type": "websocket.accept"})
        await transport.write(messages, False)
        await transport.write(messages, True)
        await receive()
        await receive()

    protocol, pipe = await connected(app)
    await pipe.until(2 * sum(sizes))
    expected = [(Opcode.TEXT, one) for one in messages] + [(Opcode.BINARY, one) for one in messages]
    assert frames(bytes(pipe.written)) == expected
    ended(protocol)


async def test_messages_before_one_that_is_too_large_are_read() -> None:
    read: list[Any] = []
    done = asyncio.Event()

    async def app(_: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            read.append(message)
        read.append(message)
        done.set()

    protocol, pipe = await connected(app, ws_max_size=1000)
    protocol.data_received(sent(Opcode.TEXT, b"one") + sent(Opcode.BINARY, b"two") + sent(Opcode.TEXT, b"x" * 1001))
    await asyncio.wait_for(done.wait(), 60)
    assert read[0]["text"] == "one"
    assert read[1]["bytes"] == b"two"
    assert (read[2]["type"], read[2]["code"]) == ("websocket.disconnect", 1009)
    (opcode, said), *others = frames(bytes(pipe.written))
    assert (opcode, int.from_bytes(said[:2], "big"), others) == (Opcode.CLOSE, 1009, [])
    ended(protocol)


async def read_of(*given: Frame) -> tuple[list[Any], list[tuple[Opcode, bytes]], list[str]]:
    """What an application reads of frames that come at once, what is written, and what uvicorn logs."""
    read: list[Any] = []
    logged: list[str] = []
    done = asyncio.Event()

    async def app(_: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        while not read or read[-1]["type"] == "websocket.receive":
            read.append(await receive())
        done.set()

    class Noting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            logged.append(record.getMessage())

    protocol, pipe = await connected(app, ws_max_size=1000)
    noting = Noting()
    protocol.logger.addHandler(noting)
    try:
        protocol.data_received(b"".join(one.serialize(mask=True) for one in given))
        await asyncio.wait_for(done.wait(), 60)
        ended(protocol)
    finally:
        protocol.logger.removeHandler(noting)
    return read, frames(bytes(pipe.written)), logged


GOOD, BAD = Frame(Opcode.TEXT, "na\u00efve".encode()), Frame(Opcode.TEXT, b"na\xefve")
PIECES = [Frame(Opcode.TEXT, b"na\xc3", fin=False), Frame(Opcode.CONT, b"\xafv", fin=False), Frame(Opcode.CONT, b"e")]


async def test_a_text_that_is_not_utf8_ends_it_with_a_reason_and_no_error_of_ours() -> None:
    read, written, logged = await read_of(GOOD, *PIECES, BAD, GOOD, Frame(Opcode.BINARY, b"late"), BAD)
    assert [one.get("text") for one in read] == ["na\u00efve", "na\u00efve", None]
    reason = "the text is not UTF-8 from byte 2 on"
    assert read[-1] == {"type": "websocket.disconnect", "code": 1007, "reason": reason}
    assert written == [(Opcode.CLOSE, (1007).to_bytes(2, "big") + reason.encode())]
    assert logged == []


@pytest.mark.parametrize(
    ("last", "code"), [(Frame(Opcode.CLOSE, b"\x03\xe8"), 1000), (Frame(Opcode.BINARY, bytes(1001)), 1009)]
)
async def test_a_text_that_is_not_utf8_before_another_end_in_the_same_piece(last: Frame, code: int) -> None:
    read, written, logged = await read_of(GOOD, BAD, last)
    assert [(one["type"], one.get("text"), one.get("code")) for one in read] == [
        ("websocket.receive", "na\u00efve", None),
        ("websocket.disconnect", None, code),
    ]
    assert [(opcode, int.from_bytes(said[:2], "big")) for opcode, said in written] == [(Opcode.CLOSE, code)]
    assert logged == []


@pytest.mark.parametrize("how", ["closed by us", "closed by the peer", "lost"])
async def test_writing_to_what_is_no_longer_open_is_an_os_error(how: str) -> None:
    outcome: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        if how == "closed by us":
            await send({"type": "websocket.close"})
        assert (await receive())["type"] == "websocket.disconnect"
        try:
            await scope["extensions"][EXTENSION].write([b"late"], False)
        except OSError as error:
            outcome.set_result(error)

    protocol, pipe = await connected(app)
    if how == "closed by the peer":
        protocol.data_received(sent(Opcode.CLOSE, b"\x03\xe8"))
    elif how == "lost":
        ended(protocol)
    assert isinstance(await asyncio.wait_for(outcome, 60), OSError)
    assert b"late" not in pipe.written
    if how != "lost":
        ended(protocol)


@pytest.mark.parametrize("how", ["the application is done", "no pong has come"])
async def test_a_peer_that_reads_nothing_cannot_keep_a_connection_that_is_closed(how: str) -> None:
    async def app(_: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        if how == "no pong has come":
            await receive()

    protocol, pipe = await connected(app)
    protocol.close_timeout = 0.0
    if how == "no pong has come":
        protocol.keepalive_timeout()
    await asyncio.wait_for(pipe.aborted.wait(), 60)
    ended(protocol)


# HTTP


async def replied(app: Application, *requests: bytes) -> list[bytes]:
    """What is written, write by write, to a client of HTTP that sends these requests."""
    writes: list[bytes] = []

    class Noting(Pipe):
        def write(self, data: Any) -> None:
            writes.append(bytes(data))
            super().write(data)

    config = Config(app, lifespan="off", http=HttpProtocol, ws="none", server_header=False, date_header=False)
    config.load()
    protocol = HttpProtocol(config, ServerState(), {})
    protocol.connection_made(Noting())
    for request in requests:
        protocol.data_received(request)
    for _ in range(20):
        await asyncio.sleep(0)
    protocol.connection_lost(None)
    return writes


def whole(body: bytes, status: int = 200) -> Application:
    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        headers = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return app


GET = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"


async def test_the_head_of_a_reply_goes_out_with_its_body() -> None:
    assert await replied(whole(b"abc"), GET) == [b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc"]
    assert len(await replied(whole(b"abc"), GET + GET)) == 2
    crafted = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"  # a body that looks like a head
    (written,) = await replied(whole(crafted), GET)
    assert written.endswith(b"\r\n\r\n" + crafted)


async def test_a_head_without_a_body_is_not_kept_back() -> None:
    head = GET.replace(b"GET", b"HEAD")
    assert await replied(whole(b"abc"), head) == [b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n"]
    assert len(await replied(whole(b"", 204), GET)) == 1


async def test_a_stream_says_at_once_that_it_has_begun() -> None:
    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await asyncio.Event().wait()

    assert await replied(app, GET) == [b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"]


async def test_what_is_kept_back_goes_out_before_the_end() -> None:
    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"3")]})

    assert await replied(app, GET) == [b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n"]
    (refused,) = await replied(app, b"nonsense\r\n\r\n")
    assert refused.startswith(b"HTTP/1.1 400 ")


async def test_what_is_answered_at_once_puts_off_the_end_of_an_idle_connection() -> None:
    class Answering:
        """An application that answers everything at once."""

        class direct:
            known = staticmethod(lambda _: ("asked", b""))
            answer = staticmethod(lambda *_: b"\r\n")

        async def __call__(self, _scope: Any, _receive: Any, _send: Any) -> None:
            raise AssertionError("it came to the application")

    class Closing(Pipe):
        closed = False

        def close(self) -> None:
            self.closed = True

    app: Any = Answering()
    settings: Any = {"interface": "asgi3", "access_log": False, "timeout_keep_alive": 1000}
    config = Config(app, lifespan="off", http=HttpProtocol, ws="none", **settings)
    config.load()
    protocol, pipe = HttpProtocol(config, ServerState(), {}), Closing()
    protocol.connection_made(pipe)
    protocol.data_received(GET)
    timer = protocol.timeout_keep_alive_task
    protocol.data_received(GET)
    assert pipe.written == 2 * b"HTTP/1.1 200 OK\r\n\r\n"
    assert timer is not None
    assert protocol.timeout_keep_alive_task is timer
    protocol.timeout_keep_alive_handler()  # as if it were time
    assert protocol.timeout_keep_alive_task is not timer
    assert not pipe.closed
    protocol.timeout_keep_alive = 0
    protocol.timeout_keep_alive_handler()
    assert pipe.closed
    protocol.connection_lost(None)
