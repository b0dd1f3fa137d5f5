"""Live figures as server-sent events: of a learner, of all of them, of a group."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import StreamingResponse

from learners import Problem
from service.api.overview import Shown
from service.api.routes.dependencies import READ, Guarded, TheEngine, TheGrant, TheLearner, TheName, problems
from service.api.routes.groups import comparison, listed, the_group
from service.api.routes.learners import figures_of_all
from service.api.sse import ALL_PACE, GROUP_PACE, LEARNER_PACE, SPREAD_PACE, all_news, group_news, learner_news, opened
from service.api.sse import parsed_id as seen_of
from service.api.state import app_state
from service.errors import Invalid

__all__ = ["router"]

router = APIRouter(route_class=Guarded, dependencies=[READ], default_response_class=StreamingResponse)


def _told(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {200: {"content": {"text/event-stream": {}}}, **problems(*statuses)}


@router.get(
    "/learners/{name}/metrics/stream",
    tags=["figures"],
    summary="The figures as they change",
    responses=_told(404, 422, 429, 500, 503),
)
async def of_learner(
    request: Request,
    learner: TheLearner,
    grant: TheGrant,
    last_event_id: Annotated[str | None, Header(description="the id of the last event seen, when reconnecting")] = None,
) -> StreamingResponse:
    """Server-sent events: `figures`, `point`, `alarm`, `reset`, `gone`. Whoever reconnects by an id misses nothing.

    It ends, at most 15 seconds later, when the key that it was asked for with is revoked or expires.
    """
    since = None
    if last_event_id:
        since = seen_of(last_event_id)
        if since is None:
            detail = f"is {last_event_id[:100]!r}; expected the id of an event of this stream"
            raise Invalid("the stream cannot go on from there", [Problem("/last-event-id", detail)])
    return opened(app_state(request.scope), learner_news(learner, since), LEARNER_PACE, grant)


@router.get(
    "/stream",
    tags=["figures"],
    summary="The figures of all learners, and the groups, as they change",
    responses=_told(422, 429),
)
async def of_all(
    request: Request,
    engine: TheEngine,
    grant: TheGrant,
    learners: Annotated[bool, Query(description="false: the groups only")] = True,
) -> StreamingResponse:
    """Server-sent events: `learners`, what `GET /v1/learners?figures=true` tells, then `changed` with what has changed,
    at most once a second; `groups`, what `GET /v1/groups?tests=true` tells, once and when it has changed, at most once
    in five seconds.

    `changed` has the rows of `learners` that have changed or come, the names that are `gone` from them, and each other
    member of the document that has changed. Where learners are spread over nodes it comes at most once in two seconds.
    """
    overview = app_state(request.scope).overview
    pace = SPREAD_PACE if engine.placement.spread else ALL_PACE

    async def shown() -> Shown:
        return await overview.shown(grant, pace, lambda: figures_of_all(request, engine, grant))

    async def groups() -> bytes:
        return await overview.groups(grant, pace, lambda: listed(engine, grant, tests=True))

    news = all_news(shown if learners else None, groups)
    return opened(app_state(request.scope), news, pace, grant)


@router.get(
    "/groups/{name}/compare/stream",
    tags=["groups"],
    summary="The comparison as it changes",
    responses=_told(404, 422, 429, 500, 503),
)
async def of_group(request: Request, name: TheName, engine: TheEngine, grant: TheGrant) -> StreamingResponse:
    """Server-sent events: `comparison`, what `GET /v1/groups/{name}/compare` tells, once and when it has changed, at
    most once in two seconds; `gone`, when the group was deleted."""

    async def compared() -> dict[str, Any]:
        return await comparison(name, await the_group(name, engine, grant), engine)

    await the_group(name, engine, grant)  # or a refusal
    return opened(app_state(request.scope), group_news(compared), GROUP_PACE, grant)
