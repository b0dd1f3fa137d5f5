"""The events that a group has scored, with what each of its learners said of them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response
from fastapi.responses import JSONResponse

from learners import Problem
from service.api import schemas
from service.api.routes.dependencies import READ, AccessRoute, Explain, KeyPermissions, TheEngine, problems
from service.api.routes.groups import TheGroup
from service.api.routes.served_events import TheQuery, details_for, event_reply
from service.engine import find_group_event, list_group_events
from service.errors import Invalid

__all__ = ["router"]

router = APIRouter(route_class=AccessRoute, dependencies=[READ], tags=["groups"])


@router.get(
    "/groups/{name}/events",
    operation_id="listGroupEvents",
    summary="Scored events, by each learner of the group",
    response_model=schemas.GroupEventList,
    responses=problems(404, 409, 422, 500, 503),
)
async def group_events(
    engine: TheEngine,
    group: TheGroup,
    query: TheQuery,
    learner: Annotated[
        str | None, Query(description="whose events, filters and order; the group's first if absent")
    ] = None,
) -> Response:
    """List events that a learner of the group has scored, beside what the other learners say of them."""
    name = group.config.learners[0] if learner is None else learner
    if name not in group.config.learners:
        detail, expected = f"is {name[:100]!r}; expected a learner of the group", {"enum": [*group.config.learners]}
        problem = Problem("/learner", detail, value=name[:100], expected=expected)
        raise Invalid("the learner is not of this group", [problem])
    async with engine.members(group) as members:
        return await event_reply(await list_group_events(members, name, *query))


@router.get(
    "/groups/{name}/events/{id:path}",
    operation_id="getGroupEvent",
    summary="One scored event, by each learner of the group",
    response_model=schemas.GroupEvent,
    responses=problems(404, 409, 422, 500, 503),
)
async def group_event(
    engine: TheEngine,
    group: TheGroup,
    permissions: KeyPermissions,
    id: Annotated[str, Path(description="of the event")],
    explain: Explain = None,
) -> JSONResponse:
    """Return the event as each learner remembers it; null for one that does not."""
    async with engine.members(group) as members:
        return JSONResponse(await find_group_event(members, id, details_for(permissions, explain)))
