"""Forwards requests for learners of other nodes to a node that hosts them, or redirects the client to it.

A node always answers a forwarded request itself, so that nodes that disagree for a moment never forward in circles. A
header marks such a request: a MAC of the request and its target node, with a key that the nodes share in their store.
If no host accepts a connection, this node answers, as any node may (`placement.py`).

The outcome is unknown if a host fails after the connection, does not answer in `forward_seconds`, or stops its
heartbeats meanwhile. Then the reply is 503; a repeat with ids or sources is safe. Reads and predicts go to the next
host instead, and in the end to this node. This node checks keys, Host and Origin before it forwards; the host checks
the key again.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple
from urllib.parse import quote
from weakref import WeakKeyDictionary

import aiohttp
import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from yarl import URL

from service.api.body import Bodies
from service.api.forwarded_body import ForwardedBody, is_large, retry_bytes
from service.api.paths import learner_name, match_operation
from service.auth import Guard, Permissions
from service.engine import Engine
from service.engine.cluster import Placement
from service.errors import HostUnavailable, ServiceError
from service.settings import Settings
from service.telemetry import Access
from service.wire import heading_of, local_path, problem_reply, request_id

__all__ = ["FORWARDED", "Forwarding"]

logger = logging.getLogger("rarestream.forwarding")

FORWARDED = b"x-rarestream-forwarded"  # header of a forwarded request, see `_mark`

_CONNECT_SECONDS = 2.0
_GATHER_SECONDS = 2.0  # for the learners of other nodes
_ANSWER_SECONDS = 10.0  # for which the last answer of a node replaces one that is late
_TIMEOUT = aiohttp.ClientTimeout(total=None, connect=_CONNECT_SECONDS, sock_connect=_CONNECT_SECONDS)
_KEEP_SECONDS = 3.0  # less than the keep-alive time of a node
_HOPS = {  # RFC 9110, section 7.6.1: for one connection only
    b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te", b"trailer",
    b"transfer-encoding", b"upgrade",
}  # fmt: skip
_REPLACED = _HOPS | {b"date", b"server", b"x-request-id"}  # of a reply: this node adds its own
_NOT_SENT = _HOPS | {
    FORWARDED,
    b"host",
    b"origin",
    b"sec-fetch-site",
    b"sec-fetch-mode",
    b"sec-fetch-dest",
    b"forwarded",
}
_NOT_ADDED = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")  # headers that aiohttp would add


class Route(NamedTuple):
    """The route of a forwarded request in the metrics and the log."""

    path: str = "/learners/{name}/..."


class Forwarding:
    """Forwards the requests of one application."""

    engine: Engine  # set once it started

    def __init__(
        self, settings: Settings, guard: Guard, access: Access, bodies: Bodies, closing: asyncio.Event
    ) -> None:
        """Forward nothing yet; `closing` is set once the server shuts down."""
        self._settings = settings
        self._guard = guard
        self._access = access
        self._bodies = bodies
        self._closing = closing
        self._sessions: dict[bool, aiohttp.ClientSession] = {}
        self.forwarded = 0  # requests
        # by reader, and by address and target: the time and the answer
        self._answers: WeakKeyDictionary[Permissions, dict[tuple[str, str], tuple[float, dict[str, Any]]]] = (
            WeakKeyDictionary()
        )
        self._silent: dict[str, int] = {}  # hosts without an answer to the last request -> such requests

    def hosts(self, scope: Scope) -> Sequence[str]:
        """Return the addresses of the hosts if other nodes are to answer the request. O(1)."""
        engine = self.engine
        placement = engine.placement
        if not placement.spread or scope["type"] != "http":
            return ()
        name = learner_name(local_path(scope))
        if name is None:
            return ()
        if placement.hosts(name) or (name in engine.replicas and placement.settling):
            return ()
        if name not in engine.evicted and name not in engine.replicas:  # unknown, or to create
            return ()
        return () if self._is_forwarded(scope) else placement.places(name)

    def _is_forwarded(self, scope: Scope) -> bool:
        """Tell whether another node has forwarded this request; the mark proves it."""
        marks = [value for name, value in scope["headers"] if name == FORWARDED]
        if not marks:
            return False
        placement = self.engine.placement
        target = _target(scope)
        valid = [_mark(key, placement.address, scope["method"], target) for key in placement.keys]
        return any(hmac.compare_digest(mark, expected) for mark in marks for expected in valid)

    async def forward(self, hosts: Sequence[str], scope: Scope, receive: Receive, send: Send) -> Receive | None:
        """Answer by one of the hosts, or redirect to it; else return a `receive` with which this node can answer."""
        began = perf_counter()
        own_id = request_id(heading_of(scope["headers"]).request_id)
        client = scope.get("client")
        headers_received = [(name, value) for name, value in scope["headers"] if name != b"x-request-id"]
        received = scope  # where the server marks the end of the body
        scope = {**scope, "headers": [*headers_received, (b"x-request-id", own_id.encode())], "route": Route()}
        scope["path_params"] = {"name": learner_name(local_path(scope))}

        async def send_reply(answer: ASGIApp) -> None:
            await access(answer, scope, receive, send, began)

        async def refuse(error: ServiceError) -> None:
            scope.setdefault("state", {})["problem"] = error.code  # for the line in the log
            await send_reply(problem_reply(error, own_id))

        access, guard, bodies = self._access, self._guard, self._bodies
        if guard.on:  # before a reply reveals a learner, and before the body is read
            changes = scope["method"] not in ("GET", "HEAD")
            try:
                state = scope.setdefault("state", {})
                name = scope["path_params"]["name"]
                guard.admit(headers_received, None, name, client, changes=changes, counts=False, state=state)
            except ServiceError as error:
                await refuse(error)
                return None
        target = _target(scope)
        if self._settings.elsewhere == "redirect":
            self.forwarded += 1
            await send_reply(Response(status_code=307, headers={"location": hosts[0] + target}))
            return None
        headers = [
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in scope["headers"]
            if name not in _NOT_SENT and not name.startswith(b"x-forwarded-")
        ]
        reading = scope["method"] in ("GET", "HEAD")
        _, operation = match_operation(local_path(scope)) or (None, None)
        again = reading or (scope["method"] == "POST" and operation == "predict")
        names = {name for name, _ in scope["headers"]}
        has_any = b"content-length" in names or b"transfer-encoding" in names
        heading = heading_of(scope["headers"])
        keep = retry_bytes(heading.length) if again and has_any else 0
        if bodies.bytes + keep > self._settings.max_buffered_bytes:  # no room to buffer it: no retry
            keep = 0
        body = ForwardedBody(receive, received, has_any=has_any, keep=keep, large=has_any and is_large(heading.length))
        bodies.bytes += keep
        placement = self.engine.placement
        try:
            for host in hosts:
                if host not in placement.addresses:  # it has left meanwhile
                    continue
                unknown: ServiceError
                try:
                    reply = await self._reply_of(host, scope["method"], target, headers, body, reading=reading)
                except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
                    self._note_failure(host, "cannot be connected to", error)
                    continue
                except (aiohttp.ClientError, TimeoutError) as error:
                    if body.left:
                        await send_reply(_nobody)
                        return None
                    if body.broken:
                        await refuse(body.broken)
                        return None
                    self._note_failure(host, "does not answer", error)
                    if again and body.repeatable:
                        continue
                    unknown = HostUnavailable(f"the node at {host}, which hosts this learner, does not answer")
                except asyncio.CancelledError:
                    if not self._closing.is_set():
                        raise
                    unknown = HostUnavailable("this node stops; what became of the request is not known")
                else:
                    self.forwarded += 1
                    self._note_answer(host)
                    async with reply:
                        await send_reply(
                            partial(
                                _return_reply,
                                reply,
                                body,
                                self._closing,
                                partial(placement.wait_until_gone, host),
                            )
                        )
                    return None
                await refuse(unknown)
                return None
        finally:
            bodies.bytes -= keep
        return body.receive

    async def _reply_of(
        self,
        host: str,
        method: str,
        target: str,
        headers: Sequence[tuple[str, str]],
        body: ForwardedBody,
        *,
        reading: bool,
    ) -> aiohttp.ClientResponse:
        """Return the reply of a host as soon as its headers have arrived.

        A body that may exceed the socket buffers is sent only after a 100 Continue. Otherwise a host that refuses the
        headers would close the connection with unread data, and its reply would be lost.

        Raises `TimeoutError` after `forward_seconds` without those of the client's upload, or if the host is no longer
        alive; or aiohttp's `ClientError`.
        """
        placement = self.engine.placement
        mark = _mark(placement.keys[0], host, method, target).decode()
        async with asyncio.timeout(None) as limit:
            body.limit_host(limit, self._settings.forward_seconds)
            ending = asyncio.create_task(_end_without(placement, host, body), name="watch whether a host is alive")
            try:
                return await self._session(again=reading).request(
                    method,
                    URL(host + target, encoded=True),
                    headers=[*headers, (FORWARDED.decode(), mark)],
                    data=body.pieces(),
                    expect100=body.large,
                    allow_redirects=False,
                )
            finally:
                ending.cancel()
                body.limit_host(None)

    async def gathered(self, request: Request, target: str, permissions: Permissions) -> list[dict[str, Any]]:
        """Send a GET of `target` to the other nodes in the name of the requester, who has these permissions.

        Return the fresh answers, then the recent ones of nodes that do not answer, so that a table of learners does
        not lose its rows while a node is slow. Return nothing if every node hosts all learners, or if the request came
        from another node.
        """
        placement = self.engine.placement
        if not placement.spread or self._is_forwarded(request.scope):
            return []
        others = [address for address in placement.addresses if address != placement.address]
        earlier = self._answers.setdefault(permissions, {})
        for key in [key for key in earlier if key[0] not in others]:
            del earlier[key]
        answers = await asyncio.gather(*(self._get(address, target, request) for address in others))
        fresh, stale = [], []
        now = time.monotonic()
        for address, (answered, answer) in zip(others, answers, strict=True):
            if answer is not None:
                earlier[address, target] = now, answer
                fresh.append(answer)
            elif answered:
                earlier.pop((address, target), None)
            elif (address, target) in earlier and now - earlier[address, target][0] < _ANSWER_SECONDS:
                stale.append(earlier[address, target][1])
        return fresh + stale

    async def _get(self, address: str, target: str, request: Request) -> tuple[bool, dict[str, Any] | None]:
        """Return whether a node answered, and the answer unless it is a refusal."""
        mark = _mark(self.engine.placement.keys[0], address, "GET", target)
        headers = {FORWARDED.decode(): mark.decode()}
        if "authorization" in request.headers:
            headers["authorization"] = request.headers["authorization"]
        url = URL(address + target, encoded=True)
        try:
            async with asyncio.timeout(_GATHER_SECONDS), self._session().get(url, headers=headers) as reply:
                answer: dict[str, Any] | None = msgspec.json.decode(await reply.read()) if reply.status == 200 else None
                self._note_answer(address)
                return True, answer
        except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError) as error:
            self._note_failure(address, "does not answer", error)
            return False, None

    def _note_failure(self, host: str, what: str, error: Exception) -> None:
        """Count a request that a host did not answer; log the first one until the host answers again."""
        if host not in self._silent:
            logger.warning("%s %s: %s", host, what, type(error).__name__)
            alive = self.engine.placement.addresses
            self._silent = {address: missed for address, missed in self._silent.items() if address in alive}
        self._silent[host] = self._silent.get(host, 0) + 1

    def _note_answer(self, host: str) -> None:
        """Log that a host answers again, with the number of requests that it missed."""
        missed = self._silent.pop(host, 0)
        if missed:
            requests = "1 unanswered request" if missed == 1 else f"{missed} unanswered requests"
            logger.info("%s answers again after %s", host, requests)

    def _session(self, again: bool = True) -> aiohttp.ClientSession:
        """Return the session for requests that may be sent `again` if a kept-alive connection turns out to be dead.

        Changes have a connection each, because aiohttp silently repeats some of them.
        """
        session = self._sessions.get(again)
        if session is None:
            session = self._sessions[again] = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_SECONDS)
                if again
                else aiohttp.TCPConnector(limit=0, force_close=True),
                timeout=_TIMEOUT,
                auto_decompress=False,
                skip_auto_headers=_NOT_ADDED,
            )
        return session

    async def close(self) -> None:
        """Close the connections."""
        for session in self._sessions.values():
            await session.close()


def _target(scope: Scope) -> str:
    """Return the path and the query of a request, as received."""
    raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
    target = raw.removeprefix(scope.get("root_path", "").encode()).decode("latin-1")
    return f"{target}?{scope['query_string'].decode('latin-1')}" if scope["query_string"] else target


def _mark(key: bytes, address: str, method: str, target: str) -> bytes:
    """Return the MAC by which a node marks a request to the node at this address; only nodes know the key."""
    return hmac.digest(key, "\n".join((address, method, target)).encode(), "sha256").hex().encode()


async def _end_without(placement: Placement, host: str, body: ForwardedBody) -> None:
    """End the wait for a host that is no longer alive."""
    await placement.wait_until_gone(host)
    body.give_up()


async def _nobody(_scope: Scope, _receive: Receive, _send: Send) -> None:
    """Send no reply, because the client has left."""


async def _return_reply(
    reply: aiohttp.ClientResponse,
    body: ForwardedBody,
    closing: asyncio.Event,
    without_host: Callable[[], Coroutine[Any, Any, None]],
    _scope: Scope,
    _receive: Receive,
    send: Send,
) -> None:
    """Return a reply piece by piece while the client and the host stay; a stream of events until this node stops.

    If the host fails half-way, the reply ends without its terminator, which clients notice.
    """

    async def pump() -> None:
        headers = [(name.lower(), value) for name, value in reply.raw_headers if name.lower() not in _REPLACED]
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        try:
            async for piece in reply.content.iter_any():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        except aiohttp.ClientError as error:
            logger.warning("a reply of %s broke off: %s", reply.url.origin(), type(error).__name__)
            return
        await send({"type": "http.response.body", "body": b""})

    pumping = asyncio.create_task(pump(), name="hand a reply back")
    tasks: list[asyncio.Task[Any]] = [
        pumping,
        asyncio.create_task(body.wait_for_disconnect(), name="watch whether the client stays"),
        asyncio.create_task(without_host(), name="watch whether the host is alive"),
    ]
    endless = reply.content_type == "text/event-stream"
    if endless:
        tasks.append(asyncio.create_task(closing.wait(), name="watch whether this node stops"))
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    if endless and closing.is_set():
        await send({"type": "http.response.body", "body": b""})
    if not pumping.cancelled():
        pumping.result()  # raises an error of ours
