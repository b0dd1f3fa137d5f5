"""A websocket stream that awaits; its state is in `stream_session`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from rarestream.client.batch import EventBatch
from rarestream.client.decode import PredictResult, UpdateResult
from rarestream.client.errors import OutcomeUnknown
from rarestream.client.service_address import ServiceAddress
from rarestream.client.source import Source
from rarestream.client.stream_errors import close_reason, opening
from rarestream.client.stream_session import PendingReply, StreamSession

__all__ = ["AsyncLearnerStream", "AsyncStreamReply"]

Result = TypeVar("Result")


class AsyncStreamReply(Generic[Result]):
    """The answer to a request of a stream. Await it, any number of times, for the result."""

    def __init__(self, pending: PendingReply[Result]) -> None:
        self._pending = pending
        self._arrived = asyncio.Event()
        pending.on_answer = self._arrived.set

    @property
    def seq(self) -> int:
        """The number of the request in its stream, from 0."""
        return self._pending.seq

    @property
    def done(self) -> bool:
        """Whether the answer has arrived."""
        return self._pending.answered

    def __await__(self) -> Generator[Any, None, Result]:
        """Wait for the answer. Raises `RequestRefused` or `StreamBroken`."""
        if not self._pending.answered:
            yield from self._arrived.wait().__await__()
        return self._pending.take()


class AsyncLearnerStream:
    """`LearnerStream`, awaited: `reply = await stream.update(...)` sends, `await reply` waits for the answer."""

    def __init__(self, connection: ServiceAddress, name: str, window: int) -> None:
        self._connection = connection
        self._name = name
        self._session = StreamSession(window)
        self._stack = AsyncExitStack()
        self._socket: ClientConnection | None = None
        self._reader: asyncio.Task[None] | None = None
        self._sending = asyncio.Lock()  # requests are sent in the order of their numbers
        self._progress = asyncio.Event()  # an answer has arrived, or the stream has ended

    async def __aenter__(self) -> Self:
        url, options = self._connection.stream(self._name)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._read_out)  # after the socket is closed
            with opening():
                self._socket = await stack.enter_async_context(connect(url, **options))
                async with asyncio.timeout(self._connection.timeout):
                    self._session.greet(await self._socket.recv())
            self._stack = stack.pop_all()
        self._reader = asyncio.create_task(self._read(self._socket), name=f"stream of {self._name}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        async with self._stack:
            if kind is None:
                await self.drain()

    async def update(
        self,
        X: Any,
        y: Any,
        ids: Any = None,
        weights: Any = None,
        times: Any = None,
        source: Source | None = None,
    ) -> AsyncStreamReply[UpdateResult]:
        """Call `LearnerStream.update`."""
        return await self._send(lambda: self._session.update(EventBatch(X, y, ids, weights, times), source))

    async def labels(self, ids: Any, y: Any, weights: Any = None, times: Any = None) -> AsyncStreamReply[UpdateResult]:
        """Call `LearnerStream.labels`."""
        return await self.update(None, y, ids, weights, times)

    async def predict(
        self, X: Any, ids: Any = None, times: Any = None, explain: int | None = None, at_least: int | None = None
    ) -> AsyncStreamReply[PredictResult]:
        """Call `LearnerStream.predict`."""
        return await self._send(lambda: self._session.predict(X, ids, times, explain, at_least))

    async def drain(self) -> None:
        """Call `LearnerStream.drain`."""
        while not self._session.idle:
            await self._wait_for_progress()
        self._session.raise_unseen()

    async def _send(self, request: Callable[[], tuple[bytes, PendingReply[Result]]]) -> AsyncStreamReply[Result]:
        async with self._sending:
            if self._socket is None:
                raise RuntimeError("the stream is not open; use it in an async with block")
            while not self._session.free:
                await self._wait_for_progress()
            message, pending = request()
            reply = AsyncStreamReply(pending)
            try:
                await self._socket.send(message)
            except ConnectionClosed:
                while self._session.error is None:  # the reader takes the answers that have arrived, and the reason
                    await self._wait_for_progress()
                self._session.check_open()
            return reply

    async def _wait_for_progress(self) -> None:
        self._progress.clear()
        await self._progress.wait()

    async def _read_out(self) -> None:
        if self._reader is not None:
            await self._reader

    async def _read(self, socket: ClientConnection) -> None:
        try:
            while True:
                self._session.receive(await socket.recv())
                self._progress.set()
        except ConnectionClosed as error:
            self._session.end(close_reason(error))
        except OutcomeUnknown as error:
            self._session.end(error.detail)
        finally:
            self._session.end("the stream was closed")  # in any case: nothing more will be read
            self._progress.set()
