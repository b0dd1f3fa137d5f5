"""Requests for learners that other nodes host: passed on to one that does, or answered with its address.

A request that was passed on is answered where it came to: nodes that disagree for a moment never send one in circles.
It says so by a header that only a node can make: a MAC of the request and of the node that it is for, by a key that the
nodes have from their store. Where no host can be connected to, it is answered here, as any node may (`placement.py`).

A host that fails once it is connected to, that does not answer in `forward_seconds`, or that is not heard of any more
meanwhile, leaves the outcome unknown: 503, and repeating is safe, as ever, by ids or sources. What changes nothing, and
a predict, is asked of the next host instead, and in the end answered here. Keys, the Host and the page that asks are
looked at here, before anything is passed on; the host looks at the key once more.
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
from service.api.forwarded_body import PassedBody, is_large, kept_of
from service.api.paths import learner_name
from service.api.state import AppState
from service.auth import Grant
from service.engine.cluster import Placement
from service.errors import HostUnavailable, ServiceError
from service.wire import heading_of, problem_reply, request_id

__all__ = ["FORWARDED", "Forwarding"]

logger = logging.getLogger("rarestream.forwarding")

FORWARDED = b"x-rarestream-forwarded"  # header: that a node passed the request on, see `_mark`

_CONNECT_SECONDS = 2.0
_GATHER_SECONDS = 2.0  # for what other nodes tell of their learners
_TOLD_SECONDS = 10.0  # for which what a node told stands in for what it does not tell in time
_TIMEOUT = aiohttp.ClientTimeout(total=None, connect=_CONNECT_SECONDS, sock_connect=_CONNECT_SECONDS)
_KEEP_SECONDS = 3.0  # less than a node keeps an idle connection open
_HOPS = {  # RFC 9110, section 7.6.1: of one connection only
    b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te", b"trailer",
    b"transfer-encoding", b"upgrade",
}  # fmt: skip
_REPLACED = _HOPS | {b"date", b"server", b"x-request-id"}  # of a reply: this node's own come instead
_NOT_SENT = _HOPS | {
    FORWARDED,
    b"host",
    b"origin",
    b"sec-fetch-site",
    b"sec-fetch-mode",
    b"sec-fetch-dest",
    b"forwarded",
}
_OWN = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")  # headers that would be added where there are none


class Route(NamedTuple):
    """What a request that is passed on counts as in the figures and the log."""

    path: str = "/learners/{name}/..."


def _path(scope: Scope) -> str:
    """Return the path below the application's root."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


class Forwarding:
    """The way of requests to other nodes."""

    def __init__(self, state: AppState) -> None:
        """`state`: of the application, whose engine is there once that started."""
        self._state = state
        self._sessions: dict[bool, aiohttp.ClientSession] = {}
        self.forwarded = 0  # requests
        # what nodes told whom: by address and target, when, and what
        self._told: WeakKeyDictionary[Grant, dict[tuple[str, str], tuple[float, dict[str, Any]]]] = WeakKeyDictionary()
        self._silent: dict[str, int] = {}  # hosts that did not answer when they were last asked: how many requests

    def hosts(self, scope: Scope) -> Sequence[str]:
        """The addresses that the request is for, if it is one for other nodes. O(1)."""
        engine = self._state.engine
        placement = engine.placement
        if not placement.spread or scope["type"] != "http":
            return ()
        name = learner_name(_path(scope))
        if name is None:
            return ()
        if placement.hosts(name) or (name in engine.replicas and placement.settling):
            return ()
        if name not in engine.evicted and name not in engine.replicas:  # unknown, or to be created
            return ()
        return () if self._passed_on(scope) else placement.places(name)

    def _passed_on(self, scope: Scope) -> bool:
        """Whether another node has sent this request here. Whoever else says so is not believed."""
        said = [value for name, value in scope["headers"] if name == FORWARDED]
        if not said:
            return False
        placement = self._state.engine.placement
        target = _target(scope)
        known = [_mark(key, placement.address, scope["method"], target) for key in placement.keys]
        return any(hmac.compare_digest(one, mark) for one in said for mark in known)

    async def pass_on(self, hosts: Sequence[str], scope: Scope, receive: Receive, send: Send) -> Receive | None:
        """Have one of the hosts answer, or tell its address; where none does, how to go on receiving the request."""
        began = perf_counter()
        own_id = request_id(heading_of(scope["headers"]).request_id)
        client = scope.get("client")
        given = [(name, value) for name, value in scope["headers"] if name != b"x-request-id"]
        received = scope  # in which the server tells of the body
        scope = {**scope, "headers": [*given, (b"x-request-id", own_id.encode())], "route": Route()}
        scope["path_params"] = {"name": learner_name(_path(scope))}

        async def told(answer: ASGIApp) -> None:
            await access(answer, scope, receive, send, began)

        async def refused(error: ServiceError) -> None:
            scope.setdefault("state", {})["problem"] = error.code  # for the line in the log
            await told(problem_reply(error, own_id))

        access = self._state.access
        guard = self._state.guard
        if guard.on:  # before anybody learns which learners there are, or has a body taken
            changes = scope["method"] not in ("GET", "HEAD")
            try:
                state = scope.setdefault("state", {})
                name = scope["path_params"]["name"]
                guard.admit(given, None, name, client, changes=changes, counts=False, state=state)
            except ServiceError as error:
                await refused(error)
                return None
        target = _target(scope)
        if self._state.settings.elsewhere == "redirect":
            self.forwarded += 1
            await told(Response(status_code=307, headers={"location": hosts[0] + target}))
            return None
        headers = [
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in scope["headers"]
            if name not in _NOT_SENT and not name.startswith(b"x-forwarded-")
        ]
        reading = scope["method"] in ("GET", "HEAD")
        again = reading or (scope["method"] == "POST" and target.partition("?")[0].endswith("/predict"))
        names = {name for name, _ in scope["headers"]}
        has_any = b"content-length" in names or b"transfer-encoding" in names
        bodies: Bodies = self._state.bodies
        heading = heading_of(scope["headers"])
        keep = kept_of(heading.length) if again and has_any else 0
        if bodies.bytes + keep > self._state.settings.max_buffered_bytes:  # then it is sent once
            keep = 0
        body = PassedBody(receive, received, has_any=has_any, keep=keep, large=has_any and is_large(heading.length))
        bodies.bytes += keep
        placement = self._state.engine.placement
        try:
            for host in hosts:
                if host not in placement.addresses:  # by now
                    continue
                unknown: ServiceError
                try:
                    reply = await self._reply_of(host, scope["method"], target, headers, body, reading=reading)
                except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
                    self._silenced(host, "cannot be connected to", error)
                    continue
                except (aiohttp.ClientError, TimeoutError) as error:
                    if body.left:
                        await told(_nobody)
                        return None
                    if body.broken:
                        await refused(body.broken)
                        return None
                    self._silenced(host, "does not answer", error)
                    if again and body.kept:
                        continue
                    unknown = HostUnavailable(f"the node at {host}, which hosts this learner, does not answer")
                except asyncio.CancelledError:
                    if not self._state.closing.is_set():
                        raise
                    unknown = HostUnavailable("this node stops; what became of the request is not known")
                else:
                    self.forwarded += 1
                    self._heard(host)
                    async with reply:
                        await told(
                            partial(
                                _returned, reply, body, self._state.closing, partial(placement.wait_until_gone, host)
                            )
                        )
                    return None
                await refused(unknown)
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
        body: PassedBody,
        *,
        reading: bool,
    ) -> aiohttp.ClientResponse:
        """The reply of a host, as soon as its head has come.

        A body that does not fit into what the system holds of a connection is sent once the host asks for it: one that
        refuses the request by its head alone closes the connection, and its reply would be lost with what it did not
        read.

        Raises `TimeoutError` where it takes longer than `forward_seconds`, but for the time in which the client sends
        the body, or where the host is not alive any more; or aiohttp's `ClientError`.
        """
        placement = self._state.engine.placement
        mark = _mark(placement.keys[0], host, method, target).decode()
        async with asyncio.timeout(None) as limit:
            body.waits_for(limit, self._state.settings.forward_seconds)
            ending = asyncio.create_task(_end_without(placement, host, body), name="watch whether a host is alive")
            try:
                return await self._connections(again=reading).request(
                    method,
                    URL(host + target, encoded=True),
                    headers=[*headers, (FORWARDED.decode(), mark)],
                    data=body.pieces(),
                    expect100=body.large,
                    allow_redirects=False,
                )
            finally:
                ending.cancel()
                body.waits_for(None)

    async def gathered(self, request: Request, target: str, grant: Grant) -> list[dict[str, Any]]:
        """What the other nodes answer to a GET of `target` by whoever sent the request, who has this grant.

        Behind these, of those that do not answer, what they told some seconds ago: a table of learners does not lose
        its rows while a node is held up. Nothing at all where every node hosts all, and where the request came from
        another node.
        """
        placement = self._state.engine.placement
        if not placement.spread or self._passed_on(request.scope):
            return []
        others = [address for address in placement.addresses if address != placement.address]
        told = self._told.setdefault(grant, {})
        for key in [key for key in told if key[0] not in others]:
            del told[key]
        answers = await asyncio.gather(*(self._asked(address, target, request) for address in others))
        fresh, stale = [], []
        now = time.monotonic()
        for address, (answered, answer) in zip(others, answers, strict=True):
            if answer is not None:
                told[address, target] = now, answer
                fresh.append(answer)
            elif answered:
                told.pop((address, target), None)
            elif (address, target) in told and now - told[address, target][0] < _TOLD_SECONDS:
                stale.append(told[address, target][1])
        return fresh + stale

    async def _asked(self, address: str, target: str, request: Request) -> tuple[bool, dict[str, Any] | None]:
        """Whether a node answered, and what, where that is no refusal."""
        mark = _mark(self._state.engine.placement.keys[0], address, "GET", target)
        headers = {FORWARDED.decode(): mark.decode()}
        if "authorization" in request.headers:
            headers["authorization"] = request.headers["authorization"]
        url = URL(address + target, encoded=True)
        try:
            async with asyncio.timeout(_GATHER_SECONDS), self._connections().get(url, headers=headers) as reply:
                answer: dict[str, Any] | None = msgspec.json.decode(await reply.read()) if reply.status == 200 else None
                self._heard(address)
                return True, answer
        except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError) as error:
            self._silenced(address, "does not answer", error)
            return False, None

    def _silenced(self, host: str, what: str, error: Exception) -> None:
        """A request has had no answer from a host: told once, until there is one, and then how many had none."""
        if host not in self._silent:
            logger.warning("%s %s: %s", host, what, type(error).__name__)
            alive = self._state.engine.placement.addresses
            self._silent = {address: missed for address, missed in self._silent.items() if address in alive}
        self._silent[host] = self._silent.get(host, 0) + 1

    def _heard(self, host: str) -> None:
        """A host has answered."""
        missed = self._silent.pop(host, 0)
        if missed:
            requests = "1 request" if missed == 1 else f"{missed} requests"
            logger.info("%s answers again; %s had no answer from it", host, requests)

    def _connections(self, again: bool = True) -> aiohttp.ClientSession:
        """`again`: whether a request may be sent a second time, where a connection that was kept turns out to be dead.

        Changes have a connection each, for aiohttp repeats some of them without asking.
        """
        session = self._sessions.get(again)
        if session is None:
            session = self._sessions[again] = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_SECONDS)
                if again
                else aiohttp.TCPConnector(limit=0, force_close=True),
                timeout=_TIMEOUT,
                auto_decompress=False,
                skip_auto_headers=_OWN,
            )
        return session

    async def close(self) -> None:
        """Close the connections."""
        for session in self._sessions.values():
            await session.close()


def _target(scope: Scope) -> str:
    """The path and the query of a request, as they came."""
    raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
    target = raw.removeprefix(scope.get("root_path", "").encode()).decode("latin-1")
    return f"{target}?{scope['query_string'].decode('latin-1')}" if scope["query_string"] else target


def _mark(key: bytes, address: str, method: str, target: str) -> bytes:
    """What shows that a node has sent this request to the node at the address: nobody else knows the key."""
    return hmac.digest(key, "\n".join((address, method, target)).encode(), "sha256").hex().encode()


async def _end_without(placement: Placement, host: str, body: PassedBody) -> None:
    """End the wait for a host that is not alive any more."""
    await placement.wait_until_gone(host)
    body.give_up()


async def _nobody(_scope: Scope, _receive: Receive, _send: Send) -> None:
    """No reply: the client went away."""


async def _returned(
    reply: aiohttp.ClientResponse,
    body: PassedBody,
    closing: asyncio.Event,
    without_host: Callable[[], Coroutine[Any, Any, None]],
    _scope: Scope,
    _receive: Receive,
    send: Send,
) -> None:
    """Hand a reply back as it comes, for as long as the client and the host are there; a stream of events until this
    node stops.

    Where the host fails half-way the reply ends without its end, which clients tell from a whole one.
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
        asyncio.create_task(body.gone(), name="watch whether the client stays"),
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
