"""Events: learn labelled ones, score others, take labels that come late: the routes as they are documented.

These requests never come so far: `edge.py` answers them before the router is asked. The routes stand here for the
OpenAPI document, and so that another method is refused with what is allowed.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from learners import MAX_FEATURES
from service.api import schemas
from service.api.routes.dependencies import BODY, PREDICT, UPDATE, AtLeast, Guarded, Name, problems
from service.api.schemas import bodies, examples, hot_body, hot_reply

__all__ = ["router"]

router = APIRouter(route_class=Guarded)

_ANSWERED = "the edge answers this request before the router is asked"
_LEARNT = hot_reply(bodies.ColumnarLearnt, bodies.Taken, bodies.LearntLines)


@router.post(
    "/learners/{name}/update",
    dependencies=[UPDATE],
    tags=["events"],
    summary="Learn labelled events",
    response_model=schemas.UpdateReply | schemas.OrdinalUpdateReply,
    responses=_LEARNT | problems(*BODY, 404, 406, 409, 500, 503),
    openapi_extra=hot_body(
        schemas.UpdateBody,
        examples.UPDATE,
        bodies.ColumnarUpdate,
        schemas.LabelledEvent,
        examples.UPDATE_SHOWN,
    ),
)
async def update(name: Name) -> Response:
    """Score each event, then learn from it, in order. A 200 means that all are in the log: they survive a crash.

    An event may carry no features but the id of one that was served: then it is a label that comes late, as for
    `/labels`. An id that was learnt before with another label is a correction.
    """
    raise NotImplementedError(_ANSWERED)


@router.post(
    "/learners/{name}/labels",
    dependencies=[UPDATE],
    tags=["events"],
    summary="Label events that were served, by id",
    response_model=schemas.UpdateReply | schemas.OrdinalUpdateReply,
    responses=_LEARNT | problems(*BODY, 404, 406, 500, 503),
    openapi_extra=hot_body(
        schemas.LabelsBody,
        examples.LABELS,
        bodies.ColumnarLabels,
        schemas.LateLabel,
        examples.LABELS_SHOWN,
    ),
)
async def labels(name: Name) -> Response:
    """Learn from what was served, in the order of the labels; the figures count the score that was served."""
    raise NotImplementedError(_ANSWERED)


@router.post(
    "/learners/{name}/predict",
    dependencies=[PREDICT],
    tags=["events"],
    summary="Score events",
    response_model=schemas.PredictReply | schemas.OrdinalPredictReply,
    responses=hot_reply(bodies.ColumnarScores, schemas.Prediction, bodies.ScoredLines)
    | problems(*BODY, 404, 406, 409, 500, 503),
    openapi_extra=hot_body(
        schemas.PredictBody,
        examples.PREDICT,
        bodies.ColumnarEvents,
        schemas.Event,
        examples.PREDICT_SHOWN,
    ),
)
async def predict(
    name: Name,
    explain: Annotated[
        int | None, Query(ge=1, le=MAX_FEATURES, description="give so many largest contributions to each score")
    ] = None,
    at_least: AtLeast = None,
) -> Response:
    """Score each event; waits for no learning but that up to `at_least`.

    An event with an id is remembered: its label may come weeks later."""
    raise NotImplementedError(_ANSWERED)
