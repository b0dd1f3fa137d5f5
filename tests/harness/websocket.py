"""Open a websocket to an application in this process over ASGI; `Gated` is a store that tests can block."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import msgpack

from service.api.websocket.transport import EXTENSION, Transport
from service.storage.memory import MemoryStore
from service.storage.store_protocol import LogEntry

__all__ = ["Gated", "Websocket", "websocket"]


class Websocket:
    """The client's end."""

    def __init__(self) -> None:
        self.to_server: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.to_client: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.binary = False  # the last reply
        self.to_server.put_nowait({"type": "websocket.connect"})

    def send(self, *messages: dict[str, Any] | str | bytes, binary: bool = False) -> None:
        """Send messages: objects as JSON or MessagePack, others as they are."""
        for item in messages:
            if isinstance(item, dict):
                item = msgpack.packb(item) if binary else json.dumps(item)
            self.to_server.put_nowait(
                {"type": "websocket.receive", "bytes" if isinstance(item, bytes) else "text": item}
            )

    async def read(self) -> Sequence[str | bytes]:
        """Implement `Transport.read`: return the messages sent so far."""
        messages: list[str | bytes] = []
        while not messages or not self.to_server.empty():
            event = await self.to_server.get()
            if event["type"] != "websocket.receive":
                if messages:
                    self.leave()  # to be met once more
                return messages
            messages.append(event["bytes"] if "bytes" in event else event["text"])
        return messages

    async def write(self, messages: Sequence[bytes], binary: bool) -> None:
        """Implement `Transport.write`."""
        for item in messages:
            message: dict[str, Any] = {"bytes": item} if binary else {"text": item.decode()}
            self.to_client.put_nowait({"type": "websocket.send", **message})

    def leave(self) -> None:
        """End the connection after the messages already sent."""
        self.to_server.put_nowait({"type": "websocket.disconnect", "code": 1005})

    async def event(self) -> dict[str, Any]:
        """Wait for the next ASGI event of the server."""
        return await asyncio.wait_for(self.to_client.get(), 300)

    async def reply(self) -> dict[str, Any]:
        """Wait for the next message and decode it."""
        event = await self.event()
        assert event["type"] == "websocket.send", event
        text, data = event.get("text"), event.get("bytes")
        self.binary = data is not None
        message: dict[str, Any] = json.loads(text) if data is None else msgpack.unpackb(data)
        return message

    async def replies(self, count: int) -> list[dict[str, Any]]:
        """Wait for the next messages."""
        return [await self.reply() for _ in range(count)]

    async def closed(self) -> tuple[int, str]:
        """Wait for the close; return its code and reason."""
        event = await self.event()
        assert event["type"] == "websocket.close", event
        return event["code"], event.get("reason", "")

    @property
    def quiet(self) -> bool:
        """Say whether every event has been read."""
        return self.to_client.empty()


@asynccontextmanager
async def websocket(
    app: Any,
    path: str = "/v1/ws",
    headers: Sequence[tuple[bytes, bytes]] = (),
    *,
    query: bytes = b"",
    root: str = "",
    extensions: Sequence[str] = (),
    greeted: bool = True,
    batched: bool = False,
) -> AsyncIterator[Websocket]:
    """Open a connection and read the greeting, unless the test does that.

    `batched`: the server returns all messages sent so far from one read.
    """
    end = Websocket()

    async def send(message: dict[str, Any]) -> None:
        end.to_client.put_nowait(message)
        if message["type"] in ("websocket.close", "websocket.http.response.body"):
            end.leave()

    scope = {"type": "websocket", "path": path, "raw_path": path.encode(), "query_string": query, "headers": headers}
    scope |= {"asgi": {"version": "3.0", "spec_version": "2.4"}, "subprotocols": [], "root_path": root}
    scope |= {"extensions": {name: {} for name in extensions}}
    if batched:
        scope["extensions"][EXTENSION] = Transport(end.read, end.write, partial(asyncio.sleep, 0), lambda: None)
    serving = asyncio.create_task(app(scope, end.to_server.get, send))
    if greeted:
        assert (await end.event())["type"] == "websocket.accept"
        assert (await end.reply())["type"] == "hello"
    try:
        yield end
    finally:
        end.leave()
        await asyncio.wait_for(serving, 300)


class Gated(MemoryStore):
    """A store that appends nothing to the logs of some learners until told to."""

    def __init__(self) -> None:
        super().__init__()
        self.gates: dict[str, asyncio.Event] = {}
        self.waiting = asyncio.Event()  # somebody waits at a gate

    def shut(self, learner: str) -> asyncio.Event:
        """Shut a learner's gate; set the event to open it."""
        gate = self.gates[learner] = asyncio.Event()
        self.waiting.clear()
        return gate

    async def append(
        self, learner: str, birth: bytes, records: Any, after: int, snapshot: bytes = b"", reserve: bool = False
    ) -> list[LogEntry]:
        """See `Store`."""
        gate = self.gates.get(learner)
        if gate is not None and not gate.is_set():
            self.waiting.set()
            await gate.wait()
        return await super().append(learner, birth, records, after, snapshot, reserve)
