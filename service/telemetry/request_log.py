"""Count and log every request: durations by route and status, and a line in the log.

    update, predict, labels -> FastPath, InlinePath -> Access.count
    other request           -> FastAPI              -> Access.__call__
    websocket               -> Connection           -> Access.messages_of, Access.websocket
    malformed request       -> HttpProtocol         -> Access.unread

The route is its template, never the path. So the number of series is that of the routes, whatever clients request.

The settings bound the lines per second for each of three kinds, so that none displaces the others: update, predict and
labels, spread over the second; other requests; failures. Lines left out are counted, and reported once a second. Lines
of successful probes and scrapes have the level debug.
"""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from time import perf_counter, time
from typing import get_args

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import ServiceError
from service.names import problems_of
from service.settings import Settings
from service.telemetry.histograms import Histogram
from service.telemetry.log_writer import Entry, LineWriter, current_request
from service.wire import Operation, heading_of, local_path, request_id

__all__ = ["CLIENT_CLOSED", "Access", "rate_headers"]

CLIENT_CLOSED = 499  # the status of a request whose client went away before it was answered: nginx's

_PREFIX = "/v1"
_OTHER = "other"  # the route of what has none, the method of what is none of these
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_QUIET = frozenset({"/metrics", "/v1/health/live", "/v1/health/ready"})
_SECOND = 1.0
_OPERATIONS_AT_ONCE = 0.1  # seconds: of so long the lines of operations may be written at once

_TRACEPARENT = re.compile(rb"(?!ff)[0-9a-f]{2}-(?P<trace>[0-9a-f]{32})-(?P<parent>[0-9a-f]{16})-[0-9a-f]{2}(?:-.*)?")

logger = logging.getLogger("rarestream.requests")


class _Allowance:
    """So many lines a second, at once no more than in `at_once` seconds, or one (the generic cell rate algorithm).

    If all were written at once, requests at the beginning of a second would wait for a thousand lines to be formatted,
    and the lines would not be a sample of the second.
    """

    __slots__ = ("_ahead", "_apart", "_from", "_next_line_at", "_report_at", "left_out", "unreported")

    def __init__(self, most: int, at_once: float) -> None:
        self.left_out = 0  # ever
        self.unreported = 0  # of those, what no line has told yet
        self._apart = _SECOND / most
        self._ahead = max(0.0, at_once - self._apart)
        self._next_line_at = (
            0.0  # when the next line is due, were they evenly apart; by `perf_counter()`, as the others
        )
        self._from = 0.0  # when the next may be written
        self._report_at = 0.0

    def take(self, now: float) -> bool:
        """Tell whether one more line may be written at this `perf_counter()`."""
        if now < self._from:
            self.left_out += 1
            self.unreported += 1
            return False
        if self.unreported and now >= self._report_at:
            logger.warning("%d requests before this one were not logged: too many in a second", self.unreported)
            self.unreported = 0
            self._report_at = now + _SECOND
        self._next_line_at = max(self._next_line_at, now) + self._apart
        self._from = self._next_line_at - self._ahead
        return True


class Access:
    """Counts and logs the requests of an application."""

    def __init__(self, settings: Settings, lines: LineWriter | None = None) -> None:
        """`lines`: where lines go; None: no line is written, and everything is counted."""
        self.lines = lines
        self.requests = defaultdict[tuple[str, str, int], Histogram](Histogram)  # by method, route, status
        self.messages = defaultdict[tuple[str, int], Histogram](Histogram)  # of websockets: by operation, status
        self._routes: dict[str, str] = {name: f"{_PREFIX}/learners/{{name}}/{name}" for name in get_args(Operation)}
        self._answered = {name: self._of("POST", route, 200) for name, route in self._routes.items()}
        least = getattr(logging, settings.log_level.upper())
        self._least = max(least, logging.WARNING) if settings.log_requests == "errors" else least
        if lines is None:
            self._least = logging.CRITICAL + 1
        self._operations = _Allowance(settings.log_lines_per_second, _OPERATIONS_AT_ONCE)
        self._plain, self._errors = (_Allowance(settings.log_lines_per_second, _SECOND) for _ in range(2))

    @property
    def left_out(self) -> int:
        """Lines that there were too many of in a second."""
        return self._operations.left_out + self._plain.left_out + self._errors.left_out

    def _of(self, method: str, route: str, status: int) -> Histogram:
        return self.requests[method, route, status]

    # Update, predict and labels

    def count(
        self,
        operation: str,
        status: int,
        began: float,
        scope: Scope,
        own_id: str,
        learner: str,
        size: int | None = None,
        events: int | None = None,
        code: str | None = None,
    ) -> None:
        """Count a finished update, predict or labels that began at this `perf_counter()`. Under 1 us without a line.

        `code`: of the refusal, or of the error that ended a reply in progress.
        """
        now = perf_counter()
        if status == 200:
            self._answered[operation].observe(now - began)
        else:
            self._of("POST", self._routes[operation], status).observe(now - began)
        if status == 200 and code is None:
            if self._least > logging.INFO or not self._operations.take(now):
                return
            level = logging.INFO
        else:
            level = logging.WARNING if status == 200 else _level(status)
            if status == 500:
                current_request.set(own_id)  # for the server's log of it
            if not self._is_due(level, now):
                return
        assert self.lines is not None
        route = self._routes[operation]
        trace, parent = _trace(scope)
        self.lines.put(
            Entry(
                time(),
                level,
                own_id,
                "POST",
                route,
                status,
                now - began,
                client=_client(scope),
                key=_key(scope),
                learner=_named(learner),
                bytes=size,
                events=events,
                code=code,
                trace_id=trace,
                parent_id=parent,
            )
        )

    def _is_due(self, level: int, now: float) -> bool:
        if level < self._least:
            return False
        return (self._plain if level < logging.WARNING else self._errors).take(now)

    # All others

    async def __call__(
        self, app: ASGIApp, scope: Scope, receive: Receive, send: Send, began: float | None = None
    ) -> None:
        """Let the application answer any other request, which began at this `perf_counter()`, and count it.

        The request gets an id, from `X-Request-ID` if that is well-formed, and the reply returns it.
        """
        began = perf_counter() if began is None else began
        path = local_path(scope)
        status = size = 0
        streamed: float | None = None  # seconds to the head of a reply that has no end of its own

        async def receiving() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            return message

        async def sending(message: Message) -> None:
            nonlocal status, streamed
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [*message["headers"], (b"x-request-id", own_id.encode()), *rate_headers(scope)]
                if any(name == b"content-type" and b"event-stream" in value for name, value in headers):
                    streamed = perf_counter() - began
                message["headers"] = headers
            await send(message)

        own_id = request_id(heading_of(scope["headers"]).request_id)
        scope.setdefault("state", {})["request_id"] = own_id
        try:
            await app(scope, receiving, sending)
        except Exception:
            status = status or 500
            current_request.set(own_id)  # for the server's log of it
            raise
        finally:
            self._over(scope, path, status or CLIENT_CLOSED, began, streamed, size)

    def _over(self, scope: Scope, path: str, status: int, began: float, streamed: float | None, size: int) -> None:
        now = perf_counter()
        method = scope["method"] if scope["method"] in _METHODS else _OTHER
        actual: str | None = getattr(scope.get("route"), "path_format", None)
        route = _OTHER if actual is None else _PREFIX + actual if path.startswith(f"{_PREFIX}/") else actual
        self._of(method, route, status).observe(now - began if streamed is None else streamed)
        level = logging.DEBUG if route in _QUIET and status < 400 else _level(status)
        if not self._is_due(level, now):
            return
        assert self.lines is not None
        named = route.startswith((f"{_PREFIX}/learners/", f"{_PREFIX}/groups/"))  # not a file of the dashboard
        name = _named(scope.get("path_params", {}).get("name")) if named else None
        group = route.startswith(f"{_PREFIX}/groups/")
        state = scope["state"]
        trace, parent = _trace(scope)
        self.lines.put(
            Entry(
                time(),
                level,
                state["request_id"],
                method,
                route,
                status,
                now - began,
                client=_client(scope),
                key=_key(scope),
                learner=None if group else name,
                group=name if group else None,
                bytes=size or None,
                code=state.get("problem"),
                trace_id=trace,
                parent_id=parent,
            )
        )

    # What is no request

    def unread(self, error: ServiceError, own_id: str, client: Sequence[object] | None) -> None:
        """Count a malformed request that was refused; `client`: its address."""
        self._of(_OTHER, _OTHER, error.status).observe(0.0)
        level = _level(error.status)
        if not self._is_due(level, perf_counter()):
            return
        assert self.lines is not None
        address = str(client[0]) if client else None
        self.lines.put(
            Entry(
                *(time(), level, own_id, _OTHER, _OTHER, error.status, 0.0),
                client=address,
                code=error.code,
                reason=error.detail,
            )
        )

    # Websockets

    def messages_of(self, operation: str | None, status: int) -> Histogram:
        """Count messages by operation and status, with the times from their arrival to the reply."""
        return self.messages[operation or _OTHER, status]

    def websocket(
        self,
        scope: Scope,
        learner: str | None,
        began: float,
        messages: int = 0,
        refused: int = 0,
        *,
        status: int = 101,
        closed: int | None = None,
        matched: bool = True,
    ) -> None:
        """Count a websocket that was opened at this `perf_counter()` and has just ended.

        `status` of the handshake; `closed`: the code that it was closed with before any message; `matched`: whether the
        path has a websocket.
        """
        now = perf_counter()
        level = _level(status) if closed is None else logging.WARNING
        if not self._is_due(level, now):
            return
        assert self.lines is not None
        route = f"{_PREFIX}/ws" if learner is None else f"{_PREFIX}/learners/{{name}}/ws"
        route = route if matched else _OTHER
        own_id: str = scope["state"]["request_id"]
        trace, parent = _trace(scope)
        self.lines.put(
            Entry(
                time(),
                level,
                own_id,
                "WEBSOCKET",
                route,
                status,
                now - began,
                client=_client(scope),
                key=_key(scope),
                learner=_named(learner),
                messages=messages,
                refused=refused,
                code=None if closed is None else f"closed-{closed}",
                trace_id=trace,
                parent_id=parent,
            )
        )


def rate_headers(scope: Scope) -> list[tuple[bytes, bytes]]:
    """Return the headers that tell the rate limits of the request's key, if it has any."""
    limits: Callable[[], list[tuple[bytes, bytes]]] | None = scope.get("state", {}).get("rate_headers")
    return [] if limits is None else limits()


def _trace(scope: Scope) -> tuple[str | None, str | None]:
    """Return the ids of the trace and of the caller's span from a `traceparent` (W3C Trace Context), if it is valid."""
    values = [value for name, value in scope.get("headers", ()) if name == b"traceparent"]
    match = _TRACEPARENT.fullmatch(values[0]) if len(values) == 1 else None
    if match is None or not int(match["trace"], 16) or not int(match["parent"], 16):
        return None, None
    return match["trace"].decode(), match["parent"].decode()


def _level(status: int) -> int:
    if status < 400 or status == CLIENT_CLOSED:
        return logging.INFO
    return logging.WARNING if status < 500 else logging.ERROR


def _named(name: str | None) -> str | None:
    """Return the name in a path if it can be a learner's; else a client may have put anything there."""
    return None if name is None or problems_of(name) else name


def _key(scope: Scope) -> str | None:
    """Return the id of the key that admitted the request."""
    actual: str | None = scope.get("state", {}).get("key")
    return actual


def _client(scope: Scope) -> str | None:
    client: Sequence[object] | None = scope.get("client")
    return str(client[0]) if client else None
