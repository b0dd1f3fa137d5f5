"""Updates, predictions and labels: the entries of the OpenAPI document.

The fast path answers these requests before the router sees them. The entries also let the router refuse other methods
with the methods that the path takes. They have parameters and no handlers.
"""

from dataclasses import dataclass
from inspect import cleandoc

from fastapi import APIRouter

from service.api import schemas
from service.api.routes.dependencies import BODY, PREDICT, UPDATE, AccessRoute, AtLeast, Explain, Name, problems
from service.api.schemas import bodies, examples, operation_body, operation_reply

__all__ = ["router"]

router = APIRouter(route_class=AccessRoute)


@dataclass
class LearnerParameters:
    """Parameters of an update, and of labels."""

    name: Name


@dataclass
class PredictParameters(LearnerParameters):
    """Parameters of a predict."""

    explain: Explain = None
    at_least: AtLeast = None


_LEARNT = operation_reply(bodies.ColumnarLearnt, bodies.LearntProgressLine, bodies.LearntLines)


router.add_api_route(
    "/learners/{name}/update",
    endpoint=LearnerParameters,
    methods=["POST"],
    name="update",
    operation_id="updateEvents",
    description=cleandoc("""
        Score each event, then learn from it, in order. A 200 means that all are in the log: they survive a crash.

        An event may carry no features but the id of one that was served: then it is a label that comes late, as for
        `/labels`. An id that was learnt before with another label is a correction.
    """),
    dependencies=[UPDATE],
    tags=["events"],
    summary="Learn labelled events",
    response_model=schemas.UpdateReply | schemas.OrdinalUpdateReply,
    responses=_LEARNT | problems(*BODY, 404, 406, 409, 500, 503),
    openapi_extra=operation_body(
        schemas.UpdateBody,
        examples.UPDATE,
        bodies.ColumnarUpdate,
        schemas.LabelledEvent,
        examples.UPDATE_SHOWN,
    ),
)


router.add_api_route(
    "/learners/{name}/labels",
    endpoint=LearnerParameters,
    methods=["POST"],
    name="labels",
    operation_id="labelEvents",
    description=cleandoc("""
        Learn from what was served, in the order of the labels; the figures count the score that was served.
    """),
    dependencies=[UPDATE],
    tags=["events"],
    summary="Label events that were served, by id",
    response_model=schemas.UpdateReply | schemas.OrdinalUpdateReply,
    responses=_LEARNT | problems(*BODY, 404, 406, 500, 503),
    openapi_extra=operation_body(
        schemas.LabelsBody,
        examples.LABELS,
        bodies.ColumnarLabels,
        schemas.LateLabel,
        examples.LABELS_SHOWN,
    ),
)


router.add_api_route(
    "/learners/{name}/predict",
    endpoint=PredictParameters,
    methods=["POST"],
    name="predict",
    operation_id="predictEvents",
    description=cleandoc("""
        Score each event; waits for no learning but that up to `at_least`.

        An event with an id is remembered: its label may come weeks later.
    """),
    dependencies=[PREDICT],
    tags=["events"],
    summary="Score events",
    response_model=schemas.PredictReply | schemas.OrdinalPredictReply,
    responses=operation_reply(bodies.ColumnarScores, schemas.Prediction, bodies.ScoredLines)
    | problems(*BODY, 404, 406, 409, 500, 503),
    openapi_extra=operation_body(
        schemas.PredictBody,
        examples.PREDICT,
        bodies.ColumnarEvents,
        schemas.Event,
        examples.PREDICT_SHOWN,
    ),
)
