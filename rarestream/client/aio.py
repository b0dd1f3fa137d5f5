"""The client that awaits: httpx for requests, websockets for streams; all else is in `calls.py` and `session.py`."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterable, Callable, Generator, Iterable, Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Generic, Literal, Self, TypeVar

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from rarestream.client.connection import Connection, ended, failed, opening
from rarestream.client.decode import Document, Predicted, Updated
from rarestream.client.encode import DEFAULT_BOUNDS, Batch, Bounds
from rarestream.client.errors import Unanswered
from rarestream.client.redirects import HOPS, elsewhere
from rarestream.client.requests import Call, Calls, Failure, Pause, Request, Response, Retries, Upload, Uploaded
from rarestream.client.source import Source
from rarestream.client.stream_session import Pending, Session

__all__ = ["AsyncClient", "AsyncLearner", "AsyncReply", "AsyncStream"]

Result = TypeVar("Result")


class AsyncClient:
    """As `Client`, awaited. An async context manager; tasks may share it."""

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        patience: float = 60.0,
        timeout: float = 120.0,
        headers: Mapping[str, str] | None = None,
        verify: ssl.SSLContext | None = None,
        trust_env: bool = True,
        bounds: Bounds = DEFAULT_BOUNDS,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._calls = Calls(Retries(patience), bounds)
        self._connection = Connection(url, timeout, headers, verify, trust_env, key)
        self._http = httpx.AsyncClient(transport=transport, **self._connection.http)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections. Streams have their own."""
        await self._http.aclose()

    def learner(self, name: str) -> AsyncLearner:
        """The learner of this name; nothing is asked of the service yet."""
        return AsyncLearner(self, name)

    async def create(self, name: str, *, algorithm: str, features: Mapping[str, Any], **settings: Any) -> AsyncLearner:
        """As `Client.create`."""
        await self._run(self._calls.create(name, {"algorithm": algorithm, "features": features, **settings}))
        return self.learner(name)

    async def learners(self) -> Document:
        """As `Client.learners`."""
        return await self._run(self._calls.get("learners"))

    async def delete(self, name: str) -> None:
        """As `Client.delete`."""
        await self._run(self._calls.delete(name))

    async def _run(self, call: Call[Result]) -> Result:
        answer: Response | Failure | None = None
        while True:
            try:
                step = call.send(answer)
            except StopIteration as end:
                result: Result = end.value
                return result
            if isinstance(step, Pause):
                await asyncio.sleep(step.seconds)
                answer = None
            else:
                answer = await self._send(step)

    async def _send(self, request: Request) -> Response | Failure:
        try:
            arguments = self._connection.arguments(request)
            response = await self._http.request(**arguments)
            for _ in range(HOPS):
                if (there := elsewhere(response)) is None:
                    break
                response = await self._http.request(**{**arguments, "url": there})
        except httpx.RequestError as error:
            return failed(error)
        return Response(response.status_code, response.headers, response.content)


class AsyncLearner:
    """As `Learner`, awaited. Calls of one learner that wait for each other keep their order; concurrent ones do not."""

    def __init__(self, client: AsyncClient, name: str) -> None:
        self.name = name
        self._client = client

    async def update(
        self,
        X: Any,
        y: Any,
        ids: Any = None,
        weights: Any = None,
        times: Any = None,
        source: Source | None = None,
    ) -> Updated:
        """As `Learner.update`."""
        return await self._client._run(self._client._calls.update(self.name, Batch(X, y, ids, weights, times), source))

    async def labels(self, ids: Any, y: Any, weights: Any = None, times: Any = None) -> Updated:
        """As `Learner.labels`."""
        return await self.update(None, y, ids, weights, times)

    async def predict(
        self, X: Any, ids: Any = None, times: Any = None, explain: int | None = None, at_least: int | None = None
    ) -> Predicted:
        """As `Learner.predict`."""
        return await self._client._run(self._client._calls.predict(self.name, X, ids, times, explain, at_least))

    async def upload(
        self,
        batches: Iterable[Batch | tuple[Any, ...]] | AsyncIterable[Batch | tuple[Any, ...]],
        *,
        ids: Literal["auto"] | None = None,
        source: Source | None = None,
        progress: Callable[[Uploaded], None] | None = None,
    ) -> Uploaded:
        """As `Learner.upload`; the batches may be an async iterable, too."""
        upload = Upload(self._client._calls, self.name, ids, source, progress)
        if isinstance(batches, AsyncIterable):
            async for batch in batches:
                await self._client._run(upload.send(batch))
        else:
            for batch in batches:
                await self._client._run(upload.send(batch))
        return upload.so_far

    def stream(self, window: int = 64) -> AsyncStream:
        """As `Learner.stream`."""
        return AsyncStream(self._client._connection, self.name, window)

    async def describe(self) -> Document:
        """As `Learner.describe`."""
        return await self._client._run(self._client._calls.about(self.name))

    async def change(self, **settings: Mapping[str, Any]) -> Document:
        """As `Learner.change`."""
        return await self._client._run(self._client._calls.change(self.name, settings))

    async def metrics(self) -> Document:
        """As `Learner.metrics`."""
        return await self._client._run(self._client._calls.about(self.name, "metrics"))

    async def digest(self) -> Document:
        """As `Learner.digest`."""
        return await self._client._run(self._client._calls.about(self.name, "digest"))

    async def snapshot(self) -> Document:
        """As `Learner.snapshot`."""
        return await self._client._run(self._client._calls.snapshot(self.name))


class AsyncReply(Generic[Result]):
    """The answer to a request of a stream: awaited, it is the result, any number of times."""

    def __init__(self, pending: Pending[Result]) -> None:
        self._pending = pending
        self._come = asyncio.Event()
        pending.on_answer = self._come.set

    @property
    def seq(self) -> int:
        """The number of the request in its stream, from 0."""
        return self._pending.seq

    @property
    def done(self) -> bool:
        """Whether the answer has come."""
        return self._pending.answered

    def __await__(self) -> Generator[Any, None, Result]:
        """Raises what the request was refused for, or `StreamBroken`."""
        if not self._pending.answered:
            yield from self._come.wait().__await__()
        return self._pending.take()


class AsyncStream:
    """As `Stream`, awaited: `reply = await stream.update(...)` once it is sent, `await reply` for the answer."""

    def __init__(self, connection: Connection, name: str, window: int) -> None:
        self._connection = connection
        self._name = name
        self._session = Session(window)
        self._stack = AsyncExitStack()
        self._socket: ClientConnection | None = None
        self._reader: asyncio.Task[None] | None = None
        self._sending = asyncio.Lock()  # the order of sending is that of the numbers
        self._moved = asyncio.Event()  # an answer has come, or the stream is over

    async def __aenter__(self) -> Self:
        url, options = self._connection.stream(self._name)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._read_out)  # after the socket is closed
            with opening():
                self._socket = await stack.enter_async_context(connect(url, **options))
                async with asyncio.timeout(self._connection.timeout):
                    self._session.hello(await self._socket.recv())
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
    ) -> AsyncReply[Updated]:
        """As `Stream.update`."""
        return await self._send(lambda: self._session.update(Batch(X, y, ids, weights, times), source))

    async def labels(self, ids: Any, y: Any, weights: Any = None, times: Any = None) -> AsyncReply[Updated]:
        """As `Stream.labels`."""
        return await self.update(None, y, ids, weights, times)

    async def predict(
        self, X: Any, ids: Any = None, times: Any = None, explain: int | None = None, at_least: int | None = None
    ) -> AsyncReply[Predicted]:
        """As `Stream.predict`."""
        return await self._send(lambda: self._session.predict(X, ids, times, explain, at_least))

    async def drain(self) -> None:
        """As `Stream.drain`."""
        while not self._session.idle:
            await self._movement()
        self._session.check()

    async def _send(self, ask: Callable[[], tuple[bytes, Pending[Result]]]) -> AsyncReply[Result]:
        async with self._sending:
            if self._socket is None:
                raise RuntimeError("the stream is not open; use it in an async with block")
            while not self._session.free:
                await self._movement()
            message, pending = ask()
            reply = AsyncReply(pending)
            try:
                await self._socket.send(message)
            except ConnectionClosed:
                while self._session.error is None:  # the reader takes what had been answered, and says why it ended
                    await self._movement()
                self._session.ensure()
            return reply

    async def _movement(self) -> None:
        self._moved.clear()
        await self._moved.wait()

    async def _read_out(self) -> None:
        if self._reader is not None:
            await self._reader

    async def _read(self, socket: ClientConnection) -> None:
        try:
            while True:
                self._session.receive(await socket.recv())
                self._moved.set()
        except ConnectionClosed as error:
            self._session.broken(ended(error))
        except Unanswered as error:
            self._session.broken(error.detail)
        finally:
            self._session.broken("the stream was closed")  # in any case, for nothing will be read any more
            self._moved.set()
