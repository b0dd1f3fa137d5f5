"""The HTTP interface under /v1. Handlers translate and decide nothing."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.routing import APIRoute

from service.api.routes import events, groups, learners, metrics, node, streams
from service.api.routes.dependencies import Guarded, Needs, Open, TheGrant, problems

__all__ = ["METHODS", "Guarded", "Needs", "Open", "TheGrant", "router"]

METHODS: dict[str, set[str]] = {}  # that a path takes: each of its routes knows its own alone
router = APIRouter(prefix="/v1")
for part in (learners.router, events.router, metrics.router, groups.router, streams.router, node.router, node.health):
    router.include_router(part, responses=None if part is node.health else problems(401, 403, 421, 429))
    for route in part.routes:
        if isinstance(route, APIRoute):
            METHODS.setdefault(f"{router.prefix}{route.path}", set()).update(route.methods or ())
