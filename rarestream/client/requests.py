"""The calls of the API without any input or output: what to send, when to send it again, what the answers mean.

A call is a generator. It yields a `Request` to be sent, or the `Pause` to make before the next attempt, is sent what
came of that, and returns the call's result. `Client` and `AsyncClient` do nothing but carry that out, the one by
blocking, the other by awaiting.

When a request is sent again
    Nothing was done, for certain: there was no connection, or 429. Always.
    What was done is not known: the connection broke, a time-out, 502, 503, 504. Only where a repeat changes nothing:
    everything but updates in which some event has no id while there is no source either.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator, Mapping
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from rarestream.client.decode import (
    Document,
    Predicted,
    Updated,
    document,
    join_predicted,
    join_updated,
    predicted,
    updated,
)
from rarestream.client.encode import Batch, Bounds, Columns, labelled, served
from rarestream.client.errors import ClientError, Unanswered, Unreachable, error_of
from rarestream.client.source import Numbers, Source, checked_source

__all__ = [
    "JSON",
    "MSGPACK",
    "Answer",
    "Call",
    "Calls",
    "Failure",
    "Pause",
    "Request",
    "Response",
    "Retries",
    "Upload",
    "Uploaded",
]

JSON, MSGPACK = "application/json", "application/msgpack"
_PASSING = frozenset({502, 503, 504})
_MADE_FOR_REPEATS = "ids, ids='auto' or a source would make it safe to send these events again"


class Request(NamedTuple):
    """What to send."""

    method: str
    path: str  # under /v1/, quoted
    body: bytes | None = None
    media_type: str = JSON  # of the body, and of the answer that is asked for
    repeatable: bool = True  # whether it may be sent again when it is not known what became of it


class Pause(NamedTuple):
    """How long to wait before going on."""

    seconds: float


class Response(NamedTuple):
    """What was answered, read to its end."""

    status: int
    headers: Mapping[str, str]  # by names in lower case
    body: bytes


class Failure(NamedTuple):
    """There is no answer."""

    sent: bool  # whether something of the request may have reached the service
    why: str


Answer = Response | Failure | None  # None: after a pause
Result = TypeVar("Result")
Call = Generator[Request | Pause, Answer, Result]


class Retries(NamedTuple):
    """How long, and at what pace, a request is sent again: full jitter under a bound that doubles."""

    patience: float  # seconds of failing after which a request fails for good; 0: it is sent once
    first: float = 0.25  # seconds that the first pause takes at most
    longest: float = 8.0
    clock: Callable[[], float] = time.monotonic
    jitter: Callable[[], float] = random.random  # from [0, 1)


class Uploaded(NamedTuple):
    """What came of an upload so far."""

    events: int = 0  # that were answered
    requests: int = 0
    repeats: int = 0  # requests that were sent again
    applied: int = 0
    duplicate: int = 0
    relabelled: int = 0
    unknown: int = 0
    expired: int = 0
    position: int = 0  # of the newest record that was applied


class Calls:
    """The calls that a client makes."""

    def __init__(self, retries: Retries, bounds: Bounds) -> None:
        self._retries = retries
        self._bounds = bounds

    # Learners

    def create(self, name: str, config: Mapping[str, Any]) -> Call[Document]:
        """Create a learner, or find it there with this configuration."""
        return (yield from self._read(Request("PUT", _path(name), msgspec.json.encode(config))))

    def delete(self, name: str) -> Call[None]:
        """Delete a learner. That there is none any more is what a repeat finds."""
        yield from self._exchange(Request("DELETE", _path(name)), deleting=True)

    def change(self, name: str, settings: Mapping[str, Any]) -> Call[Document]:
        """Change settings."""
        return (yield from self._read(Request("PATCH", _path(name), msgspec.json.encode(settings))))

    def get(self, path: str) -> Call[Document]:
        """A document of the API."""
        return (yield from self._read(Request("GET", path)))

    def about(self, name: str, what: str | None = None) -> Call[Document]:
        """A learner's document, or one of those under it."""
        return (yield from self.get(_path(name, what)))

    def snapshot(self, name: str) -> Call[Document]:
        """Save a learner's state now."""
        return (yield from self._read(Request("POST", _path(name, "snapshots"))))

    # Events

    def update(self, name: str, batch: Batch, source: Source | None) -> Call[Updated]:
        """Learn labelled events, or take labels by id."""
        columns = labelled(batch, source)
        parts: list[Updated] = []
        yield from self.learn(name, columns, parts.append)
        return parts[0] if len(parts) == 1 else join_updated(parts, columns.ids)

    def learn(self, name: str, columns: Columns, told: Callable[[Updated], None]) -> Call[None]:
        """Learn in as many requests as it takes; `told` gets the reply to each."""
        operation = "labels" if columns.features is None else "update"

        def tell(response: Response, start: int, stop: int, repeats: int) -> None:
            told(updated(response.body, stop - start, columns.ids and columns.ids[start:stop], repeats))

        yield from self._in_parts(columns, _path(name, operation), columns.repeatable, tell)

    def predict(
        self, name: str, X: Any, ids: Any, times: Any, explain: int | None, at_least: int | None
    ) -> Call[Predicted]:
        """Score events."""
        columns = served(X, ids, times)
        asked = {"explain": explain, "at_least": at_least}
        query = urlencode({name: value for name, value in asked.items() if value is not None})
        path = _path(name, "predict") + (query and f"?{query}")
        parts: list[Predicted] = []

        def tell(response: Response, start: int, stop: int, _: int) -> None:
            parts.append(predicted(response.body, stop - start))

        yield from self._in_parts(columns, path, True, tell)
        return parts[0] if len(parts) == 1 else join_predicted(parts)

    # Requests

    def _in_parts(
        self,
        columns: Columns,
        path: str,
        repeatable: bool,
        tell: Callable[[Response, int, int, int], None],
    ) -> Call[None]:
        done = 0
        try:
            for part in columns.parts(self._bounds):
                request = Request("POST", path, part.body, MSGPACK, repeatable)
                response, repeats = yield from self._exchange(request)
                tell(response, part.start, part.stop, repeats)
                done = part.stop
        except ClientError as error:
            error.done, error.ids = done, columns.ids
            raise

    def _read(self, request: Request) -> Call[Document]:
        response, _ = yield from self._exchange(request)
        return document(response.body)

    def _exchange(self, request: Request, deleting: bool = False) -> Call[tuple[Response, int]]:
        """The answer to a request and how often it was sent again.

        `deleting`: 404 is one, too, after an attempt that may have been carried out.
        """
        retries = self._retries
        failing_since: float | None = None
        bound = retries.first
        repeats = 0
        deleted = False  # perhaps
        while True:
            answer = yield request
            if isinstance(answer, Response) and (200 <= answer.status < 300 or (deleted and answer.status == 404)):
                return answer, repeats
            assert answer is not None
            error = _error(answer)
            deleted = deleted or (deleting and isinstance(error, Unanswered))
            if not _passes(error, request.repeatable):
                raise error
            now = retries.clock()
            failing_since = now if failing_since is None else failing_since
            delay = (error.retry_after or 0.0) + bound * retries.jitter()
            if now + delay >= failing_since + retries.patience:
                raise error
            yield Pause(delay)
            bound = min(2 * bound, retries.longest)
            repeats += 1


class Upload:
    """An upload under way: `send` makes the call for one batch after the other."""

    def __init__(
        self,
        calls: Calls,
        name: str,
        ids: str | None,
        source: Source | None,
        progress: Callable[[Uploaded], None] | None,
    ) -> None:
        if ids not in (None, "auto"):
            raise ValueError(f"ids of an upload are {ids!r}; expected 'auto' or None: each batch has its own")
        self.so_far = Uploaded()
        self._calls = calls
        self._name = name
        self._ids = ids
        self._source = checked_source(source)
        if self._source is not None and not isinstance(self._source.first, int):
            raise ValueError("source of an upload has the numbers of its events; expected that of the first")
        self._progress = progress

    def send(self, batch: Batch | tuple[Any, ...]) -> Call[None]:
        """Send one batch; an empty one is passed over."""
        batch = Batch(*batch)
        if len(batch.y) == 0:
            return
        if batch.ids is None:
            batch = batch._replace(ids=self._ids)
        before = self.so_far.events
        source = None if self._source is None else _later(self._source, before)
        try:
            yield from self._calls.learn(self._name, labelled(batch, source), self._add)
        except ClientError as error:
            error.done += before
            raise

    def _add(self, reply: Updated) -> None:
        told = self.so_far
        self.so_far = Uploaded(
            told.events + len(reply.status),
            told.requests + 1,
            told.repeats + reply.repeats,
            told.applied + reply.applied,
            told.duplicate + reply.duplicate,
            told.relabelled + reply.relabelled,
            told.unknown + reply.unknown,
            told.expired + reply.expired,
            reply.position,
        )
        if self._progress is not None:
            self._progress(self.so_far)


def _later(source: Numbers, events: int) -> Source:
    """The source of what comes after so many events of an upload."""
    assert isinstance(source.first, int)
    first = source.first + events
    return (source.name, first) if events or source.after is None else (source.name, first, source.after)


def _path(name: str, what: str | None = None) -> str:
    return f"learners/{quote(name, safe='')}" + ("" if what is None else f"/{what}")


def _error(answer: Response | Failure) -> ClientError:
    if isinstance(answer, Response):
        return error_of(answer.status, answer.headers, answer.body)
    return Unanswered(answer.why) if answer.sent else Unreachable(answer.why)


def _passes(error: ClientError, repeatable: bool) -> bool:
    """Whether to send the request again; says so in the error where only the lack of ids forbids it."""
    if isinstance(error, Unreachable) or error.status == 429:
        return True
    if not isinstance(error, Unanswered) or (error.status is not None and error.status not in _PASSING):
        return False
    if not repeatable:
        error.detail += f"; {_MADE_FOR_REPEATS}"
    return repeatable
