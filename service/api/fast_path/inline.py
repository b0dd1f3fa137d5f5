"""The inline path: the connection answers predicts and updates itself, without a task and ASGI's scope and messages.

    whole request -> InlinePath.parse (the head) -> InlinePath.answer (the body) -> reply, or `PendingUpdate`
                                                 -> None: ASGI passes the request to `asgi.py`

A task, a scope and messages cost about as much as all the work on one event. So a plain request (a small JSON or
MessagePack body, not compressed, without a query, for a learner in memory) is decoded where it is read, then scored
and encoded, or queued to be learnt. A body that cannot be decoded is refused here. Everything else is left to ASGI,
with the same replies: a server that has no inline path serves the same bytes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from time import perf_counter
from typing import NamedTuple

from starlette.types import Scope

from service.api.body import Bodies
from service.api.operations import Request, admit, encode, execute_at_once, prepare
from service.api.paths import match_operation
from service.auth import NEEDED, Guard
from service.engine import Engine
from service.engine.replica import LearnerReplica
from service.errors import ServiceError, StoreUnavailable
from service.telemetry import Access, current_request
from service.wire import (
    NDJSON,
    Coding,
    Labelled,
    Learnt,
    Operation,
    heading_of,
    internal_error,
    negotiated,
    problem_reply,
    request_id,
)

__all__ = ["SHUTDOWN", "InlinePath", "PendingUpdate", "RequestHead"]

logger = logging.getLogger("rarestream.inline")

_MAX_BODY = 2**16  # bytes: it is read, scored and answered in one go, and other requests wait meanwhile
_HEAD_END = b"\r\n\r\n"
_FORWARDED = b"\r\nx-forwarded-"
_AUTHORIZATION = b"\r\nauthorization:"
_TRACE = b"traceparent"
_ADMISSION_HEADERS = frozenset((b"authorization", b"host", b"origin", b"sec-fetch-site", _TRACE))
_MAX_HEAD = 1024  # bytes of a cached head
_MAX_HEADS = 1024
_MAX_DIGITS = len(str(_MAX_BODY))
# to a client that still waits
SHUTDOWN = "the server is shutting down; the request may or may not have been applied, retry it with the same ids"


class RequestHead(NamedTuple):
    """A parsed head."""

    name: str  # of the learner
    operation: Operation
    read: Coding
    write: Coding
    length: int  # of the body, in bytes
    request_id: bytes  # b"" if the client gave none
    headers: tuple[tuple[bytes, bytes], ...]  # what the guard decides by, and the trace
    traced: bool = False  # the headers have a trace, for the request log


class PendingUpdate:
    """A queued update, whose reply is to come."""

    def __init__(
        self,
        future: asyncio.Future[Learnt],
        head: RequestHead,
        learner: LearnerReplica,
        request: Request,
        access: Access,
        entry: tuple[float, Scope],
    ) -> None:
        """Hold the learner until `reply`. `entry`: when the request began, by `perf_counter()`, and its scope.

        Cancelling the future gives up waiting; the reply then says that the outcome is unknown.
        """
        self.future = future
        self._head = head
        self._learner = learner
        self._request = request
        self._access = access
        self._entry = entry
        learner.users += 1

    def reply(self) -> tuple[int, bytes]:
        """Return the status and the reply behind the server's own headers. Call it once, when the future is done."""
        self._learner.release()
        head, request = self._head, self._request
        own_id = request_id(head.request_id)
        status, code = 200, None
        try:
            reply = _success(head.write, encode(request, self.future.result(), head.write), own_id)
        except asyncio.CancelledError:  # by the server, when its grace period is over
            status, code, reply = _refusal(StoreUnavailable(SHUTDOWN), own_id)
        except ServiceError as error:
            status, code, reply = _refusal(error, own_id)
        except Exception as error:  # a fault of ours: the client gets a 500, the log gets the traceback
            current_request.set(own_id)
            logger.exception("an update of %s", head.name)
            status, code, reply = _refusal(internal_error(error), own_id)
        began, scope = self._entry
        events = request.event_count if status == 200 else None
        self._access.count("update", status, began, scope, own_id, head.name, request.size, events, code)
        return status, reply


class InlinePath:
    """Inline replies of one application."""

    def __init__(self, bodies: Bodies, access: Access, guard: Guard) -> None:
        self.engine: Engine | None = None  # while the application runs
        self._access = access
        self._bodies = bodies
        self._guard = guard
        self._heads: dict[bytes, RequestHead] = {}

    def match(self, data: bytes) -> tuple[RequestHead, bytes] | None:
        """Split data that is one whole request whose head is cached into that head and the body; else None."""
        end = data.find(_HEAD_END, 0, _MAX_HEAD) + len(_HEAD_END)
        head = self._heads.get(data[:end])
        return None if head is None or len(data) != end + head.length else (head, data[end:])

    def remember(self, data: bytes, head: RequestHead) -> None:
        """Cache the head of data that holds one whole request, if other connections may send the same."""
        end = data.find(_HEAD_END, 0, _MAX_HEAD) + len(_HEAD_END)
        raw = data[:end]
        if len(data) != end + head.length or head.request_id or head.traced:
            return  # more than one request, or an id that is another each time
        lower = raw.lower()
        if _FORWARDED in lower or _AUTHORIZATION in lower:
            return  # not every connection may say it, or it is a secret
        if len(self._heads) == _MAX_HEADS:
            self._heads.clear()
        self._heads[raw] = head

    def parse(self, target: bytes, headers: Sequence[tuple[bytes, bytes]]) -> RequestHead | None:
        """Parse the target and headers (names in lower case) of a POST; None unless it may be answered here."""
        matched = match_operation(target.decode("latin-1"))  # a target with a query matches none
        if matched is None or matched[1] == "labels":
            return None
        name, operation = matched
        heading = heading_of(headers)
        length = heading.length
        if heading.encoding or not length.isdigit() or len(length) > _MAX_DIGITS or int(length) > _MAX_BODY:
            return None
        try:
            read, write = negotiated(heading.content_type, heading.accept)
        except ServiceError:
            return None
        if read is NDJSON:
            return None
        admission = tuple([header for header in headers if header[0] in _ADMISSION_HEADERS])
        traced = _TRACE in [name for name, _ in admission]
        return RequestHead(name, operation, read, write, int(length), heading.request_id, admission, traced)

    def _admit(self, head: RequestHead, size: int, scope: Scope) -> tuple[LearnerReplica, Scope] | None:
        """Return the learner and the scope with the key's id; None if ASGI has to load, queue, count or refuse."""
        learner = None if self.engine is None else self.engine.replicas.get(head.name)
        if learner is None or not self._bodies.has_room(size):
            return None
        if self._guard.on:
            permissions = self._guard.glance(head.headers, NEEDED[head.operation], head.name)
            if permissions is None:
                return None
            if permissions.id is not None:
                scope = {**scope, "state": {"key": permissions.id}}
        if head.traced:
            scope = {**scope, "headers": head.headers}
        return learner, scope

    def hold(self, head: RequestHead, size: int, scope: Scope) -> bool:
        """Count more bytes of a body in memory until `release`; False if this path does not wait for the rest."""
        if self._admit(head, size, scope) is None:
            return False
        self._bodies.hold(size)
        return True

    def release(self, size: int) -> None:
        """Count fewer bytes in memory."""
        self._bodies.let_go(size)

    def answer(self, head: RequestHead, body: bytes, scope: Scope) -> tuple[int, bytes] | PendingUpdate | None:
        """Return the status and the reply behind the server's own headers, or a queued update.

        None means that nothing was done and ASGI has to answer. `scope`: its `client` goes into the request log.
        """
        began = perf_counter()
        admitted = self._admit(head, len(body), scope)
        if admitted is None or (head.operation == "predict" and admitted[0].served_events.named):
            return None
        learner, scope = admitted
        try:
            request = prepare(head.operation, body, learner.learner.config, head.read, learner.newest_time)
        except ServiceError as error:
            own_id = request_id(head.request_id)
            status, code, reply = _refusal(error, own_id)
            self._access.count(head.operation, status, began, scope, own_id, head.name, len(body) or None, code=code)
            return status, reply
        except Exception:  # a fault of ours: ASGI meets it once more, reports and logs it
            return None
        try:
            if head.operation == "update":
                return self._queue(head, learner, request, (began, scope))
            result = execute_at_once(learner, request)
            if result is None:
                return None
            admit(learner, request)
            reply = encode(request, result, head.write)
        except Exception:  # as above; the same error, such as a full queue, is refused there
            return None
        learner.last_used = time.monotonic()
        own_id = request_id(head.request_id)
        self._access.count("predict", 200, began, scope, own_id, head.name, len(body), request.event_count)
        return 200, _success(head.write, reply, own_id)

    def _queue(
        self, head: RequestHead, learner: LearnerReplica, request: Request, entry: tuple[float, Scope]
    ) -> PendingUpdate | None:
        assert isinstance(request.events, Labelled)
        if not request.events.plain:
            return None
        admit(learner, request)
        future = learner.update(request.events.batch())
        return PendingUpdate(future, head, learner, request, self._access, entry)


def _success(write: Coding, reply: bytes, own_id: str) -> bytes:
    """Return a reply with status 200 behind the server's own headers."""
    headers = *write.content_type, len(reply), own_id.encode()
    return b"%b: %b\r\ncontent-length: %d\r\nx-request-id: %b\r\n\r\n%b" % (*headers, reply)


def _refusal(error: ServiceError, own_id: str) -> tuple[int, str, bytes]:
    """Return the status, the code and the reply, as ASGI would send it."""
    reply = problem_reply(error, own_id)
    headers = b"".join(b"%b: %b\r\n" % header for header in reply.raw_headers)
    return error.status, error.code, b"%bx-request-id: %b\r\n\r\n%b" % (headers, own_id.encode(), bytes(reply.body))
