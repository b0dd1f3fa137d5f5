"""The calls of the HTTP API that the command line makes, over one connection, with patience.

Nearly every call may be repeated safely: creating is by name, updates carry their source's offset or ids, and an event
with an id that is scored again is remembered once. So a call that was refused for the moment (429, 503, a gateway's 502
or 504) or whose outcome is unknown (the connection failed) is made again, after the `Retry-After` that the answer names
or after a pause that doubles, until the patience is over. What may not be repeated is made again only where it is
certain that nothing was done.

It speaks JSON, and imports neither NumPy nor the service: commands start quickly. (`service.client` is for programs,
which have arrays.)
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote, urlencode

import httpx
import msgspec

from service import __version__
from service.commands.failure import CommandFailed, ExitStatus, WrongUsage

__all__ = ["Api", "ApiError", "Document", "Stopped", "Updated", "UpdatedEach"]

Document = dict[str, Any]  # a reply as the API describes it
Reply = TypeVar("Reply")

_TRANSIENT = frozenset({429, 502, 503, 504})
_LISTED = 10  # problems of one reply that its error shows
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 8.0  # seconds
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})  # never through the proxy that the environment names
_TIMEOUT = 120.0  # seconds: an update waits for its learning, the first ever for the compiler too
_CONNECT = 5.0  # seconds
_SILENCE = 45.0  # seconds without a word after which a stream is broken: the service sends one each 15
_JSON, _FILE = "application/json", "application/octet-stream"
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


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
        self.nothing_done = status == httpx.codes.TOO_MANY_REQUESTS  # for certain, though it passes
        if status is None or (status == httpx.codes.NOT_FOUND and code is None):
            self.exit_status = ExitStatus.UNREACHABLE
        elif status == httpx.codes.NOT_FOUND:
            self.exit_status = ExitStatus.NOT_FOUND
        elif status < 500:
            self.exit_status = ExitStatus.REFUSED


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


class UpdatedEach(Updated):
    """The same with what became of each event."""

    results: list[Document] = []


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


def _trusting(ca: str) -> ssl.SSLContext:
    context = ssl.create_default_context()
    try:
        context.load_verify_locations(ca)
    except OSError as error:  # of ssl, too
        raise CommandFailed(f"RARESTREAM_CA is {ca}: {error.strerror or error}") from None
    return context


class Api:
    """A service at `url`. A context manager; one call at a time.

    `patience` is how long (seconds) a call goes on failing for the moment before it fails for good. `wait` pauses for
    some seconds and returns True to give up at once (a `threading.Event`'s wait), `notice` is told of each new attempt.
    `key` goes out as a bearer token, and into no message. `timeout` (seconds) is that of one answer. `ca` is a file of
    certificates that are trusted besides those of the system.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        ca: str | None = None,
        timeout: float = _TIMEOUT,
        patience: float = 0.0,
        wait: Callable[[float], bool] | None = None,
        clock: Callable[[], float] = time.monotonic,
        notice: Callable[[str], None] | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._patience = patience
        self._wait = wait or _sleep
        self._clock = clock
        self._notice = notice
        try:
            parsed = httpx.URL(url.rstrip("/"))
        except httpx.InvalidURL as error:
            raise WrongUsage(f"{url} is not a URL: {error}") from None
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise WrongUsage(f"{url} is not the URL of a service; expected http://host:port")
        self.url = str(parsed.copy_with(userinfo=b"")).rstrip("/")  # as messages show it, without a password
        headers = {"User-Agent": f"rarestream-cli/{__version__}"}
        if key:
            if not key.isascii() or not key.isprintable() or " " in key:
                raise WrongUsage("the key has characters that no key has: spaces, line ends, or others beyond ASCII")
            headers["Authorization"] = f"Bearer {key}"
        self._client = httpx.Client(
            base_url=f"{str(parsed).rstrip('/')}/v1/",
            headers=headers,
            timeout=httpx.Timeout(timeout, connect=min(timeout, _CONNECT)),
            transport=transport,
            verify=True if ca is None else _trusting(ca),
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

    # Learners

    def create(self, name: str, config: Document) -> tuple[Document, bool]:
        """The learner's document, and whether it is new: False where it was there with this configuration."""
        response = self._call("PUT", _path(name), msgspec.json.encode(config))
        return _decode(response, Document), response.status_code == httpx.codes.CREATED

    def learners(self, *, figures: bool = False) -> Document:
        """The documents of all that are in memory; the names of those asleep; those that cannot be hosted, and why.

        `figures`: the small figures of each in the place of its settings.
        """
        return self._get("learners?figures=true" if figures else "learners")

    def learner(self, name: str) -> Document:
        """The learner's document."""
        return self._get(_path(name))

    def change(self, name: str, change: Document) -> Document:
        """The learner's document after a change of its settings."""
        return _decode(self._call("PATCH", _path(name), msgspec.json.encode(change)), Document)

    def delete(self, name: str) -> None:
        """Delete the learner."""
        self._call("DELETE", _path(name))

    # Figures

    def metrics(self, name: str) -> Document:
        """The learner's live figures."""
        return self._get(_path(name, "metrics"))

    def history(self, name: str) -> Document:
        """The figures over time."""
        return self._get(_path(name, "metrics/history"))

    def alarms(self, name: str) -> Document:
        """The drift alarms."""
        return self._get(_path(name, "alarms"))

    def weights(self, name: str, top: int) -> Document:
        """The largest weights."""
        return self._get(_path(name, f"weights?top={top}"))

    @contextmanager
    def stream(self, name: str, last: str | None = None) -> Iterator[Iterator[str]]:
        """The lines of the learner's server-sent events, from after the event of the id `last`, or from now.

        Raises `ApiError` where they cannot be had, or break off.
        """
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last} if last else {})
        timeout = httpx.Timeout(_SILENCE, connect=_CONNECT)
        with self._transported():
            path = _path(name, "metrics/stream")
            with self._client.stream("GET", path, headers=headers, timeout=timeout) as response:
                if not response.is_success:
                    response.read()
                    raise self._refused(response)
                yield response.iter_lines()

    # Events

    def update(self, name: str, body: bytes, *, repeatable: bool = True) -> Updated:
        """Send labelled events, already encoded. Repeated as needed where `body` has a source, or an id for each."""
        return _decode(self._call("POST", _path(name, "update"), body, repeatable=repeatable), Updated)

    def update_each(self, name: str, body: bytes, *, repeatable: bool) -> UpdatedEach:
        """As `update`, with what became of each event."""
        return _decode(self._call("POST", _path(name, "update"), body, repeatable=repeatable), UpdatedEach)

    def predict(self, name: str, body: bytes, count: int) -> None:
        """Have `count` events with ids, already encoded, scored and remembered, so that labels may come by id.

        While the store is away the service scores without remembering: then the call is made again, too.
        """
        self._call("POST", _path(name, "predict"), body, lambda said: _remembered(said, count))

    def predict_each(self, name: str, body: bytes, identified: int) -> Document:
        """As `predict`, of events of which so many have an id: the reply."""
        reply = self._call("POST", _path(name, "predict"), body, lambda said: _remembered(said, identified))
        return _decode(reply, Document)

    def scored(self, name: str, body: bytes, explain: int | None = None, at_least: int | None = None) -> Document:
        """The reply to events that are to be scored, already encoded."""
        asked = {"explain": explain, "at_least": at_least}
        query = urlencode({name: value for name, value in asked.items() if value is not None})
        return _decode(self._call("POST", _path(name, "predict") + (query and f"?{query}"), body), Document)

    # States

    def snapshots(self, name: str) -> list[Document]:
        """The retained snapshots, newest first."""
        found: list[Document] = self._get(_path(name, "snapshots"))["snapshots"]
        return found

    def snapshot(self, name: str) -> Document:
        """Take a snapshot."""
        return _decode(self._call("POST", _path(name, "snapshots")), Document)

    def restore(self, name: str, position: int) -> Document:
        """Roll back to the snapshot at this position."""
        return _decode(self._call("POST", _path(name, f"snapshots/{position}/restore"), repeatable=False), Document)

    def clone(self, name: str, to: str) -> Document:
        """The document of a new learner of the same state."""
        body = msgspec.json.encode({"to": to})
        return _decode(self._call("POST", _path(name, "clone"), body, repeatable=False), Document)

    def export(self, name: str, take: Callable[[bytes], object]) -> int:
        """Hand the learner's state to `take` piece by piece; its bytes. Raises `ApiError` where it breaks off."""
        size = 0
        with self._transported(), self._client.stream("GET", _path(name, "export")) as response:
            if not response.is_success:
                response.read()
                raise self._refused(response)
            for piece in response.iter_bytes():
                take(piece)
                size += len(piece)
        return size

    def import_state(self, name: str, parts: Iterable[bytes]) -> Document:
        """The document of a new learner of the exported state that comes in these parts."""
        with self._transported():
            response = self._client.post(_path(name, "import"), content=parts, headers={"Content-Type": _FILE})
        if not response.is_success:
            raise self._refused(response)
        return _decode(response, Document)

    # Requests

    def _get(self, path: str) -> Document:
        return _decode(self._call("GET", path), Document)

    def _call(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        check: Callable[[httpx.Response], None] | None = None,
        *,
        repeatable: bool = True,
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
                if not repeatable and not error.nothing_done:
                    raise _unknown(error) from None
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
        headers = {"Content-Type": _JSON} if body is not None else None
        with self._transported():
            response = self._client.request(method, path, content=body, headers=headers)
        if not response.is_success:
            raise self._refused(response)
        return response

    @contextmanager
    def _transported(self) -> Iterator[None]:
        """Raise what httpx does as `ApiError`."""
        try:
            yield
        except httpx.TransportError as error:
            found = ApiError(f"cannot reach {self.url}: {error or type(error).__name__}")
            found.nothing_done = isinstance(error, _NOT_SENT)
            raise found from None

    def _refused(self, response: httpx.Response) -> ApiError:
        after = response.headers.get("retry-after", "")
        retry_after = float(after) if after.isdecimal() else None  # a date, as some proxies send, is not honoured
        try:
            body = msgspec.json.decode(response.content, type=_ProblemBody)
        except msgspec.MsgspecError:  # not from the service itself: a proxy, or another program at that address
            body = None
        missing = response.status_code == httpx.codes.NOT_FOUND
        if body is None or (missing and (body.code is None or (body.code == "not-found" and not body.errors))):
            text = f"{_where(response)} answered {response.status_code} {response.reason_phrase}"
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


def _remembered(response: httpx.Response, count: int) -> None:
    """Raise a 503 where fewer than `count` events are remembered for want of the store."""
    said = _decode(response, _Predicted)  # fewer are remembered, too, where some are too old for a label
    if said.remembered < count and said.stale_seconds > 0:
        reason = "the service cannot remember what it scores: its store is away"
        raise ApiError(reason, httpx.codes.SERVICE_UNAVAILABLE)


def _path(name: str, what: str = "") -> str:
    return f"learners/{quote(name, safe='')}" + (f"/{what}" if what else "")


def _where(response: httpx.Response) -> str:
    """The URL that answered, without a password."""
    return str(response.request.url.copy_with(userinfo=b""))


def _unknown(error: ApiError) -> ApiError:
    """The error of a call that may have been carried out, and is not repeated for that."""
    text = f"{error}\nWhether the request was carried out is not known, and it was not sent again"
    found = ApiError(text, error.status, code=error.code)
    found.exit_status = ExitStatus.FAILED
    return found


def _decode(response: httpx.Response, kind: type[Reply]) -> Reply:
    try:
        return msgspec.json.decode(response.content, type=kind)
    except msgspec.MsgspecError as error:
        found = ApiError(f"{_where(response)} does not answer like rarestream: {error}", response.status_code)
        found.exit_status = ExitStatus.UNREACHABLE
        raise found from None
