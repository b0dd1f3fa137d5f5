"""Thresholds that are tried on the window before one is set."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query
from fastapi.responses import JSONResponse

from learners import CostChoice
from learners.decisions import Threshold
from service.api import schemas
from service.api.routes.dependencies import BODY, READ, AccessRoute, TheBody, TheLearnerByThen, problems
from service.api.schemas import examples
from service.engine import preview_threshold, threshold_points
from service.wire import decode_settings

__all__ = ["router"]

router = APIRouter(route_class=AccessRoute, dependencies=[READ], tags=["figures"])


async def the_costs(
    false_positive: Annotated[
        float | None,
        Query(gt=0, le=1e12, description="cost of a false alarm; that of the threshold's settings if absent"),
    ] = None,
    false_negative: Annotated[
        float | None, Query(gt=0, le=1e12, description="cost of a missed positive; likewise")
    ] = None,
) -> CostChoice:
    """Return the costs of the query."""
    return CostChoice(false_positive, false_negative)


TheCosts = Annotated[CostChoice, Depends(the_costs)]


@router.get(
    "/learners/{name}/thresholds",
    operation_id="getThresholds",
    summary="Figures at other thresholds",
    response_model=schemas.ThresholdPoints,
    responses=problems(404, 409, 422, 500, 503),
)
async def thresholds(
    learner: TheLearnerByThen,
    costs: TheCosts,
    points: Annotated[int, Query(ge=2, le=1000, description="thresholds at most")] = 50,
) -> JSONResponse:
    """Return precision, recall, alerts per day and cost at thresholds from no alert to all, over the window."""
    return JSONResponse(await threshold_points(learner, points, costs))


@router.post(
    "/learners/{name}/thresholds/preview",
    operation_id="previewThreshold",
    summary="What another objective would decide",
    response_model=schemas.ThresholdPreview,
    responses=problems(*BODY, 404, 409, 500, 503),
    openapi_extra=schemas.request_body(Threshold.schema(), examples.PREVIEW),
)
async def preview(learner: TheLearnerByThen, costs: TheCosts, body: TheBody) -> JSONResponse:
    """Return what these settings of the threshold would choose now and would have decided over the window.

    The body is the `threshold` of a PATCH. Nothing is changed.
    """
    return JSONResponse(await preview_threshold(learner, decode_settings(body), costs))
