"""Websockets under uvicorn: what is read however the stream is cut, what is written, and how a connection ends."""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from uvicorn.config import Config
from uvicorn.server import ServerState
from websockets.frames import Frame, Opcode
from websockets.protocol import OPEN, SERVER, Protocol
from websockets.streams import StreamReader

from service.api.websocket.transport import EXTENSION, Transport
from service.server.ws_protocol import WebSocketProtocol
from tests.harness.pipe import Pipe
from tests.harness.waiting import eventually_async

HANDSHAKE = [
    (b"host", b"here"),
    (b"upgrade", b"websocket"),
    (b"connection", b"Upgrade"),
    (b"sec-websocket-key", b"AAAAAAAAAAAAAAAAAAAAAA=="),
    (b"sec-websocket-version", b"13"),
]
Application = Callable[[Any, Any, Any], Awaitable[None]]
LARGEST = 70_000


async def connected(app: Application, **settings: Any) -> tuple[WebSocketProtocol, Pipe]:
    """Return a connection whose handshake is done; what is written after it."""
    config = Config(
        app, log_level="warning", log_config=None, ws=WebSocketProtocol, ws_per_message_deflate=False, **settings
    )
    config.load()
    protocol, pipe = WebSocketProtocol(config, ServerState(), {}, asyncio.get_running_loop()), Pipe()
    protocol.connection_made(pipe)
    protocol.open(b"/", HANDSHAKE, b"")
    await pipe.until(1)
    assert pipe.written.startswith(b"HTTP/1.1 101")
    del pipe.written[: pipe.written.index(b"\r\n\r\n") + 4]
    return protocol, pipe


def ended(protocol: WebSocketProtocol) -> None:
    """Note that the connection is lost."""
    protocol.connection_lost(ConnectionResetError())


@pytest.mark.parametrize("closing", [False, True])
async def test_frames_that_the_library_parses_are_parsed_some_in_each_iteration(
    closing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = itertools.count()
    monkeypatch.setattr("service.server.ws_protocol.perf_counter", lambda: next(seconds))  # each turn is over at once
    protocol, pipe = await connected(Reader())
    if closing:
        protocol.conn.send_close(1000)
    pings = [b"%03d" % number for number in range(1000)]
    data = b"".join(frame_bytes(Opcode.PING, ping) for ping in pings)
    protocol.data_received(data)
    pongs = [len(frames(bytes(pipe.written)))]
    assert pipe.paused  # nothing more is read meanwhile
    while pipe.paused:
        await asyncio.sleep(0)
        pongs.append(len(frames(bytes(pipe.written))))
    assert max(after - before for before, after in itertools.pairwise([0, *pongs])) <= 512 // 9 + 1
    assert [payload for opcode, payload in frames(bytes(pipe.written)) if opcode == Opcode.PONG] == pings
    ended(protocol)


@pytest.mark.parametrize("closing", [False, True])
async def test_a_client_that_does_not_read_gets_the_newest_pong_only(closing: bool) -> None:
    """All of them would fill the memory."""
    protocol, pipe = await connected(Reader())
    if closing:
        protocol.conn.send_close(1000)
    protocol.pause_writing()
    for number in range(1000):
        protocol.data_received(frame_bytes(Opcode.PING, b"%d" % number))
    assert not pipe.written
    protocol.resume_writing()
    protocol.data_received(frame_bytes(Opcode.PING, b"last"))
    pongs = [payload for opcode, payload in frames(bytes(pipe.written)) if opcode == Opcode.PONG]
    assert pongs == [b"999", b"last"]
    ended(protocol)


@pytest.mark.parametrize("last", [(Opcode.CLOSE, b"\x03\xe8"), (Opcode.CLOSE, b"1")])
async def test_a_close_is_sent_behind_the_pongs_before_it(last: tuple[Opcode, bytes]) -> None:
    protocol, pipe = await connected(Reader())
    protocol.pause_writing()
    protocol._in_step = False  # so the library parses both frames in one go
    protocol.data_received(frame_bytes(Opcode.PING, b"a") + frame_bytes(*last))
    assert [opcode for opcode, _ in frames(bytes(pipe.written))][-2:] == [Opcode.PONG, Opcode.CLOSE]
    assert pipe.closed
    ended(protocol)


async def test_nothing_is_read_behind_a_close_while_bytes_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = itertools.count()
    monkeypatch.setattr("service.server.ws_protocol.perf_counter", lambda: next(seconds))  # each turn is over at once
    protocol, pipe = await connected(Reader())
    flood = 1000 * frame_bytes(Opcode.PING, b"")
    protocol.data_received(frame_bytes(Opcode.TEXT, b"a") + flood)
    await protocol.send({"type": "websocket.close", "code": 1000})
    protocol.data_received(flood)
    assert pipe.paused
    while pipe.paused:
        assert len(protocol._unparsed) <= 2 * len(flood)
        await asyncio.sleep(0)
    assert not protocol._unparsed
    ended(protocol)


async def test_a_turn_delivers_a_bounded_number_of_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.server.ws_protocol.perf_counter", lambda: 0.0)  # no turn is over by its time
    texts = [str(number) for number in range(5000)]
    delivered: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        while messages := await scope["extensions"][EXTENSION].read():
            read.extend(messages)

    read: list[Any] = []
    protocol, _ = await connected(app)
    protocol.data_received(b"".join(frame_bytes(Opcode.TEXT, text.encode()) for text in texts))
    while len(read) < len(texts):
        delivered.append(len(read))
        await asyncio.sleep(0)
    assert max(after - before for before, after in itertools.pairwise([*delivered, len(read)])) <= 1024
    assert read == texts
    ended(protocol)


async def test_small_fragments_of_a_message_take_no_more_memory_than_their_bytes() -> None:
    reader = Reader()
    protocol, pipe = await connected(reader)
    protocol.data_received(frame_bytes(Opcode.TEXT, b"a", fin=False))
    for _ in range(2000):
        protocol.data_received(frame_bytes(Opcode.CONT, b"", fin=False) + frame_bytes(Opcode.CONT, b"b", fin=False))
    assert len(protocol.frames) == 1
    protocol.data_received(frame_bytes(Opcode.CONT, b"c"))
    await eventually_async(lambda: reader.read == ["a" + 2000 * "b" + "c"])
    assert not pipe.paused
    ended(protocol)


async def test_others_have_their_turns_after_a_large_read() -> None:
    protocol, pipe = await connected(Reader())
    protocol.data_received(frame_bytes(Opcode.TEXT, 2**17 * b"a", fin=False))
    assert pipe.paused
    await asyncio.sleep(0)
    assert not pipe.paused
    ended(protocol)


def frames(data: bytes) -> list[tuple[Opcode, bytes]]:
    """Return what a client reads, by websockets itself."""
    reader = StreamReader()
    reader.feed_data(data)
    result = []
    while reader.buffer:
        parsing = Frame.parse(reader.read_exact, mask=False)
        with pytest.raises(StopIteration) as finished:
            next(parsing)
        frame = finished.value.value
        result.append((frame.opcode, bytes(frame.data)))
    return result


def frame_bytes(opcode: Opcode, payload: bytes, fin: bool = True) -> bytes:
    """Return a frame of a client."""
    return Frame(opcode, payload, fin).serialize(mask=True)


class Reader:
    """An application that takes messages, all that there are at once or one by one, to the end."""

    def __init__(self, singly: bool = False) -> None:
        self.read: list[str | bytes] = []
        self.closed: dict[str, Any] = {}
        self.finished = asyncio.Event()
        self._singly = singly

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """ASGI."""
        assert (await receive())["type"] == "websocket.connect"
        await send({"type": "websocket.accept"})
        if self._singly:
            while (message := await receive())["type"] == "websocket.receive":
                self.read.append(message.get("text", message.get("bytes")))
            self.closed = message
        else:
            transport: Transport = scope["extensions"][EXTENSION]
            while messages := await transport.read():
                self.read.extend(messages)
        self.finished.set()


async def outcome(pieces: Sequence[bytes], singly: bool = False, lose: bool = True) -> tuple[Any, Any, bool]:
    """Return the messages read from a stream in these pieces, what is written, and whether we closed it."""
    app = Reader(singly)
    protocol, pipe = await connected(app, ws_max_size=LARGEST)
    for piece in pieces:
        if pipe.closed:
            break
        protocol.data_received(piece)
        for _ in range(3):
            await asyncio.sleep(0)
    closed = pipe.closed
    if lose:
        ended(protocol)
    await asyncio.wait_for(app.finished.wait(), 300)
    return app.read, frames(bytes(pipe.written)), closed


def by_the_library(data: bytes) -> tuple[list[str | bytes], list[tuple[Opcode, bytes]]]:
    """Return the messages of a stream before its end, and what is answered, by websockets' own parser alone."""
    conn = Protocol(SERVER, state=OPEN, max_size=LARGEST)
    conn.receive_data(data)
    messages: list[str | bytes] = []
    complete, text = b"", False
    for frame in conn.events_received():
        assert isinstance(frame, Frame)
        if frame.opcode in (Opcode.TEXT, Opcode.BINARY):
            complete, text = b"", frame.opcode is Opcode.TEXT
        if frame.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            complete += bytes(frame.data)
            if frame.fin:
                messages.append(complete.decode() if text else complete)
    return messages, frames(b"".join(conn.data_to_send()))


SIZES = [0, 1, 125, 126, 127, 1000, 65_535, 65_536, LARGEST]
BINARIES = st.one_of(st.binary(max_size=300), st.sampled_from(SIZES).map(bytes))
TEXTS = st.one_of(st.text("a\u00e4\u20ac\U0001f600", max_size=100), st.sampled_from(SIZES).map(lambda n: "x" * n))


@st.composite
def messages(draw: st.DrawFn) -> list[bytes]:
    """Return the frames of a message, perhaps with control frames between its pieces."""
    text = draw(st.booleans())
    payload = draw(TEXTS).encode() if text else draw(BINARIES)
    opcode = Opcode.TEXT if text else Opcode.BINARY
    cuts = sorted(draw(st.lists(st.integers(0, len(payload)), max_size=3)))
    pieces = [payload[a:b] for a, b in zip([0, *cuts], [*cuts, len(payload)], strict=True)]
    created = []
    for i, piece in enumerate(pieces):
        created.append(frame_bytes(Opcode.CONT if i else opcode, piece, fin=i == len(pieces) - 1))
        if draw(st.booleans()):
            created.append(
                frame_bytes(draw(st.sampled_from([Opcode.PING, Opcode.PONG])), draw(st.binary(max_size=125)))
            )
    return created


CLOSES = st.sampled_from([b"", b"\x03\xe8", b"\x03\xe9bye", b"\x03", b"\x03\xed", b"\x03\xe8\xff"])
WRONG = st.one_of(
    CLOSES.map(lambda payload: frame_bytes(Opcode.CLOSE, payload)),
    st.sampled_from(
        [
            b"\x81\x03abc",  # not masked
            b"\x82\x00",
            b"\xc1\x80abcd",  # a reserved bit
            b"\x83\x80abcd",  # no such opcode
            b"\x8b\x80abcd",
            b"\x80\x81abcde",  # goes on with nothing
            b"\x09\x80abcd",  # a ping in pieces
            b"\x89\xfe\x00\x7eabcd" + bytes(126),  # a ping that is too large
            b"\x82\xff" + (LARGEST + 1).to_bytes(8, "big"),  # too large by its head
            b"\x81\xff" + bytes([255] * 8),
            frame_bytes(Opcode.TEXT, b"one", fin=False) + frame_bytes(Opcode.TEXT, b"another"),
            frame_bytes(Opcode.TEXT, b"one", fin=False) + frame_bytes(Opcode.CLOSE, b"\x03\xe8"),
            frame_bytes(Opcode.BINARY, bytes(LARGEST), fin=False) + frame_bytes(Opcode.CONT, b"x"),
        ]
    ),
)


@given(st.lists(messages(), max_size=6), st.one_of(st.none(), WRONG), st.lists(st.integers(0, 400_000)), st.booleans())
async def test_any_split_of_a_stream_is_read_like_by_the_library(
    complete: list[list[bytes]], wrong: bytes | None, at: list[int], singly: bool
) -> None:
    data = b"".join(frame for item in complete for frame in item) + (wrong or b"")
    if wrong is not None:
        data += frame_bytes(Opcode.TEXT, b"what is behind the end is nobody's")
    expected = by_the_library(data)
    cuts = sorted({item % (len(data) + 1) for item in at})
    pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True) if a < b]
    read, written, closed = await outcome(pieces, singly)
    assert (read, written) == expected
    # the library's bound of a message holds for a ping between its pieces, too: 70,000 bytes and a ping are too much
    assert closed == any(opcode is Opcode.CLOSE for opcode, _ in written)
    assert closed or wrong is None


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("opcode", [Opcode.TEXT, Opcode.BINARY])
async def test_messages_of_every_size_arrive_complete_for_any_split(size: int, opcode: Opcode) -> None:
    payload = bytes(65 + i % 26 for i in range(size))
    message = payload.decode() if opcode is Opcode.TEXT else payload
    data = frame_bytes(opcode, payload) + frame_bytes(Opcode.PING, b"?") + frame_bytes(opcode, b"end")
    ends = ["end" if opcode is Opcode.TEXT else b"end"]
    for cut in (*range(1, 16), len(data) - 20, len(data) - 10, len(data) - 1):
        read, written, _ = await outcome([data[:cut], data[cut:]])
        assert read == [message, *ends], cut
        assert written == [(Opcode.PONG, b"?")]
    read, _, _ = await outcome([data[i : i + 1] for i in range(20)] + [data[20:]])
    assert read == [message, *ends]


async def test_the_rest_of_a_frame_is_never_parsed_as_a_frame() -> None:
    inner = b"\x82\x83" + bytes(4) + b"abc"
    payload = b"head" + inner + inner
    data = b"\x82" + bytes([0x80 | len(payload)]) + bytes(4) + payload  # masked by zero, so as it stands
    for cut in range(1, len(data)):
        read, _, _ = await outcome([data[:cut], data[cut:] + frame_bytes(Opcode.BINARY, b"end")])
        assert read == [payload, b"end"], cut


@pytest.mark.parametrize("early", [0, 1, 5, 11])
async def test_frames_before_the_handshake_reply_are_read(early: int) -> None:
    app, first = Reader(), frame_bytes(Opcode.TEXT, b"early")
    config = Config(app, log_level="warning", log_config=None, ws=WebSocketProtocol, ws_per_message_deflate=False)
    config.load()
    protocol, pipe = WebSocketProtocol(config, ServerState(), {}, asyncio.get_running_loop()), Pipe()
    protocol.connection_made(pipe)
    protocol.open(b"/", HANDSHAKE, first[:early])
    await pipe.until(1)
    protocol.data_received(first[early:] + frame_bytes(Opcode.BINARY, b"late"))
    ended(protocol)
    await asyncio.wait_for(app.finished.wait(), 300)
    assert app.read == ["early", b"late"]


async def test_reading_pauses_until_the_application_has_taken_the_messages() -> None:
    go, batches = asyncio.Semaphore(0), asyncio.Queue[Sequence[Any]]()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        while True:
            await go.acquire()
            messages = await scope["extensions"][EXTENSION].read()
            batches.put_nowait(messages)
            if not messages:
                return

    async def took() -> Sequence[Any]:
        go.release()
        return await asyncio.wait_for(batches.get(), 300)

    protocol, pipe = await connected(app)
    protocol.data_received(
        frame_bytes(Opcode.TEXT, b"a") + frame_bytes(Opcode.PING, b"") + frame_bytes(Opcode.TEXT, b"b")
    )
    assert pipe.paused
    assert frames(bytes(pipe.written)) == [(Opcode.PONG, b"")]
    assert await took() == ["a"]
    assert pipe.paused
    assert await took() == ["b"]
    assert not pipe.paused
    ended(protocol)
    assert not await took()


async def test_messages_of_every_size_are_sent_as_frames_in_order() -> None:
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
    expected = [(Opcode.TEXT, item) for item in messages] + [(Opcode.BINARY, item) for item in messages]
    assert frames(bytes(pipe.written)) == expected
    ended(protocol)


async def test_messages_before_an_oversized_one_are_read() -> None:
    read: list[Any] = []
    finished = asyncio.Event()

    async def app(_: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            read.append(message)
        read.append(message)
        finished.set()

    protocol, pipe = await connected(app, ws_max_size=1000)
    protocol.data_received(
        frame_bytes(Opcode.TEXT, b"one") + frame_bytes(Opcode.BINARY, b"two") + frame_bytes(Opcode.TEXT, b"x" * 1001)
    )
    await asyncio.wait_for(finished.wait(), 300)
    assert read[0]["text"] == "one"
    assert read[1]["bytes"] == b"two"
    assert (read[2]["type"], read[2]["code"]) == ("websocket.disconnect", 1009)
    (opcode, close_body), *others = frames(bytes(pipe.written))
    assert (opcode, int.from_bytes(close_body[:2], "big"), others) == (Opcode.CLOSE, 1009, [])
    ended(protocol)


async def read_of(*inputs: Frame) -> tuple[list[Any], list[tuple[Opcode, bytes]], list[str]]:
    """Return what an application reads of frames in one read, what is written, and what uvicorn logs."""
    read: list[Any] = []
    logged: list[str] = []
    finished = asyncio.Event()

    async def app(_: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        while not read or read[-1]["type"] == "websocket.receive":
            read.append(await receive())
        finished.set()

    class Noting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            logged.append(record.getMessage())

    protocol, pipe = await connected(app, ws_max_size=1000)
    noting = Noting()
    protocol.logger.addHandler(noting)
    try:
        protocol.data_received(b"".join(item.serialize(mask=True) for item in inputs))
        await asyncio.wait_for(finished.wait(), 300)
        ended(protocol)
    finally:
        protocol.logger.removeHandler(noting)
    return read, frames(bytes(pipe.written)), logged


GOOD, BAD = Frame(Opcode.TEXT, "na\u00efve".encode()), Frame(Opcode.TEXT, b"na\xefve")
PIECES = [Frame(Opcode.TEXT, b"na\xc3", fin=False), Frame(Opcode.CONT, b"\xafv", fin=False), Frame(Opcode.CONT, b"e")]


async def test_invalid_utf8_closes_with_a_reason_and_without_an_internal_error() -> None:
    read, written, logged = await read_of(GOOD, *PIECES, BAD, GOOD, Frame(Opcode.BINARY, b"late"), BAD)
    assert [item.get("text") for item in read] == ["na\u00efve", "na\u00efve", None]
    reason = read[-1].pop("reason")
    assert re.search(r"\bUTF-8\b.*\b2\b", reason)
    assert read[-1] == {"type": "websocket.disconnect", "code": 1007}
    assert written == [(Opcode.CLOSE, (1007).to_bytes(2, "big") + reason.encode())]
    assert logged == []


@pytest.mark.parametrize("last", [Frame(Opcode.CLOSE, b"\x03\xe8"), Frame(Opcode.BINARY, bytes(1001))])
async def test_invalid_utf8_before_another_close_in_the_same_data(last: Frame) -> None:
    read, written, logged = await read_of(GOOD, BAD, last)
    assert [(item["type"], item.get("text"), item.get("code")) for item in read] == [
        ("websocket.receive", "na\u00efve", None),
        ("websocket.disconnect", None, 1007),
    ]
    assert [(opcode, int.from_bytes(close_body[:2], "big")) for opcode, close_body in written] == [(Opcode.CLOSE, 1007)]
    assert logged == []


@pytest.mark.parametrize("how", ["by us", "by peer", "lost"])
async def test_writing_to_a_closed_connection_is_an_os_error(how: str) -> None:
    outcome: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        if how == "by us":
            await send({"type": "websocket.close"})
        assert (await receive())["type"] == "websocket.disconnect"
        try:
            await scope["extensions"][EXTENSION].write([b"late"], False)
        except OSError as error:
            outcome.set_result(error)

    protocol, pipe = await connected(app)
    if how == "by peer":
        protocol.data_received(frame_bytes(Opcode.CLOSE, b"\x03\xe8"))
    elif how == "lost":
        ended(protocol)
    assert isinstance(await asyncio.wait_for(outcome, 300), OSError)
    assert b"late" not in pipe.written
    if how != "lost":
        ended(protocol)


@pytest.mark.parametrize("how", ["the application is done", "no pong"])
async def test_a_peer_that_reads_nothing_cannot_prevent_the_close(how: str) -> None:
    async def app(_: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        if how == "no pong":
            await receive()

    protocol, pipe = await connected(app)
    protocol.close_timeout = 0.0
    if how == "no pong":
        protocol.keepalive_timeout()
    await asyncio.wait_for(pipe.aborted.wait(), 300)
    ended(protocol)
