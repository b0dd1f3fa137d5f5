"""Replies that a test gives to the page in place of the service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from playwright.async_api import Route

__all__ = ["key", "replying"]


def key(name: str | None, *scopes: str, learners: str | None = None) -> dict[str, Any]:
    """Return a reply of `GET /v1/key`."""
    return {"name": name, "scopes": list(scopes), "learners": learners}


def replying(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Callable[[Route], Awaitable[None]]:
    """Answers every request with a JSON body."""

    async def answer(route: Route) -> None:
        await route.fulfill(status=status, json=body, headers=headers)

    return answer
