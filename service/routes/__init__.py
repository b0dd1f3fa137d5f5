"""The HTTP interface under /v1. Handlers translate and decide nothing."""

from __future__ import annotations

from fastapi import APIRouter, Depends

from service.routes import events, figures, groups, learners, node
from service.routes.common import known_parameters

__all__ = ["router"]

router = APIRouter(prefix="/v1", dependencies=[Depends(known_parameters)])
for part in (learners, events, figures, groups, node):
    router.include_router(part.router)
