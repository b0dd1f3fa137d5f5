"""The handshakes of websockets, at `/v1/learners/NAME/ws` for one learner and at `/v1/ws` for all of them.

handshake -> is there one, who asks, from which page -> a connection (`sockets.py`), or a refusal with its reason
"""

from __future__ import annotations

import re
from time import perf_counter

import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send

from service.api.state import app_state
from service.api.websocket.connection import VIOLATION, Connection
from service.auth import FREE, Grant
from service.errors import ForeignOrigin, ServiceError, UnknownPath, UpgradeRequired
from service.wire import PROBLEM, headers_of, heading_of, problem_reply, request_id

__all__ = ["Sockets"]

_RESPONSE = "websocket.http.response"  # an extension of ASGI: a handshake is refused by a reply of one's own
_PATH = re.compile(r"/v1/(?:learners/([^/]+)/)?ws")
_PLACES = "they are at /v1/learners/NAME/ws and /v1/ws"


class Sockets:
    """ASGI: the websockets; everything else passes on to the application behind."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] not in ("websocket", "http"):
            await self.app(scope, receive, send)
            return
        found = _PATH.fullmatch(scope["path"].removeprefix(scope.get("root_path", "")))
        if scope["type"] == "http":
            if found is None or scope["method"] != "GET":
                await self.app(scope, receive, send)
            else:
                await _ask_for_upgrade(scope, receive, send)
            return
        began = perf_counter()
        scope.setdefault("state", {})["request_id"] = request_id(heading_of(scope["headers"]).request_id)
        await receive()  # that a connection is asked for
        try:
            if found is None:
                raise UnknownPath(f"there is no websocket at {scope['path'][:200]}; {_PLACES}")
            grant = _admitted(scope)
        except ServiceError as refusal:
            await _deny(refusal, scope, send)
            access = app_state(scope).access
            name = None if found is None else found[1]
            access.websocket(scope, name, began, status=refusal.status, known=found is not None)
        else:
            await Connection(scope, receive, send, found[1], grant).serve()


def _admitted(scope: Scope) -> Grant:
    """What the key of a handshake allows; each message is asked for by itself. Raises what refuses it.

    A browser opens websockets for pages of any site, and says which: no other than ours may.
    """
    guard = app_state(scope).guard
    headers = dict(scope["headers"])
    if b"origin" in headers and not guard.same_origin(headers.get(b"host", b""), headers[b"origin"]):
        raise ForeignOrigin("a page may open websockets only of the site that it comes from")
    if not guard.on:
        return FREE
    state = scope.setdefault("state", {})
    grant = guard.admit(scope["headers"], client=scope.get("client"), changes=False, state=state)
    if grant.scopes.isdisjoint(("predict", "update")):
        grant.need("predict")
    return grant


async def _ask_for_upgrade(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a plain request for a websocket's path."""
    own_id: str = scope["state"]["request_id"]
    reply = problem_reply(UpgradeRequired("this path is a websocket: connect to it as ws:// or wss://"), own_id)
    reply.headers.update({"Upgrade": "websocket", "Connection": "Upgrade"})
    await reply(scope, receive, send)


async def _deny(error: ServiceError, scope: Scope, send: Send) -> None:
    """Refuse a websocket before it is one, with a reason where the server can send that: else it is a bare 403."""
    if _RESPONSE not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": VIOLATION, "reason": error.detail})
        return
    own_id: str = scope["state"]["request_id"]
    told = {"content-type": PROBLEM, "x-request-id": own_id, **headers_of(error)}
    headers = [(name.lower().encode(), value.encode()) for name, value in told.items()]
    document = msgspec.json.encode(error.document(own_id))
    await send({"type": f"{_RESPONSE}.start", "status": error.status, "headers": headers})
    await send({"type": f"{_RESPONSE}.body", "body": document})
