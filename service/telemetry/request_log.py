"""Every request as operators see it: how long it took, by route and status, and a line in the log.

    hot request   -> Edge       -> Access.hot      what the edge knows is handed over
    other request -> FastAPI    -> Access.__call__ what passes by is looked at
    websocket     -> Connection -> Access.messages_of, Access.websocket
    no request    -> protocol   -> Access.unread

The route is its template, never the path: so there are as many series as there are routes, whatever clients ask for.

Of the lines so many a second are written as the settings allow: of hot requests, spread over the second, of others,
and of those that fail, so that none of them crowds out the rest. What is left out is counted, and told once a second.
The lines of probes and scrapes that succeed are for debugging.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from time import perf_counter, time
from typing import get_args

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import ServiceError
from service.names import problems_of
from service.settings import Settings
from service.telemetry.histograms import Histogram
from service.telemetry.log_writer import Entry, LineWriter, current_request
from service.wire import Operation, heading_of, request_id

__all__ = ["GONE", "Access"]

GONE = 499  # the status of a request whose client went away before it was answered: nginx's

_PREFIX = "/v1"
_OTHER = "other"  # the route of what has none, the method of what is none of these
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_QUIET = frozenset({"/metrics", "/v1/health/live", "/v1/health/ready"})
_SECOND = 1.0
_HOT_AT_ONCE = 0.1  # seconds: of so long the lines of hot requests may be written at once

logger = logging.getLogger("rarestream.requests")


class _Allowance:
    """So many lines a second, at once no more than in `at_once` seconds, or one (the generic cell rate algorithm).

    Where all were written at once, whoever asks at the beginning of a second would wait for a thousand lines to be
    made, and they would be no sample of the second.
    """

    __slots__ = ("_ahead", "_apart", "_from", "_next_line_at", "_tell_at", "left_out", "untold")

    def __init__(self, most: int, at_once: float) -> None:
        self.left_out = 0  # ever
        self.untold = 0  # of those, what no line has told yet
        self._apart = _SECOND / most
        self._ahead = max(0.0, at_once - self._apart)
        self._next_line_at = (
            0.0  # when the next line is due, were they evenly apart; by `perf_counter()`, as the others
        )
        self._from = 0.0  # when the next may be written
        self._tell_at = 0.0

    def take(self, now: float) -> bool:
        """Whether one more may be written at that `perf_counter()`."""
        if now < self._from:
            self.left_out += 1
            self.untold += 1
            return False
        if self.untold and now >= self._tell_at:
            logger.warning("%d requests before this one were not logged: too many in a second", self.untold)
            self.untold = 0
            self._tell_at = now + _SECOND
        self._next_line_at = max(self._next_line_at, now) + self._apart
        self._from = self._next_line_at - self._ahead
        return True


class Access:
    """What an application counts and logs of its requests."""

    def __init__(self, settings: Settings, lines: LineWriter | None = None) -> None:
        """`lines`: where lines go; None: no line is written, and everything is counted."""
        self.lines = lines
        self.requests: dict[tuple[str, str, int], Histogram] = {}  # by method, route, status
        self.messages: dict[tuple[str, int], Histogram] = {}  # of websockets: by operation, status
        self._routes: dict[str, str] = {name: f"{_PREFIX}/learners/{{name}}/{name}" for name in get_args(Operation)}
        self._answered = {name: self._of("POST", route, 200) for name, route in self._routes.items()}
        least = getattr(logging, settings.log_level.upper())
        self._least = max(least, logging.WARNING) if settings.log_requests == "errors" else least
        if lines is None:
            self._least = logging.CRITICAL + 1
        self._hot = _Allowance(settings.log_lines_per_second, _HOT_AT_ONCE)
        self._plain, self._errors = (_Allowance(settings.log_lines_per_second, _SECOND) for _ in range(2))

    @property
    def left_out(self) -> int:
        """Lines that there were too many of in a second."""
        return self._hot.left_out + self._plain.left_out + self._errors.left_out

    def _of(self, method: str, route: str, status: int) -> Histogram:
        key = (method, route, status)
        actual = self.requests.get(key)
        if actual is None:
            actual = self.requests[key] = Histogram()
        return actual

    # Hot requests

    def hot(
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
        """Count a finished update, predict or labels that began at that `perf_counter()`. Under 1 us without a line.

        `code`: of the refusal, or of what ended a reply that had begun.
        """
        now = perf_counter()
        if status == 200:
            self._answered[operation].observe(now - began)
        else:
            self._of("POST", self._routes[operation], status).observe(now - began)
        if status == 200 and code is None:
            if self._least > logging.INFO or not self._hot.take(now):
                return
            level = logging.INFO
        else:
            level = logging.WARNING if status == 200 else _level(status)
            if status == 500:
                current_request.set(own_id)  # for the server's log of it
            if not self._wanted(level, now):
                return
        assert self.lines is not None
        route = self._routes[operation]
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
            )
        )

    def _wanted(self, level: int, now: float) -> bool:
        if level < self._least:
            return False
        return (self._plain if level < logging.WARNING else self._errors).take(now)

    # All others

    async def __call__(
        self, app: ASGIApp, scope: Scope, receive: Receive, send: Send, began: float | None = None
    ) -> None:
        """Let the application answer, and look on: one request that is not hot, and began at that `perf_counter()`.

        Gives it an id: taken from `X-Request-ID` where it is a sane one, and sent back.
        """
        began = perf_counter() if began is None else began
        path: str = scope["path"].removeprefix(scope.get("root_path", ""))
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
                headers = [*message["headers"], (b"x-request-id", own_id.encode())]
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
            self._over(scope, path, status or GONE, began, streamed, size)

    def _over(self, scope: Scope, path: str, status: int, began: float, streamed: float | None, size: int) -> None:
        now = perf_counter()
        method = scope["method"] if scope["method"] in _METHODS else _OTHER
        actual: str | None = getattr(scope.get("route"), "path", None)
        route = _OTHER if actual is None else _PREFIX + actual if path.startswith(f"{_PREFIX}/") else actual
        self._of(method, route, status).observe(now - began if streamed is None else streamed)
        level = logging.DEBUG if route in _QUIET and status < 400 else _level(status)
        if not self._wanted(level, now):
            return
        assert self.lines is not None
        named = route.startswith((f"{_PREFIX}/learners/", f"{_PREFIX}/groups/"))  # not a file of the dashboard
        name = _named(scope.get("path_params", {}).get("name")) if named else None
        group = route.startswith(f"{_PREFIX}/groups/")
        state = scope["state"]
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
            )
        )

    # What is no request

    def unread(self, error: ServiceError, own_id: str, client: Sequence[object] | None) -> None:
        """Count a malformed request that was refused; `client`: its address."""
        self._of(_OTHER, _OTHER, error.status).observe(0.0)
        level = _level(error.status)
        if not self._wanted(level, perf_counter()):
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
        key = (operation or _OTHER, status)
        actual = self.messages.get(key)
        if actual is None:
            actual = self.messages[key] = Histogram()
        return actual

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
        """Count a websocket that was opened at that `perf_counter()` and has just ended.

        `status` of the handshake; `closed`: the code that it was closed with before any message; `matched`: there is a
        websocket at that path.
        """
        now = perf_counter()
        level = _level(status) if closed is None else logging.WARNING
        if not self._wanted(level, now):
            return
        assert self.lines is not None
        route = f"{_PREFIX}/ws" if learner is None else f"{_PREFIX}/learners/{{name}}/ws"
        route = route if matched else _OTHER
        own_id: str = scope["state"]["request_id"]
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
            )
        )


def _level(status: int) -> int:
    if status < 400 or status == GONE:
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
