"""The HTTP interface under /v1. Handlers translate and decide nothing."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Path, Request, Response
from fastapi.responses import JSONResponse

from learners import algorithms
from learners.calibration import Calibration
from learners.catalogue import describe
from learners.config import KINDS, Config, Whole
from learners.embedding import Embedding
from learners.parameters import Problem, Refused
from learners.scaling import Scaling
from learners.threshold import Threshold
from service import examples, schemas
from service.engine import Engine
from service.errors import Invalid, QueueFull, TooLarge, TooSlow, WrongType
from service.hosted import Hosted
from service.wire import decode_events, decode_json, decode_update, encode_learnt, encode_scores

__all__ = ["router"]


async def the_engine(request: Request) -> Engine:
    """The engine of this application."""
    engine: Engine = request.app.state.engine
    return engine


TheEngine = Annotated[Engine, Depends(the_engine)]
_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
Name = Annotated[
    str,
    Path(
        json_schema_extra={"pattern": f"^{_PATTERN}$"},
        description="1 to 100 of letters, digits, '.', '_', '-'; begins with a letter or digit",
    ),
]


async def the_name(name: Name) -> str:
    """A name that a learner may have."""
    if not re.fullmatch(_PATTERN, name):
        detail = f"is {name[:120]!r}; expected 1 to 100 of letters, digits, '.', '_', '-', a letter or digit first"
        raise Invalid("the name is not one a learner may have", [Problem("/name", detail)])
    return name


TheName = Annotated[str, Depends(the_name)]


async def the_learner(name: TheName, engine: TheEngine) -> Hosted:
    """The learner of the path; 404 where there is none."""
    return engine.get(name)


TheLearner = Annotated[Hosted, Depends(the_learner)]


async def the_body(request: Request) -> AsyncIterator[bytes]:
    """The body, within the node's bounds for one and for all that are held until they are answered. JSON only."""
    kind, _, parameters = request.headers.get("content-type", "application/json").lower().partition(";")
    if kind.strip() != "application/json" or ("charset" in parameters and "utf-8" not in parameters):
        raise WrongType(f"the body is {(kind + parameters)[:100]}; expected application/json in UTF-8")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise WrongType("compressed bodies are not read here; send the body as it is")
    settings = request.app.state.settings
    limit = settings.max_body_bytes
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise TooLarge(f"the body has {declared} bytes; at most {limit} are taken: send smaller batches")
    buffered: Buffered = request.app.state.buffered
    parts: list[bytes] = []
    size = 0
    try:
        try:
            async with asyncio.timeout(settings.body_seconds):
                async for part in request.stream():
                    size += len(part)
                    buffered.bytes += len(part)
                    if size > limit:
                        raise TooLarge(f"the body is over {limit} bytes: send smaller batches")
                    if buffered.bytes > settings.max_buffered_bytes and size < buffered.bytes:
                        raise QueueFull("this node holds as many bytes of requests as it may; try again in a moment")
                    parts.append(part)
        except TimeoutError:
            raise TooSlow(f"the body was not complete after {settings.body_seconds:g} s") from None
        body = b"".join(parts)
        parts.clear()  # held until the answer otherwise, beside the body itself
        yield body
    finally:
        buffered.bytes -= size


@dataclasses.dataclass
class Buffered:
    """Bytes of request bodies that are read and not answered yet."""

    bytes: int = 0


TheBody = Annotated[bytes, Depends(the_body)]

_PROBLEM = {"content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}}}


def _problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"description": _WORDS[status], **_PROBLEM} for status in statuses}


_WORDS = {
    400: "The body cannot be read",
    404: "No such learner",
    408: "The body did not come in time",
    409: "The name is taken, a limit is reached, or events of the source are missing before these",
    413: "The body is too large",
    415: "The media type is not supported",
    422: "Some values are refused; each is listed, and nothing was changed",
    429: "The queue is full; nothing was taken",
    500: "Stored data cannot be read back",
    503: "The log cannot be written just now; the outcome is unknown, so repeat with the same ids",
}
_BODY = (400, 408, 413, 415, 422, 429)

router = APIRouter(prefix="/v1")


def _document(hosted: Hosted) -> dict[str, Any]:
    view = hosted.view
    counts = view.class_counts
    return {
        "name": hosted.name,
        "config": hosted.learner.config.to_json(),
        "position": hosted.position,
        "events": sum(counts.values()),
        "class_counts": counts,
        "ready": view.not_ready is None,
        "not_ready": view.not_ready,
        "fit": None
        if view.fitted_events is None
        else {
            "events": view.fitted_events,
            "running": hosted.fits.running,
            "waiting": hosted.fits.waiting,
            "failed": hosted.fits.failed,
        },
        "columns": view.columns,
        "sources": view.sources,
        "queued_events": hosted.queued_events,
        "snapshot": None if hosted.snapshots.newest is None else hosted.snapshots.newest._asdict(),
        "stale_seconds": hosted.node.stale_seconds,
        "failed": None if hosted.failed is None else hosted.failed.detail,
    }


# Learners


@router.put(
    "/learners/{name}",
    tags=["learners"],
    summary="Create a learner",
    response_model=schemas.LearnerDocument,
    responses={201: {"description": "Created", "model": schemas.LearnerDocument}, **_problems(*_BODY, 409, 500, 503)},
    openapi_extra=schemas.request_body(schemas.LearnerConfig, examples.CREATE),
)
async def create(name: TheName, engine: TheEngine, body: TheBody) -> JSONResponse:
    """Create a learner; 200 where it exists with the same configuration, 409 where it has another."""
    try:
        config = await asyncio.to_thread(Config.of, decode_json(body))
    except Refused as error:
        raise Invalid("the configuration is refused; nothing was created", error.problems) from None
    hosted, new = await engine.create(name, config)
    return JSONResponse(_document(hosted), status_code=201 if new else 200)


@router.get("/learners", tags=["learners"], summary="List the learners", response_model=schemas.LearnerList)
async def index(engine: TheEngine) -> JSONResponse:
    """Every learner of this node, by name, and those of the store that it cannot host."""
    learners = [_document(engine.hosted[name]) for name in sorted(engine.hosted)]
    unavailable = {name: error.detail for name, error in sorted(engine.unavailable.items())}
    return JSONResponse({"learners": learners, "unavailable": unavailable})


@router.get(
    "/learners/{name}",
    tags=["learners"],
    summary="Show a learner",
    response_model=schemas.LearnerDocument,
    responses=_problems(404, 422, 500, 503),
)
async def show(learner: TheLearner) -> JSONResponse:
    """Its configuration, position, class counts and readiness."""
    return JSONResponse(_document(learner))


@router.delete(
    "/learners/{name}",
    tags=["learners"],
    summary="Delete a learner",
    status_code=204,
    responses=_problems(404, 422, 500, 503),
)
async def delete(name: TheName, engine: TheEngine) -> Response:
    """Delete a learner with its log and its snapshots."""
    await engine.delete(name)
    return Response(status_code=204)


# Learning and scoring

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
    responses=_problems(*_BODY, 404, 409, 500, 503),
    openapi_extra=schemas.request_body(schemas.UpdateBody, examples.UPDATE),
)
async def update(learner: TheLearner, body: TheBody) -> Response:
    """Score each event, then learn from it, in order. A 200 means that all are in the log: they survive a crash."""
    batch = await _decoded(decode_update, body, learner)
    learnt = await learner.update(batch)
    if len(body) < _LARGE:
        return Response(encode_learnt(learnt, batch.ids), media_type="application/json")
    return Response(await asyncio.to_thread(encode_learnt, learnt, batch.ids), media_type="application/json")


@router.post(
    "/learners/{name}/predict",
    tags=["events"],
    summary="Score events",
    response_model=schemas.PredictReply | schemas.OrdinalPredictReply,
    responses=_problems(*_BODY, 404, 500, 503),
    openapi_extra=schemas.request_body(schemas.PredictBody, examples.PREDICT),
)
async def predict(learner: TheLearner, body: TheBody) -> Response:
    """Score each event; changes nothing and waits for nothing."""
    events = await _decoded(decode_events, body, learner)
    position = learner.position
    view, scores = await learner.score(events.rows)
    head = {
        "position": position,
        "ready": view.not_ready is None,
        "stale_seconds": learner.node.stale_seconds,
    }
    if len(body) < _LARGE:
        return Response(encode_scores(scores, events.ids, head), media_type="application/json")
    reply = await asyncio.to_thread(encode_scores, scores, events.ids, head)
    return Response(reply, media_type="application/json")


# Figures


@router.get(
    "/learners/{name}/metrics",
    tags=["figures"],
    summary="The live figures",
    response_model=schemas.Metrics | schemas.OrdinalMetrics,
    responses=_problems(404, 422, 500, 503),
)
async def metrics(learner: TheLearner) -> JSONResponse:
    """Over the window and since the start; null figures have their reason under `undefined`."""
    view = learner.view
    head: dict[str, Any] = {"name": learner.name, "position": learner.position}
    if view.scorer.threshold is not None:
        head["threshold"] = view.scorer.threshold
    return JSONResponse({**head, **view.figures.as_json()})


@router.get(
    "/learners/{name}/metrics/history",
    tags=["figures"],
    summary="The figures over time",
    response_model=schemas.History | schemas.OrdinalHistory,
    responses=_problems(404, 422, 500, 503),
)
async def history(learner: TheLearner) -> JSONResponse:
    """A bounded number of points over the whole stream."""
    return JSONResponse(learner.view.figures.history())


@router.get(
    "/learners/{name}/digest",
    tags=["learners"],
    summary="A hash of the state",
    response_model=schemas.Digest,
    responses=_problems(404, 422, 500, 503),
)
async def digest(learner: TheLearner) -> dict[str, Any]:
    """The position and a hash of the whole state there."""
    position, value = await learner.digest()
    return {"position": position, "digest": value}


# Snapshots


@router.get(
    "/learners/{name}/snapshots",
    tags=["snapshots"],
    summary="List the snapshots",
    response_model=schemas.SnapshotList,
    responses=_problems(404, 422, 500, 503),
)
async def snapshots(learner: TheLearner, engine: TheEngine) -> dict[str, Any]:
    """The retained snapshots, newest first."""
    found = await engine.node.reached(engine.node.store.snapshots(learner.name, learner.birth))
    return {"snapshots": [one._asdict() for one in found]}


@router.post(
    "/learners/{name}/snapshots",
    tags=["snapshots"],
    summary="Take a snapshot",
    status_code=201,
    response_model=schemas.SnapshotDocument,
    responses=_problems(404, 422, 500, 503),
)
async def snapshot(learner: TheLearner) -> dict[str, Any]:
    """Save the state now."""
    return (await learner.save())._asdict()


@router.post(
    "/learners/{name}/snapshots/{position}/restore",
    tags=["snapshots"],
    summary="Roll back to a snapshot",
    response_model=schemas.Restored,
    responses=_problems(404, 422, 500, 503),
)
async def restore(learner: TheLearner, position: Annotated[int, Path(ge=1, le=2**53)]) -> dict[str, Any]:
    """Go on from a snapshot: what was learnt after it is undone, figures and remembered ids included."""
    return {"position": await learner.restore(position)}


# The node


@router.get("/algorithms", tags=["node"], summary="The catalogue", response_model=schemas.Catalogue)
async def catalogue() -> dict[str, Any]:
    """Every algorithm, and the settings of the other parts of a learner, with JSON schemas."""
    parts = {
        "features": {kind: one.schema() for kind, one in KINDS.items()},
        "scaling": Scaling.schema(),
        "embedding": Embedding.schema(),
        "calibration": Calibration.schema(),
        "threshold": Threshold.schema(),
        "learner": Whole.schema(),
    }
    return {"algorithms": [describe(name) for name in algorithms()], "parts": parts}


@router.get("/health/live", tags=["node"], summary="Is the process alive", response_model=schemas.Health)
async def live(engine: TheEngine) -> JSONResponse:
    """200 as long as the event loop runs."""
    return JSONResponse(_health(engine))


@router.get(
    "/health/ready",
    tags=["node"],
    summary="Can it take updates",
    response_model=schemas.Health,
    responses={503: {"description": "Not now", "model": schemas.Health}},
)
async def ready(engine: TheEngine) -> JSONResponse:
    """200 once every learner is here and while the store answers, else 503."""
    health = _health(engine)
    return JSONResponse(health, status_code=200 if health["status"] == "ok" else 503)


def _health(engine: Engine) -> dict[str, Any]:
    status = "ok"
    if engine.node.unreachable is not None:
        status = "store-unavailable"
    elif not engine.ready:
        status = "starting"
    return {
        "status": status,
        "detail": engine.node.unreachable,
        "learners": len(engine.hosted),
        "stale_seconds": engine.node.stale_seconds,
    }
