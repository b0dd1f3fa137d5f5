"""Requests for learners that other nodes host: passed on to one that does, or answered with its address.

A request that was passed on is answered where it came to: nodes that disagree for a moment never send one in circles.
Where no host can be connected to, it is answered here, as any node may (`placement.py`). A host that fails once it is
connected to leaves the outcome unknown: 503, and repeating is safe, as ever, by ids or sources. Keys, the Host and the
page that asks are looked at here, before anything is passed on; the host looks at the key once more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple
from urllib.parse import quote

import aiohttp
from starlette.datastructures import State
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from yarl import URL

from service.access import Access
from service.bodies import heading_of
from service.engine import Engine
from service.errors import HostUnavailable, ServiceError
from service.guard import Guard
from service.problems import problem_reply, request_id

__all__ = ["FORWARDED", "Forwarding"]

logger = logging.getLogger("rarestream.forwarding")

FORWARDED = b"x-rarestream-forwarded"  # header: the address of the node that passed the request on

_PREFIX = "/v1/learners/"
_CONNECT_SECONDS = 2.0
_REPLY_SECONDS = 60.0  # to the head of a reply, longer than a body may take to come and a position to be reached
_GATHER_SECONDS = 2.0  # for what other nodes tell of their learners
_KEEP_SECONDS = 3.0  # less than a node keeps an idle connection open
_HOPS = {  # RFC 9110, section 7.6.1: of one connection only
    b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te", b"trailer",
    b"transfer-encoding", b"upgrade",
}  # fmt: skip
_REPLACED = _HOPS | {b"date", b"server", b"x-request-id"}  # of a reply: this node's own come instead
_NOT_SENT = _HOPS | {b"host", b"origin", b"sec-fetch-site", b"sec-fetch-mode", b"sec-fetch-dest", b"forwarded"}
_OWN = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")  # headers that would be added where there are none


class Route(NamedTuple):
    """What a request that is passed on counts as in the figures and the log."""

    path: str = "/learners/{name}/..."


class Forwarding:
    """The way of requests to other nodes."""

    def __init__(self, state: State) -> None:
        """`state`: of the application, whose engine is there once that started."""
        self._state = state
        self._sessions: dict[bool, aiohttp.ClientSession] = {}
        self.forwarded = 0  # requests

    def hosts(self, scope: Scope) -> Sequence[str]:
        """The addresses that the request is for, if it is one for other nodes. O(1)."""
        engine: Engine = self._state.engine
        placement = engine.placement
        if not placement.spread or scope["type"] != "http":
            return ()
        path: str = scope["path"].removeprefix(scope.get("root_path", ""))
        if not path.startswith(_PREFIX):
            return ()
        name = path[len(_PREFIX) :].partition("/")[0]
        if placement.here(name) or (name in engine.hosted and placement.settling):
            return ()
        if name not in engine.asleep and name not in engine.hosted:  # unknown, or to be created
            return ()
        if any(header == FORWARDED for header, _ in scope["headers"]):
            return ()
        return placement.places(name)

    async def pass_on(self, hosts: Sequence[str], scope: Scope, receive: Receive, send: Send) -> bool:
        """Have one of the hosts answer, or tell its address; False where none can be connected to."""
        began = perf_counter()
        own_id = request_id(heading_of(scope["headers"]).request_id)
        client = scope.get("client")
        given = [(name, value) for name, value in scope["headers"] if name != b"x-request-id"]
        scope = {**scope, "headers": [*given, (b"x-request-id", own_id.encode())], "route": Route()}
        scope["path_params"] = {"name": scope["path"][len(scope.get("root_path", "") + _PREFIX) :].partition("/")[0]}

        async def told(answer: ASGIApp) -> None:
            await access(answer, scope, receive, send, began)

        access: Access = self._state.access
        guard: Guard = self._state.guard
        if guard.on:  # before anybody learns which learners there are, or has a body taken
            changes = scope["method"] not in ("GET", "HEAD")
            try:
                guard.admit(given, None, scope["path_params"]["name"], client, changes=changes)
            except ServiceError as error:
                await told(problem_reply(error, own_id))
                return True
        raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
        target = raw.removeprefix(scope.get("root_path", "").encode()).decode("latin-1")
        if scope["query_string"]:
            target += "?" + scope["query_string"].decode("latin-1")
        if self._state.settings.elsewhere == "redirect":
            self.forwarded += 1
            await told(Response(status_code=307, headers={"location": hosts[0] + target}))
            return True
        headers = [
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in scope["headers"]
            if name not in _NOT_SENT and not name.startswith(b"x-forwarded-")
        ]
        headers.append((FORWARDED.decode(), self._state.engine.placement.address))
        names = {name for name, _ in scope["headers"]}
        body = _Body(receive, has_any=b"content-length" in names or b"transfer-encoding" in names)
        for host in hosts:
            url = URL(host + target, encoded=True)
            unknown: ServiceError
            try:
                async with asyncio.timeout(None if target.endswith("/import") else _REPLY_SECONDS):
                    reply = await self._connections(again=scope["method"] in ("GET", "HEAD")).request(
                        scope["method"], url, headers=headers, data=body.pieces(), allow_redirects=False
                    )
            except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
                logger.warning("%s cannot be connected to: %s", host, type(error).__name__)
                continue
            except (aiohttp.ClientError, TimeoutError) as error:
                if body.left:  # the client went away
                    return True
                logger.warning("%s does not answer: %s", host, type(error).__name__)
                unknown = HostUnavailable(f"the node at {host}, which hosts this learner, does not answer")
            except asyncio.CancelledError:
                if not self._state.closing.is_set():
                    raise
                unknown = HostUnavailable("this node stops; what became of the request is not known")
            else:
                self.forwarded += 1
                async with reply:
                    await told(partial(_returned, reply, body, self._state.closing))
                return True
            await told(problem_reply(unknown, own_id))
            return True
        return False

    async def gathered(self, request: Request) -> list[dict[str, Any]]:
        """What the other nodes answer to the same request, in JSON; nothing of those that do not.

        Nothing at all where every node hosts all, and where the request came from another node.
        """
        placement = self._state.engine.placement
        if not placement.spread or FORWARDED.decode() in request.headers:
            return []
        others = [address for address in placement.addresses if address != placement.address]
        found = await asyncio.gather(*(self._asked(address, request) for address in others))
        return [one for one in found if one is not None]

    async def _asked(self, address: str, request: Request) -> dict[str, Any] | None:
        target = f"{request.url.path}?{request.url.query}" if request.url.query else request.url.path
        headers = {FORWARDED.decode(): self._state.engine.placement.address}
        if "authorization" in request.headers:
            headers["authorization"] = request.headers["authorization"]
        url = URL(address + target.removeprefix(request.scope.get("root_path", "")), encoded=True)
        try:
            async with asyncio.timeout(_GATHER_SECONDS), self._connections().get(url, headers=headers) as reply:
                if reply.status != 200:
                    return None
                answer: dict[str, Any] = await reply.json()
                return answer
        except (aiohttp.ClientError, TimeoutError) as error:
            logger.warning("%s does not answer: %s", address, type(error).__name__)
            return None

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
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),  # streams may be silent
                auto_decompress=False,
                skip_auto_headers=_OWN,
            )
        return session

    async def close(self) -> None:
        """Close the connections."""
        for session in self._sessions.values():
            await session.close()


class _Body:
    """The body of a request, piece by piece as it comes; it can be read once."""

    def __init__(self, receive: Receive, *, has_any: bool) -> None:
        self._receive = receive
        self._has_any = has_any
        self._whole = asyncio.Event()
        self.left = False  # the client went away before all of it had come

    def pieces(self) -> AsyncIterator[bytes] | None:
        """What has come so far and what comes; None where the request has no body."""
        if not self._has_any:
            self._whole.set()
            return None
        return self._pieces()

    async def _pieces(self) -> AsyncIterator[bytes]:
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self.left = True
                raise ConnectionResetError("the client went away")
            if piece := message.get("body", b""):
                yield piece
            if not message.get("more_body", False):
                self._whole.set()
                return

    async def gone(self) -> None:
        """Until the client goes away that has sent everything."""
        await self._whole.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass


async def _returned(
    reply: aiohttp.ClientResponse, body: _Body, closing: asyncio.Event, _scope: Scope, _receive: Receive, send: Send
) -> None:
    """Hand a reply back as it comes, for as long as the client is there; a stream of events until this node stops.

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
    tasks: list[asyncio.Task[Any]] = [pumping, asyncio.create_task(body.gone(), name="watch whether the client stays")]
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
