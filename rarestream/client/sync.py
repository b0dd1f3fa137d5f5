"""The client that blocks: httpx for requests, websockets for streams; all else is in `calls.py` and `session.py`."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Generic, Literal, Self, TypeVar

import httpx
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from rarestream.client.connection import Connection, ended, failed, opening
from rarestream.client.decode import Document, Predicted, Updated
from rarestream.client.encode import DEFAULT_BOUNDS, Batch, Bounds
from rarestream.client.errors import Unanswered
from rarestream.client.redirects import HOPS, elsewhere
from rarestream.client.requests import Call, Calls, Failure, Pause, Request, Response, Retries, Upload, Uploaded
from rarestream.client.source import Source
from rarestream.client.stream_session import Pending, Session
from rarestream.client.tls_stream import StreamConnection

__all__ = ["Client", "Learner", "Reply", "Stream"]

Result = TypeVar("Result")


class Client:
    """A service at `url`. A context manager; threads may share it.

    `key`: of the service, sent with every request as a bearer token.
    `patience`: seconds of failing after which a request is not sent again; 0 sends each once.
    `timeout`: seconds that an answer may take; an update waits for its learning, the first ever for the compiler, too.
    `headers`: of every request, for a proxy. `verify`: the TLS context of an https URL, as
    `ssl.create_default_context(cafile=...)` makes one for an authority of one's own.
    `trust_env`: whether the proxies of the environment are used, as httpx does; never for a loopback address.
    `bounds`: of one request; what is larger is cut. `transport`: of httpx, instead of a network connection.
    """

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
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._calls = Calls(Retries(patience), bounds)
        self._connection = Connection(url, timeout, headers, verify, trust_env, key)
        self._http = httpx.Client(transport=transport, **self._connection.http)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. Streams have their own."""
        self._http.close()

    def learner(self, name: str) -> Learner:
        """The learner of this name; nothing is asked of the service yet."""
        return Learner(self, name)

    def create(self, name: str, *, algorithm: str, features: Mapping[str, Any], **settings: Any) -> Learner:
        """Create a learner, or find it there with this configuration; `Refused` (409) where it has another.

        `settings`: params, scaling, embedding, calibration, threshold, ...: as in the body of the PUT.
        """
        self._run(self._calls.create(name, {"algorithm": algorithm, "features": features, **settings}))
        return self.learner(name)

    def learners(self) -> Document:
        """Every learner of the node under `learners`, and those that it cannot host under `unavailable`."""
        return self._run(self._calls.get("learners"))

    def delete(self, name: str) -> None:
        """Delete a learner with its log and its snapshots."""
        self._run(self._calls.delete(name))

    def _run(self, call: Call[Result]) -> Result:
        answer: Response | Failure | None = None
        while True:
            try:
                step = call.send(answer)
            except StopIteration as end:
                result: Result = end.value
                return result
            if isinstance(step, Pause):
                time.sleep(step.seconds)
                answer = None
            else:
                answer = self._send(step)

    def _send(self, request: Request) -> Response | Failure:
        try:
            arguments = self._connection.arguments(request)
            response = self._http.request(**arguments)
            for _ in range(HOPS):
                if (there := elsewhere(response)) is None:
                    break
                response = self._http.request(**{**arguments, "url": there})
        except httpx.RequestError as error:
            return failed(error)
        return Response(response.status_code, response.headers, response.content)


class Learner:
    """A learner of the service.

    X of n events is one of: an array (n, d), float32 or float64 as it is; a scipy sparse matrix (n, d); named features,
    as a sequence of n mappings, as a mapping of names to columns of n values, or as a data frame, whose NaN, None
    and NA are missing values. A frame of numbers goes to a learner of dense features as `frame.to_numpy()`. What is
    too large for one request is cut into several.
    """

    def __init__(self, client: Client, name: str) -> None:
        self.name = name
        self._client = client

    def update(
        self,
        X: Any,
        y: Any,
        ids: Any = None,
        weights: Any = None,
        times: Any = None,
        source: Source | None = None,
    ) -> Updated:
        """Learn n labelled events in order; X None: the labels of events that were served, by their ids.

        `ids` are n strings or whole numbers, or "auto": random ones. Each event is learnt once then, however often it
        is sent, so a request whose answer is lost is sent again. Without ids such a request raises `Unanswered`
        instead, as a repeat might learn its events twice; so it does where some are None. `source`, the events' origin
        and the number of the first in it, does as ids do; ("topic/0", [15, 16, 20], 12) gives the number of each, where
        they have holes, and where reading went on: nothing stands between 12 and 15. `times` are seconds since the
        epoch, or datetime64 in UTC.
        """
        return self._client._run(self._client._calls.update(self.name, Batch(X, y, ids, weights, times), source))

    def labels(self, ids: Any, y: Any, weights: Any = None, times: Any = None) -> Updated:
        """Labels of events that were served, by their ids; `times`: when they became known, now if not given."""
        return self.update(None, y, ids, weights, times)

    def predict(
        self, X: Any, ids: Any = None, times: Any = None, explain: int | None = None, at_least: int | None = None
    ) -> Predicted:
        """Score n events; those with ids are remembered, and their labels may come weeks later.

        `explain`: so many of the largest contributions to each score. `at_least`: a `position` that an update was
        answered with; the node that answers, whichever it is, has learnt up to there. While the service cannot reach
        its store it scores all the same, and remembers nothing: see `remembered`. Where X is cut, others' updates may
        come between.
        """
        return self._client._run(self._client._calls.predict(self.name, X, ids, times, explain, at_least))

    def upload(
        self,
        batches: Iterable[Batch | tuple[Any, ...]],
        *,
        ids: Literal["auto"] | None = None,
        source: Source | None = None,
        progress: Callable[[Uploaded], None] | None = None,
    ) -> Uploaded:
        """Learn labelled events batch by batch, each (X, y[, ids[, weights[, times]]]), and add up what became of them.

        A batch is taken from the iterator when the one before is learnt. `ids="auto"` makes ids for the batches that
        have none. `source`: name, and number of the first event; the upload can then be resumed from what
        `describe()["sources"]` says. `progress` is told after each request. `done` of an error: the events answered.
        """
        upload = Upload(self._client._calls, self.name, ids, source, progress)
        for batch in batches:
            self._client._run(upload.send(batch))
        return upload.so_far

    def stream(self, window: int = 64) -> Stream:
        """A websocket on which requests do not wait for the answers before them: at most `window` are unanswered."""
        return Stream(self._client._connection, self.name, window)

    def describe(self) -> Document:
        """The learner's configuration, position, class counts, readiness, sources and so on."""
        return self._client._run(self._client._calls.about(self.name))

    def change(self, **settings: Mapping[str, Any]) -> Document:
        """Change `threshold`, `figures` or `late`: what is given of them; the learner's document after that."""
        return self._client._run(self._client._calls.change(self.name, settings))

    def metrics(self) -> Document:
        """The live figures."""
        return self._client._run(self._client._calls.about(self.name, "metrics"))

    def digest(self) -> Document:
        """The `position`, and the `digest` of the whole state there."""
        return self._client._run(self._client._calls.about(self.name, "digest"))

    def snapshot(self) -> Document:
        """Save the state now: `position`, `size` and `time` of the snapshot."""
        return self._client._run(self._client._calls.snapshot(self.name))


class Reply(Generic[Result]):
    """The answer to a request of a stream, once it is there."""

    def __init__(self, stream: Stream, pending: Pending[Result]) -> None:
        self._stream = stream
        self._pending = pending

    @property
    def seq(self) -> int:
        """The number of the request in its stream, from 0."""
        return self._pending.seq

    @property
    def done(self) -> bool:
        """Whether the answer has come; it is not looked for."""
        return self._pending.answered

    def result(self, timeout: float | None = None) -> Result:
        """The answer. Raises what it was refused for, `StreamBroken`, or TimeoutError after so many seconds."""
        until = None if timeout is None else time.monotonic() + timeout
        while not self._pending.answered:
            self._stream._receive(None if until is None else until - time.monotonic())
        return self._pending.take()


class Stream:
    """Requests over one websocket; a context manager, for one thread. Answers come in the order of the requests.

    Leaving the block waits for every answer, and raises the first refusal that was not asked for by `result()`. When
    the connection breaks, everything raises `StreamBroken`, which names the unanswered requests and the ids of their
    events: repeat them in a new stream. Nothing is sent again here, and a refusal does not hold up what was sent after
    it.
    """

    def __init__(self, connection: Connection, name: str, window: int) -> None:
        self._connection = connection
        self._name = name
        self._session = Session(window)
        self._stack = ExitStack()
        self._socket: ClientConnection | None = None

    def __enter__(self) -> Self:
        url, options = self._connection.stream(self._name)
        with ExitStack() as stack, opening():
            self._socket = stack.enter_context(connect(url, create_connection=StreamConnection, **options))
            self._session.hello(self._socket.recv(self._connection.timeout))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._stack:
            if kind is None:
                self.drain()
        self._session.broken("the stream was closed")

    def update(
        self,
        X: Any,
        y: Any,
        ids: Any = None,
        weights: Any = None,
        times: Any = None,
        source: Source | None = None,
    ) -> Reply[Updated]:
        """As `Learner.update`, in one message. Waits only where the window is full."""
        self._make_room()
        return self._send(*self._session.update(Batch(X, y, ids, weights, times), source))

    def labels(self, ids: Any, y: Any, weights: Any = None, times: Any = None) -> Reply[Updated]:
        """As `Learner.labels`, in one message."""
        return self.update(None, y, ids, weights, times)

    def predict(
        self, X: Any, ids: Any = None, times: Any = None, explain: int | None = None, at_least: int | None = None
    ) -> Reply[Predicted]:
        """As `Learner.predict`, in one message."""
        self._make_room()
        return self._send(*self._session.predict(X, ids, times, explain, at_least))

    def drain(self) -> None:
        """Wait until every request is answered; raise the first refusal that was not asked for."""
        while not self._session.idle:
            self._receive(None)
        self._session.check()

    def _make_room(self) -> None:
        self._open()
        while not self._session.free:
            self._receive(None)

    def _send(self, message: bytes, pending: Pending[Result]) -> Reply[Result]:
        try:
            self._open().send(message)
        except ConnectionClosed:
            while True:  # until what had been answered is taken, which ends with the reason
                self._receive(None)
        return Reply(self, pending)

    def _receive(self, timeout: float | None) -> None:
        try:
            self._session.receive(self._open().recv(timeout))
        except ConnectionClosed as error:
            self._session.broken(ended(error))
        except Unanswered as error:
            self._session.broken(error.detail)
        self._session.ensure()

    def _open(self) -> ClientConnection:
        """The connection; raises where there is none, or none any more."""
        self._session.ensure()
        if self._socket is None:
            raise RuntimeError("the stream is not open; use it in a with block")
        return self._socket
