"""What the parts of one application share: its engine, guard, bounds of bodies, counters and open connections."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from starlette.types import Scope

from service.api.body import Bodies
from service.api.overview import Overview
from service.auth import Guard
from service.engine import Engine
from service.settings import Settings
from service.telemetry import Access

if TYPE_CHECKING:  # these read the state themselves
    from service.api.fast_path import InlinePath
    from service.api.forwarding import Forwarding
    from service.api.prometheus import Exposition
    from service.api.websocket import Connections

__all__ = ["AppState", "app_state"]


@dataclass
class AppState:
    """The state of one application. The lifespan sets `engine`, so no request sees the state without it."""

    settings: Settings
    guard: Guard
    access: Access
    bodies: Bodies
    imports: Bodies  # bodies of `/import`, which may be larger
    inline: InlinePath
    exposition: Exposition
    websockets: Connections
    overview: Overview = field(default_factory=Overview)
    closing: asyncio.Event = field(default_factory=asyncio.Event)  # set once the server shuts down
    streams: int = 0  # open streams of server-sent events
    engine: Engine = field(init=False)
    forwarding: Forwarding = field(init=False)


def app_state(scope: Scope) -> AppState:
    """Return the state of the application that serves a request or websocket."""
    state: AppState = scope["app"].state.shared
    return state
