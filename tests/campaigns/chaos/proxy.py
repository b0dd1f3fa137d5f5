"""A TCP proxy that drops, delays, duplicates and truncates what passes through it."""

from __future__ import annotations

import asyncio
from contextlib import suppress

__all__ = ["Proxy"]

_CHUNK = 2**16
_REPLAY_SECONDS = 1.0  # that a duplicate's connection stays open


class Proxy:
    """From a loopback port of its own to a target, which may change for new connections."""

    def __init__(self, target: int) -> None:
        """`target`: a loopback port."""
        self.target = target
        self.port = 0
        self.delay = 0.0  # seconds for each piece, in each direction
        self.truncate = 0  # so many pieces to come are cut in half, and the connection with them
        self.duplicate = 0  # so many pieces to come that begin a request are sent a second time, by another connection
        self._hit = 0
        self._cut = False
        self._passing = asyncio.Event()
        self._passing.set()
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """End it, and every connection."""
        assert self._server is not None
        self._server.close()
        self.reset()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    # Faults

    def reset(self) -> None:
        """Break every connection that is open."""
        for writer in self._open:
            writer.transport.abort()

    def cut(self) -> None:
        """Break every connection, and every new one at once."""
        self._cut = True
        self._hit += len(self._open)
        self.reset()

    def hold(self) -> None:
        """Let nothing through, and break nothing: as where packets are lost."""
        self._passing.clear()

    def heal(self) -> int:
        """Be a wire again; how many connections and pieces it has done something to since it was one."""
        self._cut = False
        self._passing.set()
        self.delay = 0.0
        self.truncate = self.duplicate = 0
        hit, self._hit = self._hit, 0
        return hit

    # Connections

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._connected(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            if self._cut:
                self._hit += 1
                return
            await self._pass()
            upstream, onwards = await asyncio.open_connection("127.0.0.1", self.target)
            self._open.add(onwards)
            try:
                ways = [asyncio.create_task(self._pump(reader, onwards, requests=True))]
                ways.append(asyncio.create_task(self._pump(upstream, writer, requests=False)))
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                for way in ways:
                    way.cancel()
                await asyncio.wait(ways)
            finally:
                self._open.discard(onwards)
                onwards.transport.abort()
        except OSError:  # nobody listens there
            pass
        finally:
            self._open.discard(writer)
            writer.transport.abort()

    async def _pass(self) -> None:
        """Wait while nothing is let through."""
        if not self._passing.is_set():
            self._hit += 1
            await self._passing.wait()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, requests: bool) -> None:
        with suppress(OSError):
            while data := await reader.read(_CHUNK):
                await self._pass()
                if self.delay:
                    self._hit += 1
                    await asyncio.sleep(self.delay)
                if requests and self.duplicate and data[:1] in (b"*", b"P"):  # of Redis, or POST and PUT
                    self.duplicate -= 1
                    self._hit += 1
                    task = asyncio.create_task(self._again(data))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
                if self.truncate:
                    self.truncate -= 1
                    self._hit += 1
                    writer.write(data[: len(data) // 2])
                    await writer.drain()
                    return
                writer.write(data)
                await writer.drain()

    async def _again(self, data: bytes) -> None:
        """Send the same once more, and take no notice of the answer."""
        with suppress(OSError, TimeoutError):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.target)
            try:
                writer.write(data)
                await asyncio.wait_for(reader.read(_CHUNK), _REPLAY_SECONDS)
            finally:
                writer.transport.abort()
