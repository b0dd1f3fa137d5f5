"""HTTP under uvicorn: what is written, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from uvicorn.config import Config
from uvicorn.server import ServerState

from service.protocol import HttpProtocol
from tests.service.pipe import Pipe

Application = Callable[[Any, Any, Any], Awaitable[None]]


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
