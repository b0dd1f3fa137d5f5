"""A websocket stream that blocks; its state is in `stream_session`."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from rarestream.client.batch import EventBatch
from rarestream.client.connections import check_process
from rarestream.client.decode import PredictResult, UpdateResult
from rarestream.client.errors import OutcomeUnknown
from rarestream.client.service_address import ServiceAddress
from rarestream.client.source import Source
from rarestream.client.stream_errors import close_reason, opening
from rarestream.client.stream_session import PendingReply, StreamSession
from rarestream.client.tls_stream import StreamConnection

__all__ = ["LearnerStream", "StreamReply"]

Result = TypeVar("Result")


class StreamReply(Generic[Result]):
    """The answer to a request of a stream, once it has arrived."""

    def __init__(self, stream: LearnerStream, pending: PendingReply[Result]) -> None:
        self._stream = stream
        self._pending = pending

    @property
    def seq(self) -> int:
        """The number of the request in its stream, from 0."""
        return self._pending.seq

    @property
    def done(self) -> bool:
        """Whether the answer has arrived; nothing is read to find out."""
        return self._pending.answered

    def result(self, timeout: float | None = None) -> Result:
        """Wait for the answer. Raises `RequestRefused`, `StreamBroken`, or TimeoutError after `timeout` seconds."""
        until = None if timeout is None else time.monotonic() + timeout
        while not self._pending.answered:
            self._stream._receive(None if until is None else until - time.monotonic())
        return self._pending.take()


class LearnerStream:
    """Requests over one websocket; a context manager, for one thread. Answers come in the order of the requests.

    Leaving the block waits for every answer, and raises the first error that no `result()` has raised. If the
    connection breaks, everything raises `StreamBroken`, which names the unanswered requests with their ids:
    repeat them in a new stream. A stream never sends a request again. Requests after a refused one are still served.
    """

    def __init__(self, connection: ServiceAddress, name: str, window: int) -> None:
        self._connection = connection
        self._name = name
        self._session = StreamSession(window)
        self._stack = ExitStack()
        self._socket: ClientConnection | None = None
        self._process = 0  # that opened it

    def __enter__(self) -> Self:
        self._process = os.getpid()
        url, options = self._connection.stream(self._name)
        with ExitStack() as stack, opening():
            self._socket = stack.enter_context(connect(url, create_connection=StreamConnection, **options))
            self._session.greet(self._socket.recv(self._connection.timeout))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process != os.getpid():
            return  # the other process still uses the connection
        with self._stack:
            if kind is None:
                self.drain()
        self._session.end("the stream was closed")

    def update(
        self,
        X: Any,
        y: Any,
        ids: Any = None,
        weights: Any = None,
        times: Any = None,
        source: Source | None = None,
    ) -> StreamReply[UpdateResult]:
        """Call `RemoteLearner.update` in one message. Waits only if the window is full."""
        self._make_room()
        return self._send(*self._session.update(EventBatch(X, y, ids, weights, times), source))

    def labels(self, ids: Any, y: Any, weights: Any = None, times: Any = None) -> StreamReply[UpdateResult]:
        """Call `RemoteLearner.labels` in one message."""
        return self.update(None, y, ids, weights, times)

    def predict(
        self, X: Any, ids: Any = None, times: Any = None, explain: int | None = None, at_least: int | None = None
    ) -> StreamReply[PredictResult]:
        """Call `RemoteLearner.predict` in one message."""
        self._make_room()
        return self._send(*self._session.predict(X, ids, times, explain, at_least))

    def drain(self) -> None:
        """Wait until every request is answered; raise the first error that no `result()` has raised."""
        while not self._session.idle:
            self._receive(None)
        self._session.raise_unseen()

    def _make_room(self) -> None:
        self._open()
        while not self._session.free:
            self._receive(None)

    def _send(self, message: bytes, pending: PendingReply[Result]) -> StreamReply[Result]:
        try:
            self._open().send(message)
        except ConnectionClosed:
            while True:  # reads the answers that have arrived, then raises the reason
                self._receive(None)
        return StreamReply(self, pending)

    def _receive(self, timeout: float | None) -> None:
        try:
            self._session.receive(self._open().recv(timeout))
        except ConnectionClosed as error:
            self._session.end(close_reason(error))
        except OutcomeUnknown as error:
            self._session.end(error.detail)
        self._session.check_open()

    def _open(self) -> ClientConnection:
        """Return the open connection; raise if there is none."""
        self._session.check_open()
        if self._socket is None:
            raise RuntimeError("the stream is not open; use it in a with block")
        check_process(self._process)
        return self._socket
