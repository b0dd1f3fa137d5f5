"""What the parts of one application share: its engine, guard, bounds of bodies, counters and open connections."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Protocol

from starlette.types import Scope

from service.api.body import Bodies
from service.api.forwarding import Forwarding
from service.api.overview import Overview
from service.auth import Guard, Handshakes
from service.engine import Engine
from service.settings import Settings
from service.telemetry import Access

__all__ = ["AppState", "OpenWebsocket", "app_state"]


class OpenWebsocket(Protocol):
    """A websocket that the server can end."""

    async def leave(self, seconds: float) -> None:
        """Accept no more messages, answer the received ones within so many seconds, and close."""


@dataclass
class AppState:
    """The state of one application. The lifespan sets `engine`, so no request sees the state without it."""

    settings: Settings
    guard: Guard
    access: Access
    bodies: Bodies
    imports: Bodies  # bodies of `/import`, which may be larger
    closing: asyncio.Event  # set once the server shuts down
    forwarding: Forwarding
    handshakes: Handshakes
    overview: Overview = field(default_factory=Overview)
    websockets: set[OpenWebsocket] = field(default_factory=set)
    streams: int = 0  # open streams of server-sent events
    engine: Engine = field(init=False)
    is_open: bool = field(default=False, init=False)  # the engine is set

    def start(self, engine: Engine) -> None:
        """Set the engine, which serves requests from now on."""
        self.engine = self.forwarding.engine = engine
        self.is_open = True

    async def close_websockets(self, seconds: float) -> None:
        """Answer the received messages of all websockets within so many seconds, and close them."""
        if self.websockets:
            await asyncio.wait([asyncio.ensure_future(websocket.leave(seconds)) for websocket in self.websockets])


def app_state(scope: Scope) -> AppState:
    """Return the state of the application that serves a request or websocket."""
    state: AppState = scope["app"].state.shared
    return state
