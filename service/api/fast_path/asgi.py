"""The fast path: POST /v1/learners/{name}/update, predict and labels, answered in front of FastAPI.

    match_request -> learner -> body within its limits -> operations.answer -> two ASGI messages

FastAPI's routing, dependencies, middleware and responses take several times as long as the work on one event, so these
requests bypass them. `routes/events.py` describes them for the OpenAPI document.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from time import perf_counter
from urllib.parse import parse_qsl

import msgspec
from starlette.types import Receive, Scope, Send

from learners import MAX_FEATURES, Problem
from service.api.body import Disconnected, pieces, read_in_time
from service.api.fast_path.inline import SHUTDOWN
from service.api.fast_path.ndjson_stream import ndjson_replies
from service.api.operations import answer
from service.api.paths import match_operation
from service.api.state import AppState
from service.auth import NEEDED, UNRESTRICTED
from service.engine.replica import LearnerReplica
from service.errors import Invalid, ServiceError, StoreUnavailable
from service.names import check_name, check_parameters
from service.storage import MAX_POSITION
from service.telemetry import CLIENT_CLOSED, rate_headers
from service.wire import (
    NDJSON,
    Operation,
    expanded,
    heading_of,
    internal_error,
    local_path,
    negotiated,
    problem_reply,
    request_id,
)

__all__ = ["FastPath", "match_request"]

_NUMBER = re.compile(r"[0-9]{1,18}")
_BOUNDS = {
    "explain": (MAX_FEATURES, str(MAX_FEATURES)),
    "at_least": (MAX_POSITION, "2^53"),
}  # of the query of a predict


def match_request(scope: Scope) -> tuple[str, Operation] | None:
    """Return the learner's name and the operation of a POST that the fast path answers, else None."""
    if scope["type"] != "http" or scope["method"] != "POST":
        return None
    return match_operation(local_path(scope))


class FastPath:
    """Replies over ASGI, from the state of the application."""

    def __init__(self, state: AppState) -> None:
        self._state = state
        self._bodies = state.bodies
        self._access = state.access
        self._guard = state.guard

    async def answer(self, name: str, operation: Operation, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that `match_request` matched. A fault of ours is answered, too, and raised for the log."""
        began = perf_counter()
        heading = heading_of(scope["headers"])
        own_id = request_id(heading.request_id)
        learner: LearnerReplica | None = None
        body, has_started = b"", False  # begun: the reply
        try:
            permissions = UNRESTRICTED
            if self._guard.on:
                state = scope.setdefault("state", {})
                permissions = self._guard.admit(
                    scope["headers"], NEEDED[operation], name, scope.get("client"), state=state
                )
            engine = self._state.engine
            learner = engine.replicas.get(name)
            if learner is None:
                learner = await engine.acquire(check_name(name))
            else:
                learner.users += 1
            read, write = negotiated(heading.content_type, heading.accept)
            explain = None
            if scope["query_string"]:
                explain, at_least = _parse_query(scope["query_string"], operation)
                await learner.log.wait_for(at_least)
            if read is NDJSON:
                parts = expanded(pieces(receive, scope), heading.encoding.decode("latin-1"), None)
                lines = ndjson_replies(
                    learner, operation, parts, self._bodies, explain, own_id, self._state.closing, permissions
                )
                first = await anext(lines)  # a refused first chunk decides the status
                has_started = True
                end = await _stream(first, lines, scope, own_id, send, learner.node.settings.ws_stall_seconds)
                self._access.count(operation, 200, began, scope, own_id, name, end.bytes, code=end.code)
                return
            body = await self._bodies.read(receive, scope, heading, permissions.body_bytes)
            reply, events = await answer(learner, operation, body, read, write, explain, permissions.spend)
        except Disconnected:
            self._access.count(operation, CLIENT_CLOSED, began, scope, own_id, name)
            return
        except ServiceError as error:
            await _refuse(error, own_id, scope, receive, send)
            self._access.count(operation, error.status, began, scope, own_id, name, len(body) or None, code=error.code)
            return
        except asyncio.CancelledError:
            if has_started or not self._state.closing.is_set():
                raise
            unknown = StoreUnavailable(SHUTDOWN)
            await _refuse(unknown, own_id, scope, receive, send)
            self._access.count(operation, 503, began, scope, own_id, name, len(body) or None, code=unknown.code)
            return
        except Exception as error:
            if not has_started:
                await _refuse(internal_error(error), own_id, scope, receive, send)
            self._access.count(operation, 500, began, scope, own_id, name, len(body) or None, code="internal")
            raise
        finally:
            self._bodies.release(body)
            if learner is not None:
                learner.release()
        headers = [write.content_type, (b"content-length", b"%d" % len(reply)), (b"x-request-id", own_id.encode())]
        headers += rate_headers(scope)
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": reply})
        self._access.count(operation, 200, began, scope, own_id, name, len(body), events)


class _LastLine(msgspec.Struct):
    """The last line of an NDJSON reply: bytes that were executed, and the code of the error that ended it."""

    bytes: int
    code: str | None = None


async def _stream(
    first: bytes, rest: AsyncGenerator[bytes], scope: Scope, own_id: str, send: Send, seconds: float
) -> _LastLine:
    """Send a reply while the request's body still arrives, and return its last line.

    A fault of ours ends the reply without a last line, so clients can tell. A client that reads nothing for so many
    seconds is dropped, because it holds the learner in memory: raises `Disconnected`.
    """
    bounded_send = read_in_time(send, seconds, "a reply in lines")
    headers = [NDJSON.content_type, (b"x-request-id", own_id.encode()), *rate_headers(scope)]
    async with aclosing(rest):
        await bounded_send({"type": "http.response.start", "status": 200, "headers": headers})
        await bounded_send({"type": "http.response.body", "body": first, "more_body": True})
        line = first
        async for line in rest:
            await bounded_send({"type": "http.response.body", "body": line, "more_body": True})
        await bounded_send({"type": "http.response.body", "body": b""})
    return msgspec.json.decode(line, type=_LastLine)


async def _refuse(error: ServiceError, own_id: str, scope: Scope, receive: Receive, send: Send) -> None:
    reply = problem_reply(error, own_id)
    reply.headers["X-Request-ID"] = own_id
    reply.raw_headers += rate_headers(scope)
    await reply(scope, receive, send)


def _parse_query(query: bytes, operation: Operation) -> tuple[int | None, int | None]:
    """Return the query's `explain` and `at_least`, the only parameters. Raises `Invalid`."""
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    check_parameters((name for name, _ in pairs), tuple(_BOUNDS) if operation == "predict" else ())
    parameters = dict(pairs)
    problems = []
    for name, (most, limit) in _BOUNDS.items():
        value = parameters.get(name)
        if value is not None and not (_NUMBER.fullmatch(value) and 1 <= int(value) <= most):
            expected = {"type": "integer", "minimum": 1, "maximum": most}
            problems.append(Problem.mismatch(f"/{name}", value, f"a whole number from 1 to {limit}", expected))
    if problems:
        raise Invalid("the query is refused", problems)
    explain, at_least = (int(parameters[name]) if name in parameters else None for name in _BOUNDS)
    return explain, at_least
