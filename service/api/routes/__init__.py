"""The HTTP interface under /v1. Handlers translate and decide nothing.

Start with `dependencies`, which every route uses: the learner of a path, and the scope that a key needs.
"""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.routing import APIRoute

from service.api.routes import (
    events,
    group_events,
    groups,
    learners,
    metrics,
    node,
    served_events,
    streams,
    thresholds,
    time_line,
)
from service.api.routes.dependencies import AccessRoute, KeyPermissions, PublicAccess, RequiredScope, problems

__all__ = ["METHODS", "SHARED", "AccessRoute", "KeyPermissions", "PublicAccess", "RequiredScope", "router"]

METHODS: dict[str, set[str]] = {}  # that a path takes: each of its routes knows its own alone
router = APIRouter(prefix="/v1")
for part in (
    learners.router,
    events.router,
    served_events.router,
    metrics.router,
    time_line.router,
    thresholds.router,
    groups.router,
    group_events.router,
    streams.router,
    node.router,
    node.health,
):
    router.include_router(part, responses=None if part is node.health else problems(401, 403, 421, 429))
    for route in part.routes:
        if isinstance(route, APIRoute):
            METHODS.setdefault(f"{router.prefix}{route.path}", set()).update(route.methods or ())

# All applications of a process share these routes, because FastAPI takes some 50 ms to resolve their dependencies.
SHARED = APIRouter()
SHARED.include_router(router)
