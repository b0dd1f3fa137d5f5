"""The application in this process, spoken to over ASGI."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from service.api.app import create_app
from service.settings import Settings

__all__ = ["DENSE", "application", "client", "client_of", "events"]

DENSE: dict[str, Any] = {"algorithm": "loam-ada", "features": {"kind": "dense", "dim": 3}, "window": 100}


@asynccontextmanager
async def application(settings: Settings, root: str = "") -> AsyncIterator[tuple[Any, httpx.AsyncClient]]:
    """Start an application; yield it, and a client of its URLs below `root`."""
    app = create_app(settings)
    async with app.router.lifespan_context(app), client_of(app, root) as http:
        yield app, http


def client_of(app: Any, root: str = "") -> httpx.AsyncClient:
    """Return a client of an application in this process."""
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url=f"http://rarestream{root}", timeout=300)


@asynccontextmanager
async def client(store: str = "memory:", **settings: Any) -> AsyncIterator[httpx.AsyncClient]:
    """Start an application and yield a client of it."""
    async with application(Settings(store=store, **settings)) as (_, http):
        yield http


def events(count: int, start: int = 0, *, ids: bool = True) -> list[dict[str, Any]]:
    """Return labelled dense events, the same at every call; one in five is positive."""
    created = []
    for i in range(start, start + count):
        label = int(i % 5 == 0)
        event: dict[str, Any] = {"x": [label + (i * 7 % 11) / 11, (i * 3 % 13) / 13, i % 2], "label": label}
        created.append({"id": f"e{i}", **event} if ids else event)
    return created
