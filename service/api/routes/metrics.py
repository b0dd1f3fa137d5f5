"""Live metrics of a learner: now, over time, and as curves."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse

from service.api import schemas
from service.api.overview import LARGE_WINDOW
from service.api.routes.dependencies import READ, Guarded, TheLearner, TheLearnerByThen, problems
from service.api.sse import figures_of
from service.engine import score_threshold

__all__ = ["router"]

router = APIRouter(route_class=Guarded, dependencies=[READ])


@router.get(
    "/learners/{name}/metrics",
    tags=["figures"],
    summary="The live figures",
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
    summary="The figures over time",
    response_model=schemas.History,
    responses=problems(404, 422, 500, 503),
)
async def history(
    learner: TheLearner,
    start: Annotated[
        float | None, Query(alias="from", allow_inf_nan=False, description="of the axis; from the first if absent")
    ] = None,
    stop: Annotated[
        float | None, Query(alias="to", allow_inf_nan=False, description="of the axis; to the last if absent")
    ] = None,
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
    return JSONResponse({"by": axis, **figures.history(start, stop, step, axis)})


@router.get(
    "/learners/{name}/metrics/curves",
    tags=["figures"],
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
    "/learners/{name}/alarms",
    tags=["figures"],
    summary="Drift alarms",
    response_model=schemas.Alarms,
    responses=problems(404, 422, 500, 503),
)
async def alarms(
    learner: TheLearner, since: Annotated[int, Query(ge=0, description="the first number to give")] = 0
) -> JSONResponse:
    """List the detected falls of the AUC and changes in the distribution of served scores, oldest first."""
    figures = learner.view.figures
    return JSONResponse({"counts": figures.alarm_counts, "alarms": figures.alarms(since)})
