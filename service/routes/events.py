"""Events: learn labelled ones, score others, take labels that come late."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from learners.explain import MAX_FEATURES
from service import columnar_schemas, examples, schemas
from service.columnar_schemas import hot_body, hot_reply
from service.hosted import Hosted
from service.hot import Operation, answer
from service.ndjson import NDJSON, replies
from service.negotiation import negotiated
from service.routes.common import BODY, TheLearner, body_of, pieces_of, problems

__all__ = ["router"]

router = APIRouter()


async def _answered(request: Request, learner: Hosted, operation: Operation, explain: int | None = None) -> Response:
    """The reply to a body of any coding, in the one that the client accepts."""
    read, write = negotiated(request.headers.get("content-type", ""), request.headers.get("accept", ""))
    if read is not NDJSON:
        async with body_of(request) as body:
            return Response(await answer(learner, operation, body, read, write, explain), media_type=write.media_type)
    request_id = request.scope.get("state", {}).get("request_id", "")
    lines = replies(learner, operation, pieces_of(request, None), request.app.state.buffered, explain, request_id)
    return _Lines(await anext(lines), lines, write.media_type)  # what is refused from the start has its own status


class _Lines(Response):
    """A reply that goes out while the request's body still comes in.

    Starlette's own streaming response would look for the client's hanging up among the pieces of the body, and lose
    them; here those who read the body find it.
    """

    def __init__(self, first: bytes, rest: AsyncIterator[bytes], media_type: str) -> None:
        super().__init__(media_type=media_type)
        del self.headers["content-length"]
        self._first, self._rest = first, rest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - see above
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self._first, "more_body": True})
        try:
            async for line in self._rest:
                await send({"type": "http.response.body", "body": line, "more_body": True})
        except ClientDisconnect:  # nobody is there to be told; what was answered stands
            return
        await send({"type": "http.response.body", "body": b""})


@router.post(
    "/learners/{name}/update",
    tags=["events"],
    summary="Learn labelled events",
    response_model=schemas.UpdateReply | schemas.OrdinalUpdateReply,
    responses=hot_reply(columnar_schemas.ColumnarLearnt, columnar_schemas.Taken)
    | problems(*BODY, 404, 406, 409, 500, 503),
    openapi_extra=hot_body(schemas.UpdateBody, examples.UPDATE, columnar_schemas.ColumnarUpdate, schemas.LabelledEvent),
)
async def update(request: Request, learner: TheLearner) -> Response:
    """Score each event, then learn from it, in order. A 200 means that all are in the log: they survive a crash.

    An event may carry no features but the id of one that was served: then it is a label that comes late, as for
    `/labels`. An id that was learnt before with another label is a correction.
    """
    return await _answered(request, learner, "update")


@router.post(
    "/learners/{name}/labels",
    tags=["events"],
    summary="Label events that were served, by id",
    response_model=schemas.UpdateReply | schemas.OrdinalUpdateReply,
    responses=hot_reply(columnar_schemas.ColumnarLearnt, columnar_schemas.Taken) | problems(*BODY, 404, 406, 500, 503),
    openapi_extra=hot_body(schemas.LabelsBody, examples.LABELS, columnar_schemas.ColumnarLabels, schemas.LateLabel),
)
async def labels(request: Request, learner: TheLearner) -> Response:
    """Learn from what was served, in the order of the labels; the figures count the score that was served."""
    return await _answered(request, learner, "labels")


@router.post(
    "/learners/{name}/predict",
    tags=["events"],
    summary="Score events",
    response_model=schemas.PredictReply | schemas.OrdinalPredictReply,
    responses=hot_reply(columnar_schemas.ColumnarScores, schemas.Prediction) | problems(*BODY, 404, 406, 500, 503),
    openapi_extra=hot_body(schemas.PredictBody, examples.PREDICT, columnar_schemas.ColumnarEvents, schemas.Event),
)
async def predict(
    request: Request,
    learner: TheLearner,
    explain: Annotated[
        int | None, Query(ge=1, le=MAX_FEATURES, description="give so many largest contributions to each score")
    ] = None,
) -> Response:
    """Score each event; waits for no learning. An event with an id is remembered: its label may come weeks later."""
    return await _answered(request, learner, "predict", explain)
