"""Events: learn labelled ones, score others, take labels that come late."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, TypeVar

from fastapi import APIRouter, Query, Response

from learners.config import Config
from learners.explain import MAX_FEATURES
from learners.explain import explain as explanations
from learners.parameters import Refused
from service import examples, schemas
from service.errors import Invalid
from service.hosted import Hosted
from service.routes.common import BODY, TheBody, TheLearner, problems
from service.serving import Labelled
from service.wire import decode_events, decode_labels, decode_update, encode_learnt, encode_scores

__all__ = ["router"]

router = APIRouter()

_LARGE = 2**18  # bytes of a body from which on a thread decodes it, so that the others' requests go on
Decoded = TypeVar("Decoded")


async def _decoded(decode: Callable[[bytes, Config], Decoded], body: bytes, learner: Hosted) -> Decoded:
    config = learner.learner.config
    return decode(body, config) if len(body) < _LARGE else await asyncio.to_thread(decode, body, config)


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
    return await _learnt(learner, await _decoded(decode_update, body, learner), body)


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
    return await _learnt(learner, await _decoded(decode_labels, body, learner), body)


async def _learnt(learner: Hosted, events: Labelled, body: bytes) -> Response:
    learnt = await learner.label(events)
    if len(body) < _LARGE:
        return Response(encode_learnt(learnt, events.ids), media_type="application/json")
    return Response(await asyncio.to_thread(encode_learnt, learnt, events.ids), media_type="application/json")


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
    events, carried = await _decoded(decode_events, body, learner)
    explained, at = None, None
    if explain is not None:
        view = replace(
            learner.view, scorer=learner.view.scorer.frozen()
        )  # the sums are those of the very scores that are served
        try:
            explained = await asyncio.to_thread(explanations, view.scorer, carried, explain)
        except Refused as error:
            raise Invalid("the explanation is refused; nothing was served", error.problems) from None
    said = await learner.serving.predict(events, at)
    head = {
        "position": said.position,
        "ready": said.view.not_ready is None,
        "remembered": said.remembered,
        "stale_seconds": learner.node.stale_seconds,
    }
    if len(body) < _LARGE:
        return Response(encode_scores(said.scores, events.ids, head, explained), media_type="application/json")
    reply = await asyncio.to_thread(encode_scores, said.scores, events.ids, head, explained)
    return Response(reply, media_type="application/json")
