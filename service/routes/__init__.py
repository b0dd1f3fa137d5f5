"""The HTTP interface under /v1. Handlers translate and decide nothing."""

from __future__ import annotations

from fastapi import APIRouter

from service.routes import events, figures, groups, learners, node, streams
from service.routes.common import problems

__all__ = ["router"]

router = APIRouter(prefix="/v1")
for part in (learners, events, figures, groups, streams, node):
    router.include_router(part.router, responses=problems(401, 403, 421, 429))
router.include_router(node.health)
