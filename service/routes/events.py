"""Events: learn labelled ones, score others, take labels that come late."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from learners.explain import MAX_FEATURES
from service import examples, schemas
from service.hot import JSON, answer
from service.routes.common import BODY, TheBody, TheLearner, problems

__all__ = ["router"]

router = APIRouter()


@router.post(
    "/learners/{name}/update",
    tags=["events"],
    summary="Learn labelled events",
    response_model=schemas.UpdateReply | schemas.OrdinalUpdateReply,
    responses=problems(*BODY, 404, 409, 500, 503),
    openapi_extra=schemas.request_body(schemas.UpdateBody, examples.UPDATE),
)
async def update(learner: TheLearner, body: TheBody) -> Response:
    """Score each event, then learn from it, in order. A 200 means that all are in the log: they survive a crash.

    An event may carry no features but the id of one that was served: then it is a label that comes late, as for
    `/labels`. An id that was learnt before with another label is a correction.
    """
    return Response(await answer(learner, "update", body, JSON, JSON), media_type=JSON.media_type)


@router.post(
    "/learners/{name}/labels",
    tags=["events"],
    summary="Label events that were served, by id",
    response_model=schemas.UpdateReply | schemas.OrdinalUpdateReply,
    responses=problems(*BODY, 404, 500, 503),
    openapi_extra=schemas.request_body(schemas.LabelsBody, examples.LABELS),
)
async def labels(learner: TheLearner, body: TheBody) -> Response:
    """Learn from what was served, in the order of the labels; the figures count the score that was served."""
    return Response(await answer(learner, "labels", body, JSON, JSON), media_type=JSON.media_type)


@router.post(
    "/learners/{name}/predict",
    tags=["events"],
    summary="Score events",
    response_model=schemas.PredictReply | schemas.OrdinalPredictReply,
    responses=problems(*BODY, 404, 500, 503),
    openapi_extra=schemas.request_body(schemas.PredictBody, examples.PREDICT),
)
async def predict(
    learner: TheLearner,
    body: TheBody,
    explain: Annotated[
        int | None, Query(ge=1, le=MAX_FEATURES, description="give so many largest contributions to each score")
    ] = None,
) -> Response:
    """Score each event; waits for no learning. An event with an id is remembered: its label may come weeks later."""
    return Response(await answer(learner, "predict", body, JSON, JSON, explain), media_type=JSON.media_type)
