"""The least that a server can do: a bare ASGI app that sends back what it gets, over HTTP and over a websocket.

What uvicorn itself costs, so that what a service adds to it shows.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

__all__ = ["app"]

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


async def app(scope: Message, receive: Receive, send: Send) -> None:
    """ASGI."""
    if scope["type"] == "http":
        await _http(receive, send)
    elif scope["type"] == "websocket":
        await _websocket(receive, send)


async def _http(receive: Receive, send: Send) -> None:
    message = await receive()
    body = message.get("body", b"")
    while message.get("more_body"):
        message = await receive()
        body += message.get("body", b"")
    headers = [(b"content-type", b"application/octet-stream"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _websocket(receive: Receive, send: Send) -> None:
    await receive()  # the request to connect
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        await send({**message, "type": "websocket.send"})
