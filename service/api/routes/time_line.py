"""Alarms, who acknowledged them, and annotations."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from fastapi.responses import JSONResponse

from service.api import schemas
from service.api.list_pages import cut_numbered
from service.api.routes.dependencies import (
    BODY,
    READ,
    UPDATE,
    AccessRoute,
    AfterPage,
    KeyPermissions,
    Limit,
    TheBody,
    TheLearner,
    TheLearnerByThen,
    problems,
)
from service.api.schemas import examples
from service.engine import AcknowledgementBody, AnnotationBody, acknowledge, annotate
from service.wire import decode_settings

__all__ = ["router"]

router = APIRouter(route_class=AccessRoute, tags=["alarms"])

Since = Annotated[int, Query(ge=0, description="the first number to give")]


@router.get(
    "/learners/{name}/alarms",
    dependencies=[READ],
    operation_id="listAlarms",
    summary="Drift alarms",
    response_model=schemas.Alarms,
    responses=problems(404, 409, 422, 500, 503),
)
async def list_alarms(
    learner: TheLearnerByThen, since: Since = 0, limit: Limit = None, cursor: AfterPage = 0
) -> JSONResponse:
    """List the alarms of the AUC, the served scores, positive labels and fields that got worse, oldest first.

    An alarm is open until its figure is back, and may be reopened.
    """
    view = learner.view
    page, end = cut_numbered(view.alarms(max(since, cursor)), limit)
    counts = {"counts": view.figures.alarm_counts, "open": view.open_alarms}
    return JSONResponse({**counts, "alarms": page, "cursor": end})


@router.post(
    "/learners/{name}/alarms/{number}/acknowledge",
    dependencies=[UPDATE],
    operation_id="acknowledgeAlarm",
    summary="Acknowledge an alarm",
    response_model=schemas.Alarm,
    responses=problems(*BODY, 404, 409, 500, 503),
    openapi_extra=schemas.request_body(AcknowledgementBody.schema(), examples.ACKNOWLEDGE),
)
async def acknowledge_alarm(
    learner: TheLearner,
    permissions: KeyPermissions,
    number: Annotated[int, Path(ge=0, lt=2**53, description="of the alarm")],
    body: TheBody,
) -> JSONResponse:
    """Tell everybody that somebody knows of the alarm. The first acknowledgement counts; another gets 409.

    If the alarm is reopened later, it is to be acknowledged again.
    """
    return JSONResponse(await acknowledge(learner, number, decode_settings(body), permissions))


@router.get(
    "/learners/{name}/annotations",
    dependencies=[READ],
    operation_id="listAnnotations",
    summary="Notes and changes on the time line",
    response_model=schemas.Annotations,
    responses=problems(404, 409, 422, 500, 503),
)
async def list_annotations(
    learner: TheLearnerByThen, since: Since = 0, limit: Limit = None, cursor: AfterPage = 0
) -> JSONResponse:
    """List notes of people, changed settings, rollbacks and fits, oldest first: the last 64 of each kind."""
    entries = [entry for entry in learner.view.annotations() if entry["number"] >= max(since, cursor)]
    page, end = cut_numbered(entries, limit)
    return JSONResponse({"annotations": page, "cursor": end})


@router.post(
    "/learners/{name}/annotations",
    dependencies=[UPDATE],
    operation_id="createAnnotation",
    summary="Note something on the time line",
    status_code=201,
    response_model=schemas.Annotation,
    responses=problems(*BODY, 404, 500, 503),
    openapi_extra=schemas.request_body(AnnotationBody.schema(), examples.ANNOTATE),
)
async def create_annotation(learner: TheLearner, permissions: KeyPermissions, body: TheBody) -> JSONResponse:
    """Note a deployment, a campaign, or whatever else explains the figures, at this moment of the learner."""
    return JSONResponse(await annotate(learner, decode_settings(body), permissions), status_code=201)
