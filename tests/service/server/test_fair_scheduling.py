"""Connections that send many requests at once take turns, so that others need not wait."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from uvicorn.config import Config
from uvicorn.server import ServerState
from websockets.frames import Frame, Opcode

from service.server.http_protocol import HttpProtocol
from service.server.ws_protocol import WebSocketProtocol
from service.storage.memory import MemoryStore
from tests.harness.apps import DENSE, events
from tests.harness.nodes import app_over, over, posted
from tests.harness.nodes import node as running
from tests.harness.pipe import Pipe
from tests.harness.raw import request
from tests.service.server.test_upgrades import handshake

pytestmark = pytest.mark.integration

URL = "/v1/learners/a"
PREDICT = request(b'{"events":[{"x":[1,2,3]}]}', f"{URL}/predict")
GET = request(b"", "/v1/learners", "GET")
A_TURN = 4096 // len(PREDICT) + 1  # requests that end in a piece


class Reading(Pipe):
    """A transport whose peer reads everything at once."""

    def get_write_buffer_size(self) -> int:
        return 0


@asynccontextmanager
async def connections(count: int, ws: Any = "none") -> AsyncIterator[list[tuple[HttpProtocol, Pipe]]]:
    """Open connections to one node, without sockets."""
    async with running(MemoryStore()) as engine:
        async with over(engine) as http:
            assert (await http.put("/learners/a", json=DENSE)).status_code == 201
            await posted(http, "/learners/a/update", events(20))
        config = Config(app_over(engine), lifespan="off", log_config=None, http=HttpProtocol, ws=ws)
        config.load()
        state, opened = ServerState(), []
        for _ in range(count):
            protocol, pipe = HttpProtocol(config, state, {}), Reading()
            protocol.connection_made(pipe)
            opened.append((protocol, pipe))
        yield opened
        for protocol, _ in opened:
            protocol.connection_lost(None)


def replies(pipe: Pipe) -> int:
    return pipe.written.count(b"HTTP/1.1 200 OK")


async def turns(until: Callable[[], bool], step: Callable[[], None]) -> None:
    """Run iterations of the event loop, and `step` after each."""
    while not until():
        await asyncio.sleep(0)
        step()


async def test_pipelined_predictions_are_answered_some_in_each_iteration() -> None:
    async with connections(1) as [(protocol, pipe)]:
        protocol.data_received(1000 * PREDICT)
        counts = [replies(pipe)]
        assert pipe.paused  # nothing more is read meanwhile
        await turns(lambda: replies(pipe) == 1000, lambda: counts.append(replies(pipe)))
        assert not pipe.paused
        grown = [after - before for before, after in zip([0, *counts], counts, strict=False)]
        assert max(grown) <= A_TURN


async def test_connections_take_turns_and_one_takes_a_turn_in_an_iteration() -> None:
    async with connections(5) as opened:
        for protocol, _ in opened:
            protocol.data_received(500 * PREDICT)
        before = [replies(pipe) for _, pipe in opened]

        def check() -> None:
            nonlocal before
            now = [replies(pipe) for _, pipe in opened]
            assert sum(now) - sum(before) <= A_TURN
            assert max(now) - min(now) <= 2 * A_TURN
            before = now

        await turns(lambda: sum(before) == 2500, check)


async def test_a_new_client_is_answered_while_others_wait_for_their_turns() -> None:
    async with connections(6) as opened:
        *greedy, (protocol, pipe) = opened
        for crowd, _ in greedy:
            crowd.data_received(500 * PREDICT)
        for _ in range(20):
            await asyncio.sleep(0)
            protocol.data_received(PREDICT)
        await turns(lambda: replies(pipe) == 20, lambda: None)
        assert max(replies(crowd) for _, crowd in greedy) < 500


async def test_pipelined_requests_of_asgi_are_answered_in_order_and_few_are_held() -> None:
    async with connections(1) as [(protocol, pipe)]:
        protocol.data_received(300 * (GET + PREDICT))
        pending = [len(protocol.pipeline)]
        await turns(lambda: replies(pipe) == 600, lambda: pending.append(len(protocol.pipeline)))
        assert max(pending) <= 4096 // len(GET) + 1
        bodies = bytes(pipe.written).split(b"HTTP/1.1 200 OK")[1:]
        assert [b'"asleep"' in body for body in bodies] == 300 * [True, False]
        assert not pipe.paused


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_large_body_takes_few_pieces(chunked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    body = b'{"events":[{"x":[1,2,3]}%b]}' % (200_000 * b" ")
    data = request(body, f"{URL}/predict")
    if chunked:
        framed = b"".join(
            b"%x\r\n%b\r\n" % (len(body[i : i + 100]), body[i : i + 100]) for i in range(0, len(body), 100)
        )
        data = request(b"", f"{URL}/predict", transfer_encoding="chunked")
        data = data.replace(b"content-length: 0\r\n", b"") + framed + b"0\r\n\r\n"
    monkeypatch.setattr("service.server.http_protocol.perf_counter", lambda: 0.0)  # a turn is never over by its time
    pieces: list[int] = []
    parse = HttpProtocol._parse_piece

    def counted(self: HttpProtocol, piece: bytes) -> None:
        pieces.append(len(piece))
        parse(self, piece)

    monkeypatch.setattr(HttpProtocol, "_parse_piece", counted)
    async with connections(1) as [(protocol, pipe)]:
        protocol.data_received(data + PREDICT)
        await turns(lambda: replies(pipe) == 2, lambda: None)
        assert len(pieces) <= (8 if chunked else 3)


async def test_a_body_of_small_chunks_is_parsed_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = itertools.count()
    monkeypatch.setattr("service.server.http_protocol.perf_counter", lambda: next(seconds))  # each turn is over at once
    body = b'{"events":[{"x":[1,2,3]}]}' + 30_000 * b" "
    framed = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
    data = request(b"", f"{URL}/predict", transfer_encoding="chunked").replace(b"content-length: 0\r\n", b"")
    async with connections(2) as [(protocol, pipe), (other, others_pipe)]:
        protocol.data_received(data + framed + b"0\r\n\r\n")
        assert pipe.paused  # nothing more is read meanwhile
        other.data_received(PREDICT)
        await turns(lambda: replies(others_pipe) == 1, lambda: None)
        assert replies(pipe) == 0
        await turns(lambda: replies(pipe) == 1, lambda: None)
        assert not pipe.paused


async def test_bytes_behind_a_handshake_in_a_later_piece_reach_the_websocket() -> None:
    """The handshake is in the first turn, and most frames are not."""
    seen: list[Any] = []

    async def app(_: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        while len(seen) < 300:
            seen.append((await receive())["text"])

    config = Config(app, lifespan="off", log_config=None, http=HttpProtocol, ws=WebSocketProtocol)
    config.load()
    protocol, pipe = HttpProtocol(config, ServerState(), {}), Reading()
    pipe.set_protocol = lambda _: None  # type: ignore[method-assign]
    protocol.connection_made(pipe)
    frames = b"".join(Frame(Opcode.TEXT, b"%d" % i + 100 * b" ").serialize(mask=True) for i in range(300))
    protocol.data_received(handshake() + frames)
    await turns(lambda: len(seen) == 300, lambda: None)
    assert [int(text) for text in seen] == list(range(300))
    assert not pipe.paused


async def test_messages_of_one_read_that_are_refused_leave_others_their_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = itertools.count()
    monkeypatch.setattr("service.api.websocket.connection.perf_counter", lambda: next(seconds))  # each turn is over
    async with connections(1, WebSocketProtocol) as [(protocol, pipe)]:
        pipe.set_protocol = lambda _: None  # type: ignore[method-assign]
        protocol.data_received(handshake(f"{URL}/ws"))
        await turns(lambda: b"hello" in pipe.written, lambda: None)
        refused = [Frame(Opcode.TEXT, b'{"seq":%d,"op":"x"}' % seq).serialize(mask=True) for seq in range(300)]
        protocol.data_received(b"".join(refused))
        counts = [0]
        await turns(lambda: counts[-1] == 300, lambda: counts.append(pipe.written.count(b'"code":"invalid"')))
        assert max(after - before for before, after in itertools.pairwise(counts)) <= 2


async def test_a_handshake_in_a_later_turn_leaves_reading_to_the_websocket(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = itertools.count()
    monkeypatch.setattr("service.server.ws_protocol.perf_counter", lambda: next(seconds))  # each turn is over at once
    async with connections(1, WebSocketProtocol) as [(protocol, pipe)]:
        pipe.set_protocol = lambda _: None  # type: ignore[method-assign]
        protocol._scheduler.queue(lambda: None)  # so the handshake waits for its turn
        protocol.data_received(handshake(f"{URL}/ws") + 2000 * Frame(Opcode.PING, b"").serialize(mask=True))
        assert not protocol._upgraded
        await turns(lambda: protocol._upgraded, lambda: None)
        waiting: list[bool] = []
        await turns(
            lambda: not protocol._websocket._unparsed,
            lambda: waiting.append(bool(protocol._websocket._unparsed) and not pipe.paused),
        )
        assert len(waiting) > 10
        assert not any(waiting)
