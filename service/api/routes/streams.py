"""Live metrics as server-sent events: of a learner, of all learners, of a group."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import StreamingResponse

from learners import Problem
from service.api.overview import OverviewDocument
from service.api.routes.dependencies import READ, AccessRoute, KeyPermissions, TheEngine, TheLearner, TheName, problems
from service.api.routes.groups import comparison, listed, the_group
from service.api.routes.learners import figures_of_all
from service.api.sse import (
    ALERT_PACE,
    ALL_PACE,
    GROUP_PACE,
    LEARNER_PACE,
    SPREAD_PACE,
    alert_news,
    all_news,
    group_news,
    learner_news,
    opened,
    parsed_id,
)
from service.api.state import app_state
from service.errors import Invalid

__all__ = ["router"]

router = APIRouter(route_class=AccessRoute, dependencies=[READ], default_response_class=StreamingResponse)


def _wrong_id(text: str) -> Invalid:
    detail = f"is {text[:100]!r}; expected the id of an event of this stream"
    return Invalid("cannot resume the stream from this event id", [Problem("/last-event-id", detail)])


def _stream_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {200: {"content": {"text/event-stream": {}}}, **problems(*statuses)}


@router.get(
    "/learners/{name}/metrics/stream",
    tags=["figures"],
    operation_id="streamMetrics",
    summary="The figures as they change",
    responses=_stream_responses(404, 422, 429, 500, 503),
)
async def of_learner(
    request: Request,
    learner: TheLearner,
    permissions: KeyPermissions,
    last_event_id: Annotated[str | None, Header(description="the id of the last event seen, when reconnecting")] = None,
) -> StreamingResponse:
    """Stream the events `figures`, `point`, `alarm`, `reset`, `gone`. A client that reconnects by an id misses nothing.

    The stream ends at most 15 seconds after its key is revoked or expires.
    """
    since = None
    if last_event_id:
        since = parsed_id(last_event_id)
        if since is None:
            raise _wrong_id(last_event_id)
    return opened(app_state(request.scope), learner_news(learner, since), LEARNER_PACE, permissions)


@router.get(
    "/learners/{name}/alerts/stream",
    tags=["events"],
    operation_id="streamAlerts",
    summary="Alerts as they come",
    responses=_stream_responses(404, 409, 422, 429, 500, 503),
)
async def alerts_of_learner(
    request: Request,
    learner: TheLearner,
    permissions: KeyPermissions,
    last_event_id: Annotated[str | None, Header(description="the id of the last alert seen, when reconnecting")] = None,
) -> StreamingResponse:
    """Stream an event `alert` for each event that is scored with an id and called positive, and `gone` at the end.

    A client that reconnects by an id gets the alerts since then that are still remembered. Without an id it gets those
    from now on. The first id comes at once, without an event.
    """
    if learner.learner.config.labels.ranks is not None:
        problem = Problem("/name", "predicts ranks; alerts are of learners of two classes", "conflict")
        raise Invalid("this learner has no alerts", [problem])
    if not last_event_id:
        after = await learner.newest_served()
    elif last_event_id.isascii() and last_event_id.isdecimal() and len(last_event_id) < 17:
        after = min(int(last_event_id), await learner.newest_served())
    else:
        raise _wrong_id(last_event_id)
    return opened(app_state(request.scope), alert_news(learner, after), ALERT_PACE, permissions)


@router.get(
    "/stream",
    tags=["figures"],
    operation_id="streamLearners",
    summary="The figures of all learners, and the groups, as they change",
    responses=_stream_responses(422, 429),
)
async def of_all(
    request: Request,
    engine: TheEngine,
    permissions: KeyPermissions,
    learners: Annotated[bool, Query(description="false: the groups only")] = True,
) -> StreamingResponse:
    """Stream the events `learners`, `changed` and `groups`.

    `learners` has the document of `GET /v1/learners?figures=true`; `changed`, at most once a second, the difference
    since the last event: the new and changed rows of `learners`, the names that are `gone`, and each other member that
    changed. If learners are spread over nodes, it comes at most every two seconds.

    `groups` has the document of `GET /v1/groups?tests=true`, at first and after each change, at most every five
    seconds.
    """
    overview = app_state(request.scope).overview
    pace = SPREAD_PACE if engine.placement.spread else ALL_PACE

    async def learners_document() -> OverviewDocument:
        return await overview.learners_document(permissions, pace, lambda: figures_of_all(request, engine, permissions))

    async def groups() -> bytes:
        return await overview.groups(permissions, pace, lambda: listed(engine, permissions, tests=True))

    news = all_news(learners_document if learners else None, groups)
    return opened(app_state(request.scope), news, pace, permissions)


@router.get(
    "/groups/{name}/compare/stream",
    tags=["groups"],
    operation_id="streamComparison",
    summary="The comparison as it changes",
    responses=_stream_responses(404, 422, 429, 500, 503),
)
async def of_group(
    request: Request, name: TheName, engine: TheEngine, permissions: KeyPermissions
) -> StreamingResponse:
    """Stream the events `comparison` and `gone`.

    `comparison` has the document of `GET /v1/groups/{name}/compare`, at first and after each change, at most every two
    seconds. `gone` reports that the group was deleted.
    """

    async def compared() -> dict[str, Any]:
        return await comparison(name, await the_group(name, engine, permissions), engine)

    await the_group(name, engine, permissions)  # raises if the group is unknown
    return opened(app_state(request.scope), group_news(compared), GROUP_PACE, permissions)
