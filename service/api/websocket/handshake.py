"""Handshakes of websockets, at `/v1/learners/NAME/ws` for one learner and at `/v1/ws` for all of them.

handshake -> path, key, origin -> a `Connection`, or a refusal with its reason
"""

from __future__ import annotations

from time import perf_counter

import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send

from service.api.paths import match_websocket
from service.api.state import AppState
from service.api.websocket.connection import VIOLATION, Connection
from service.auth import UNRESTRICTED, Guard, Permissions
from service.errors import ForeignOrigin, ServiceError, UnknownPath, UpgradeRequired
from service.wire import PROBLEM, headers_of, heading_of, local_path, problem_reply, request_id

__all__ = ["Sockets"]

_RESPONSE = "websocket.http.response"  # ASGI extension: refuse a handshake by an HTTP reply
_PLACES = "they are at /v1/learners/NAME/ws and /v1/ws"


class Sockets:
    """ASGI middleware that serves the websockets and passes everything else on."""

    def __init__(self, app: ASGIApp, state: AppState) -> None:
        self.app = app
        self._state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] not in ("websocket", "http"):
            await self.app(scope, receive, send)
            return
        match = match_websocket(local_path(scope))
        if scope["type"] == "http":
            if match is None or scope["method"] != "GET":
                await self.app(scope, receive, send)
            else:
                await _ask_for_upgrade(scope, receive, send)
            return
        began = perf_counter()
        scope.setdefault("state", {})["request_id"] = request_id(heading_of(scope["headers"]).request_id)
        await receive()  # `websocket.connect`
        try:
            if match is None:
                raise UnknownPath(f"there is no websocket at {scope['path'][:200]}; {_PLACES}")
            permissions = _admitted(self._state.guard, scope)
        except ServiceError as refusal:
            await _deny(refusal, scope, send)
            name = None if match is None else match[1]
            self._state.access.websocket(scope, name, began, status=refusal.status, matched=match is not None)
        else:
            await Connection(self._state, scope, receive, send, match[1], permissions).serve()


def _admitted(guard: Guard, scope: Scope) -> Permissions:
    """Return the permissions of a handshake's key; each message is checked by itself. Raises `ServiceError`.

    Browsers open websockets for pages of any site and name it in Origin. Only our own origins may.
    """
    headers = dict(scope["headers"])
    if b"origin" in headers and not guard.same_origin(headers.get(b"host", b""), headers[b"origin"]):
        raise ForeignOrigin("a page may open websockets only of the site that it comes from")
    if not guard.on:
        return UNRESTRICTED
    state = scope.setdefault("state", {})
    permissions = guard.admit(scope["headers"], client=scope.get("client"), changes=False, state=state)
    if permissions.scopes.isdisjoint(("predict", "update")):
        permissions.need("predict")
    return permissions


async def _ask_for_upgrade(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a plain HTTP request for the path of a websocket."""
    own_id: str = scope["state"]["request_id"]
    reply = problem_reply(UpgradeRequired("this path is a websocket: connect to it as ws:// or wss://"), own_id)
    reply.headers.update({"Upgrade": "websocket", "Connection": "Upgrade"})
    await reply(scope, receive, send)


async def _deny(error: ServiceError, scope: Scope, send: Send) -> None:
    """Refuse a handshake, with a reason if the server can send one; otherwise it is a bare 403."""
    if _RESPONSE not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": VIOLATION, "reason": error.detail})
        return
    own_id: str = scope["state"]["request_id"]
    fields = {"content-type": PROBLEM, "x-request-id": own_id, **headers_of(error)}
    headers = [(name.lower().encode(), value.encode()) for name, value in fields.items()]
    document = msgspec.json.encode(error.document(own_id))
    await send({"type": f"{_RESPONSE}.start", "status": error.status, "headers": headers})
    await send({"type": f"{_RESPONSE}.body", "body": document})
