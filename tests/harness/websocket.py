"""A websocket to an application in this process, spoken over ASGI; and a store that waits until it is told to go on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
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
        """Put messages on their way: objects as JSON, or as MessagePack; others as they are."""
        for one in messages:
            if isinstance(one, dict):
                one = msgpack.packb(one) if binary else json.dumps(one)
            self.to_server.put_nowait({"type": "websocket.receive", "bytes" if isinstance(one, bytes) else "text": one})

    async def read(self) -> Sequence[str | bytes]:
        """As `Transport.read`: what was sent by now, before the end."""
        found: list[str | bytes] = []
        while not found or not self.to_server.empty():
            event = await self.to_server.get()
            if event["type"] != "websocket.receive":
                if found:
                    self.leave()  # to be met once more
                return found
            found.append(event["bytes"] if "bytes" in event else event["text"])
        return found

    async def write(self, messages: Sequence[bytes], binary: bool) -> None:
        """As `Transport.write`."""
        for one in messages:
            said: dict[str, Any] = {"bytes": one} if binary else {"text": one.decode()}
            self.to_client.put_nowait({"type": "websocket.send", **said})

    def leave(self) -> None:
        """The connection ends, after what is on its way."""
        self.to_server.put_nowait({"type": "websocket.disconnect", "code": 1005})

    async def event(self) -> dict[str, Any]:
        """What the server does next."""
        return await asyncio.wait_for(self.to_client.get(), 300)

    async def reply(self) -> dict[str, Any]:
        """The next message, read."""
        event = await self.event()
        assert event["type"] == "websocket.send", event
        text, data = event.get("text"), event.get("bytes")
        self.binary = data is not None
        found: dict[str, Any] = json.loads(text) if data is None else msgpack.unpackb(data)
        return found

    async def replies(self, count: int) -> list[dict[str, Any]]:
        """The next messages."""
        return [await self.reply() for _ in range(count)]

    async def closed(self) -> tuple[int, str]:
        """The code and the reason of the close, which comes next."""
        event = await self.event()
        assert event["type"] == "websocket.close", event
        return event["code"], event.get("reason", "")

    @property
    def quiet(self) -> bool:
        """Whether nothing has come that was not read."""
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
    whole: bool = False,
) -> AsyncIterator[Websocket]:
    """A connection; what it is greeted with has been read, unless that is left to the test.

    `whole`: over a server that hands over all that was sent by then as one read.
    """
    end = Websocket()

    async def send(message: dict[str, Any]) -> None:
        end.to_client.put_nowait(message)
        if message["type"] in ("websocket.close", "websocket.http.response.body"):
            end.leave()

    scope = {"type": "websocket", "path": path, "raw_path": path.encode(), "query_string": query, "headers": headers}
    scope |= {"asgi": {"version": "3.0", "spec_version": "2.4"}, "subprotocols": [], "root_path": root}
    scope |= {"extensions": {name: {} for name in extensions}}
    if whole:
        scope["extensions"][EXTENSION] = Transport(end.read, end.write, lambda: None)
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
        self.asked = asyncio.Event()  # somebody waits at a gate

    def shut(self, learner: str) -> asyncio.Event:
        """Shut a learner's gate; set the event to open it."""
        gate = self.gates[learner] = asyncio.Event()
        self.asked.clear()
        return gate

    async def append(self, learner: str, birth: bytes, records: Any, after: int, known: bytes = b"") -> list[LogEntry]:
        """See `Store`."""
        gate = self.gates.get(learner)
        if gate is not None and not gate.is_set():
            self.asked.set()
            await gate.wait()
        return await super().append(learner, birth, records, after, known)
