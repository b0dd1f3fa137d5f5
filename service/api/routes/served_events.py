"""The events that a learner has served, with their labels."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, NamedTuple

import msgspec
from fastapi import APIRouter, Depends, Path, Query, Response
from fastapi.responses import JSONResponse

from service.api import schemas
from service.api.routes.dependencies import (
    ADMIN,
    READ,
    AccessRoute,
    Explain,
    KeyPermissions,
    QueryTime,
    TheLearner,
    TheLearnerByThen,
    problems,
)
from service.auth import Permissions
from service.engine import (
    EventDetails,
    EventFilter,
    EventOrder,
    EventPage,
    EventStatus,
    erase_event,
    find_event,
    list_events,
)

__all__ = ["TheQuery", "details_for", "event_reply", "router"]

router = APIRouter(route_class=AccessRoute, tags=["events"])


class EventQuery(NamedTuple):
    """Which events to list, and how."""

    event_filter: EventFilter
    page: EventPage
    details: EventDetails


async def the_query(
    permissions: KeyPermissions,
    limit: Annotated[int, Query(ge=1, le=1000, description="events at most")] = 50,
    cursor: Annotated[int, Query(ge=0, lt=2**53, description="`cursor` of the page before; 0: the newest")] = 0,
    after: Annotated[
        int, Query(ge=0, lt=2**53, description="`newest` of an earlier page: only events that were scored since")
    ] = 0,
    sort: Annotated[
        EventOrder,
        Query(description="the newest scored first, or the highest scores first of all events looked through"),
    ] = "time",
    status: Annotated[
        EventStatus | None,
        Query(description="`alert`: decided positive, and not labelled yet"),
    ] = None,
    decision: Annotated[int | None, Query(ge=0, le=127, description="0, 1 or the rank")] = None,
    label: Annotated[int | None, Query(ge=0, le=127, description="0, 1 or the rank")] = None,
    start: Annotated[
        QueryTime | None, Query(alias="from", description="the first time: seconds since the epoch, or ISO 8601")
    ] = None,
    stop: Annotated[QueryTime | None, Query(alias="to", description="the time of the end")] = None,
    min_probability: Annotated[float | None, Query(ge=0, le=1, description="when it was scored")] = None,
    q: Annotated[str, Query(description="how the id begins, or `FIELD=VALUE` of the kept features")] = "",
    explain: Explain = None,
    id: Annotated[str | None, Query(description="of the one event to list, whatever characters it has")] = None,
) -> EventQuery:
    """Return the query. Raises `Forbidden` if it needs features that the key does not see."""
    if "=" in q:  # a search of features, which would find nothing without the scope
        permissions.need("events")
    event_filter = EventFilter(status, decision, label, start, stop, min_probability, q, id)
    return EventQuery(event_filter, EventPage(limit, cursor, after, sort), details_for(permissions, explain))


TheQuery = Annotated[EventQuery, Depends(the_query)]


@router.get(
    "/learners/{name}/events",
    dependencies=[READ],
    operation_id="listEvents",
    summary="Scored events with their labels",
    response_model=schemas.EventList,
    responses=problems(404, 409, 422, 500, 503),
)
async def served_events(learner: TheLearnerByThen, query: TheQuery) -> Response:
    """List events that were scored with an id and are remembered; `cursor` leads to those scored before.

    A page looks through at most 10,000 events: it may be short or empty and still have a cursor. Features are shown to
    keys with the scope `events`, if the learner keeps them (`late.keep_features`); only these can filter by them.
    """
    return await event_reply(await list_events(learner, *query))


@router.get(
    "/learners/{name}/events/{id:path}",
    dependencies=[READ],
    operation_id="getEvent",
    summary="One scored event",
    response_model=schemas.EventDocument,
    responses=problems(404, 409, 422, 500, 503),
)
async def served_event(
    learner: TheLearnerByThen,
    permissions: KeyPermissions,
    id: Annotated[str, Path(description="of the event")],
    explain: Explain = None,
) -> JSONResponse:
    """Return the last score of the event, its label if it has one, and what happened to it."""
    return JSONResponse(await find_event(learner, id, details_for(permissions, explain)))


@router.delete(
    "/learners/{name}/events",
    dependencies=[ADMIN],
    operation_id="eraseEventById",
    summary="Erase a scored event whose id is no path",
    response_model=schemas.ErasedEvent,
    responses=problems(404, 422, 500, 503),
)
async def erase_by_id(
    learner: TheLearner, id: Annotated[str, Query(description="of the event, such as `..`")]
) -> JSONResponse:
    """Erase as `DELETE /v1/learners/{name}/events/{id}`: HTTP clients drop `.` and `..` from paths."""
    return JSONResponse(await erase_event(learner, id))


@router.delete(
    "/learners/{name}/events/{id:path}",
    dependencies=[ADMIN],
    operation_id="eraseEvent",
    summary="Erase a scored event",
    response_model=schemas.ErasedEvent,
    responses=problems(404, 422, 500, 503),
)
async def erase(learner: TheLearner, id: Annotated[str, Path(description="of the event")]) -> JSONResponse:
    """Erase what is remembered of an event: id, score, time and features. What was learnt from it stays learnt.

    A label by this id is `unknown` from now on. Records of the log are not rewritten: they age out (see `position`).
    """
    return JSONResponse(await erase_event(learner, id))


async def event_reply(document: dict[str, Any]) -> Response:
    """Return the reply with a page of events, encoded in a thread."""
    return Response(await asyncio.to_thread(_encode, document), media_type="application/json")


def _encode(document: dict[str, Any]) -> bytes:
    """Encode a page event by event, because other threads wait while one of them is encoded: all may have 64 MB."""
    events = b",".join([msgspec.json.encode(event) for event in document["events"]])
    rest = msgspec.json.encode({name: value for name, value in document.items() if name != "events"})
    return b'{"events":[' + events + b"]," + rest[1:]


def details_for(permissions: Permissions, explain: int | None) -> EventDetails:
    """Return what the key may see. Raises `Forbidden` if it may not see explanations."""
    if explain is not None:
        permissions.need("events")
    return EventDetails("events" in permissions.scopes, explain)
