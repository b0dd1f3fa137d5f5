"""The few calls of the HTTP API that the command line makes, over one connection, with patience.

Every call may be repeated safely: creating is by name, updates carry their source's offset, and an event with an id
that is scored again is remembered once. So a call that was refused for the moment (429, 503, a gateway's 502 or 504)
or whose outcome is unknown (the connection failed) is made again, after the `Retry-After` that the answer names or
after a pause that doubles, until the patience is over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from service.commands.failure import CommandFailed

__all__ = ["Api", "ApiError", "Stopped", "Updated"]

Document = dict[str, Any]  # a reply as the API describes it
Reply = TypeVar("Reply")

_TRANSIENT = frozenset({429, 502, 503, 504})
_LISTED = 10  # problems of one reply that its error shows
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 8.0  # seconds
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})  # never through the proxy that the environment names
_TIMEOUT = httpx.Timeout(120.0, connect=5.0)  # an update waits for its learning, the first ever for the compiler too


class ApiError(CommandFailed):
    """The service refused, or cannot be reached. The text is for people: what was wrong, one line per problem."""

    def __init__(
        self,
        text: str,
        status: int | None = None,
        retry_after: float | None = None,
        code: str | None = None,
        pointers: Sequence[str] = (),
    ) -> None:
        super().__init__(text)
        self.status = status  # of HTTP; None where there was no answer
        self.code = code  # of the problem, "unknown-learner" and so on; None where rarestream did not name one
        self.retry_after = retry_after  # seconds
        self.pointers = tuple(pointers)  # to the values of the request that were refused


class Stopped(Exception):
    """The wait for another attempt was ended from outside; whether the call was carried out is not known."""


class Updated(msgspec.Struct):
    """What the command line reads of the reply to an update."""

    applied: int
    duplicate: int
    position: int
    relabelled: int = 0
    unknown: int = 0
    expired: int = 0


class _Predicted(msgspec.Struct):
    remembered: int
    stale_seconds: float


class _Problem(msgspec.Struct):
    pointer: str = ""
    detail: str = ""


class _ProblemBody(msgspec.Struct):
    detail: str
    code: str | None = None
    errors: list[_Problem] = []


class Api:
    """A service at `url`. A context manager; one call at a time.

    `patience` is how long (seconds) a call goes on failing for the moment before it fails for good. `wait` pauses for
    some seconds and returns True to give up at once (a `threading.Event`'s wait), `notice` is told of each new attempt.
    """

    def __init__(
        self,
        url: str,
        *,
        patience: float = 0.0,
        wait: Callable[[float], bool] | None = None,
        clock: Callable[[], float] = time.monotonic,
        notice: Callable[[str], None] | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self._patience = patience
        self._wait = wait or _sleep
        self._clock = clock
        self._notice = notice
        try:
            parsed = httpx.URL(self.url)
        except httpx.InvalidURL as error:
            raise ApiError(f"{url} is not a URL: {error}") from None
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise ApiError(f"{url} is not the URL of a service; expected http://host:port")
        self._client = httpx.Client(
            base_url=f"{self.url}/v1/",
            timeout=_TIMEOUT,
            transport=transport,
            trust_env=parsed.host not in _LOOPBACK,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def create(self, name: str, config: Document) -> tuple[Document, bool]:
        """The learner's document, and whether it is new: False where it was there with this configuration."""
        response = self._call("PUT", f"learners/{quote(name, safe='')}", msgspec.json.encode(config))
        return _decode(response, Document), response.status_code == httpx.codes.CREATED

    def learner(self, name: str) -> Document:
        """The learner's document."""
        return _decode(self._call("GET", f"learners/{quote(name, safe='')}"), Document)

    def update(self, name: str, body: bytes) -> Updated:
        """Send labelled events, already encoded. Repeated as needed: `body` names its source and offset."""
        return _decode(self._call("POST", f"learners/{quote(name, safe='')}/update", body), Updated)

    def predict(self, name: str, body: bytes, count: int) -> None:
        """Have `count` events with ids, already encoded, scored and remembered, so that labels may come by id.

        While the store is away the service scores without remembering: then the call is made again, too.
        """

        def check(response: httpx.Response) -> None:
            said = _decode(response, _Predicted)  # fewer are remembered, too, where some are too old for a label
            if said.remembered < count and said.stale_seconds > 0:
                reason = "the service cannot remember what it scores: its store is away"
                raise ApiError(reason, httpx.codes.SERVICE_UNAVAILABLE)

        self._call("POST", f"learners/{quote(name, safe='')}/predict", body, check)

    def change(self, name: str, change: Document) -> Document:
        """The learner's document after a change of its settings."""
        return _decode(self._call("PATCH", f"learners/{quote(name, safe='')}", msgspec.json.encode(change)), Document)

    def metrics(self, name: str) -> Document:
        """The learner's live figures."""
        return _decode(self._call("GET", f"learners/{quote(name, safe='')}/metrics"), Document)

    def _call(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        check: Callable[[httpx.Response], None] | None = None,
    ) -> httpx.Response:
        failing_since: float | None = None
        pause = _FIRST_PAUSE
        while True:
            try:
                response = self._once(method, path, body)
                if check is not None:
                    check(response)
                return response
            except ApiError as error:
                if error.status is not None and error.status not in _TRANSIENT:
                    raise
                now = self._clock()
                failing_since = now if failing_since is None else failing_since
                delay = pause if error.retry_after is None else error.retry_after
                if now + delay > failing_since + self._patience:
                    raise
                if self._notice is not None:
                    self._notice(f"{error}; trying again in {delay:g} s")
            if self._wait(delay):
                raise Stopped
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _once(self, method: str, path: str, body: bytes | None) -> httpx.Response:
        headers = {"Content-Type": "application/json"} if body is not None else None
        try:
            response = self._client.request(method, path, content=body, headers=headers)
        except httpx.TransportError as error:
            raise ApiError(f"cannot reach {self.url}: {error or type(error).__name__}") from None
        if not response.is_success:
            raise self._refused(response)
        return response

    def _refused(self, response: httpx.Response) -> ApiError:
        after = response.headers.get("retry-after", "")
        retry_after = float(after) if after.isdecimal() else None  # a date, as some proxies send, is not honoured
        try:
            body = msgspec.json.decode(response.content, type=_ProblemBody)
        except msgspec.MsgspecError:  # not from the service itself: a proxy, or another program at that address
            body = None
        missing = response.status_code == httpx.codes.NOT_FOUND
        if body is None or (missing and (body.code is None or (body.code == "not-found" and not body.errors))):
            text = f"{response.request.url} answered {response.status_code} {response.reason_phrase}"
            if missing:
                text = f"no rarestream service answers at {self.url}: {text}"
            return ApiError(text, response.status_code, retry_after)
        lines = [f"  {one.pointer}: {one.detail}" for one in body.errors]
        more = [f"  and {len(lines) - _LISTED} more"] if len(lines) > _LISTED else []
        text = "\n".join([body.detail, *lines[:_LISTED], *more])
        pointers = [one.pointer for one in body.errors]
        return ApiError(text, response.status_code, retry_after, body.code, pointers)


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return False


def _decode(response: httpx.Response, kind: type[Reply]) -> Reply:
    try:
        return msgspec.json.decode(response.content, type=kind)
    except msgspec.MsgspecError as error:
        raise ApiError(
            f"{response.request.url} does not answer like rarestream: {error}", response.status_code
        ) from None
