"""Live metrics of a learner: now, over time, and as curves."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse

from learners import Problem
from rarestream.values import parse_time
from service.api import schemas
from service.api.routes.dependencies import READ, AccessRoute, QueryTime, TheLearner, TheLearnerByThen, problems
from service.api.sse import figures_of
from service.engine import LARGE_WINDOW, score_threshold, segment_metrics
from service.errors import Invalid

__all__ = ["router"]

router = APIRouter(route_class=AccessRoute, dependencies=[READ])


@router.get(
    "/learners/{name}/metrics",
    tags=["figures"],
    operation_id="getMetrics",
    summary="The live metrics",
    response_model=schemas.Metrics | schemas.OrdinalMetrics,
    responses=problems(404, 409, 422, 500, 503),
)
async def metrics(learner: TheLearnerByThen) -> JSONResponse:
    """Return the metrics of the window and since the start; `undefined` has the reasons of null values."""
    if learner.learner.config.window > LARGE_WINDOW:
        figures = learner.view.figures.frozen()
        await asyncio.to_thread(figures.as_json)  # computed once, then cached
        return JSONResponse(figures_of(learner, figures.as_json()))
    return JSONResponse(figures_of(learner))


@router.get(
    "/learners/{name}/metrics/history",
    tags=["figures"],
    operation_id="getMetricsHistory",
    summary="The figures over time",
    response_model=schemas.History,
    responses=problems(404, 422, 500, 503),
)
async def history(
    learner: TheLearner,
    request: Request,
    start: Annotated[
        QueryTime | None,
        Query(alias="from", description="of the axis, of the clock also as ISO 8601; from the first if absent"),
    ] = None,
    stop: Annotated[QueryTime | None, Query(alias="to", description="likewise; to the last if absent")] = None,
    step: Annotated[
        float | None, Query(gt=0, allow_inf_nan=False, description="give one point for each so much of the axis")
    ] = None,
    by: Annotated[
        Literal["clock", "events"] | None,
        Query(description="the axis: seconds since the epoch, or labelled events; the clock where it is known"),
    ] = None,
) -> JSONResponse:
    """Return the metrics of the window and since the start at regular numbers of events, sparser with age."""
    figures = learner.view.figures
    axis: Literal["clock", "events"] = by or ("events" if figures.clock != figures.clock else "clock")
    if axis == "events":
        mismatches = [
            Problem(f"/{name}", "is a time; the axis counts labelled events", "conflict")
            for name in ("from", "to")
            if parse_time(request.query_params.get(name, "")) is not None
        ]
        if mismatches:
            raise Invalid("the range does not fit the axis", mismatches)
    return JSONResponse({"by": axis, **figures.history(start, stop, step, axis)})


@router.get(
    "/learners/{name}/metrics/curves",
    tags=["figures"],
    operation_id="getCurves",
    summary="ROC, precision-recall, histogram, reliability, confusion",
    response_model=dict[str, Any],
    responses=problems(404, 422, 500, 503),
)
async def curves(
    learner: TheLearner,
    points: Annotated[int, Query(ge=2, le=2000, description="of each curve at most")] = 200,
) -> JSONResponse:
    """Return curves of the window and the present alert score; for an ordinal learner the confusion matrix."""
    figures = learner.view.figures.frozen()
    document = await asyncio.to_thread(figures.curves, points)
    if "histogram" in document:  # two classes
        decides = learner.view.threshold is not None
        edges = document["histogram"]["edges"]
        document["score_threshold"] = score_threshold(learner.view.scorer, edges) if decides else None
    return JSONResponse(document)


@router.get(
    "/learners/{name}/segments",
    tags=["figures"],
    operation_id="getSegments",
    summary="The metrics of each value of a field",
    response_model=schemas.Segments,
    responses=problems(404, 409, 422, 500, 503),
)
async def segments(
    learner: TheLearnerByThen,
    by: Annotated[str, Query(description="a field of the setting `figures.segments`")],
    limit: Annotated[int, Query(ge=1, le=64, description="values at most, the largest first")] = 20,
    positives: Annotated[
        int, Query(ge=1, le=1_000_000, description="AUC, precision and label rate need so many positives")
    ] = 10,
) -> JSONResponse:
    """Return AUC, precision, alert rate and label rate of each value of a field, over the window."""
    return JSONResponse(await segment_metrics(learner, by, limit, positives))
