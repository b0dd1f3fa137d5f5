"""Learners: create, show, list, change, delete, copy; their digests, weights and snapshots."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.responses import JSONResponse

from learners import Config
from service.api import schemas
from service.api.routes.dependencies import (
    ADMIN,
    BODY,
    READ,
    Guarded,
    Name,
    TheBody,
    TheEngine,
    TheGrant,
    TheLearner,
    TheLearnerByThen,
    TheName,
    problems,
    settings_of,
)
from service.api.schemas import examples
from service.api.state import app_state
from service.auth import Grant
from service.engine import MAX_TOP, Engine, copies, copy_weights, rank_weights
from service.engine.replica import LearnerReplica
from service.errors import TooLarge, WrongType
from service.wire import decode_settings, heading_of

__all__ = ["figures_of_all", "router"]

router = APIRouter(route_class=Guarded)


def _document(replica: LearnerReplica) -> dict[str, Any]:
    view = replica.view
    counts = view.class_counts
    return {
        "name": replica.name,
        "config": replica.learner.config.to_json(),
        "position": replica.position,
        "events": sum(counts.values()),
        "class_counts": counts,
        "ready": view.not_ready is None,
        "not_ready": view.not_ready,
        "threshold": view.threshold,
        "fit": None
        if view.fitted_events is None
        else {
            "events": view.fitted_events,
            "running": replica.fits.running,
            "waiting": replica.fits.waiting,
            "failed": replica.fits.failure,
        },
        "columns": view.columns,
        "state_bytes": sum(array.nbytes for array in replica.learner.state().values()),
        "sources": view.sources,
        "queued_events": replica.queued_events,
        "snapshot": None if replica.snapshots.newest is None else replica.snapshots.newest._asdict(),
        "pending": None if replica.served_events.pending is None else replica.served_events.pending._asdict(),
        "stale_seconds": replica.node.stale_seconds,
        "failed": None if replica.failure is None else replica.failure.detail,
    }


@router.put(
    "/learners/{name}",
    dependencies=[ADMIN],
    tags=["learners"],
    summary="Create a learner",
    response_model=schemas.LearnerDocument,
    responses={201: {"description": "Created", "model": schemas.LearnerDocument}, **problems(*BODY, 409, 500, 503)},
    openapi_extra=schemas.request_body(schemas.LearnerConfig, examples.CREATE),
)
async def create(name: Name, engine: TheEngine, grant: TheGrant, body: TheBody) -> JSONResponse:
    """Create a learner; 200 where it exists with the same configuration, 409 where it has another."""
    grant.may_make(name)
    config = await asyncio.to_thread(settings_of, name, body, Config.of, "configuration")
    replica, new = await engine.create(name, config, grant)
    return JSONResponse(_document(replica), status_code=201 if new else 200)


@router.get(
    "/learners",
    dependencies=[READ],
    tags=["learners"],
    summary="List the learners",
    response_model=schemas.LearnerList | schemas.LearnerFigureList,
    responses=problems(422),
)
async def index(
    request: Request,
    engine: TheEngine,
    grant: TheGrant,
    figures: Annotated[bool, Query(description="give each learner's small live figures, not its settings")] = False,
) -> Response:
    """Every learner, by name: those in memory, those swapped out to the store, those that cannot be hosted.

    Where learners are spread over nodes, those that others host are as these tell them. With a key for some learners
    only, it is these.
    """
    if figures:
        told = await figures_of_all(request, engine, grant)
        return Response(msgspec.json.encode(told), media_type="application/json")
    forwarding = app_state(request.scope).forwarding
    others = await forwarding.gathered(request, "/v1/learners", grant)
    learners = [_document(engine.replicas[name]) for name in sorted(filter(grant.sees, engine.replicas))]
    left_out = {name: why for name, why in engine.unavailable(groups=False).items() if grant.sees(name)}
    own = {"learners": learners, "asleep": sorted(filter(grant.sees, engine.evicted)), "unavailable": left_out}
    return JSONResponse(_together(own, others))


async def figures_of_all(request: Request, engine: Engine, grant: Grant) -> dict[str, Any]:
    """The document `LearnerFigureList`, of every node's learners."""
    forwarding = app_state(request.scope).forwarding
    overview = app_state(request.scope).overview
    others = await forwarding.gathered(request, "/v1/learners?figures=true", grant)
    own = await overview.document(engine, grant)
    return {**_together(own, others), "creating": _in_creation(own, others), "loaded": own["loaded"]}


def _together(own: dict[str, Any], others: list[dict[str, Any]]) -> dict[str, Any]:
    """What nodes tell of the same learners, each once: of those in memory at several as the first tells."""
    found = {one["name"]: one for told in (*reversed(others), own) for one in told["learners"]}
    unavailable = {name: why for told in (*reversed(others), own) for name, why in told["unavailable"].items()}
    asleep = {name for told in (own, *others) for name in told["asleep"]} - found.keys()
    return {
        "learners": [found[name] for name in sorted(found)],
        "asleep": sorted(asleep),
        "unavailable": {name: unavailable[name] for name in sorted(unavailable.keys() - found.keys())},
    }


def _in_creation(own: dict[str, Any], others: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What nodes are creating, each learner once, and none that another node has already."""
    there = {one["name"] for told in (own, *others) for one in told["learners"]}
    # a node of the release before tells of none
    found = {one["name"]: one for told in (*reversed(others), own) for one in told.get("creating", [])}
    return [one for name, one in found.items() if name not in there]


@router.get(
    "/learners/{name}",
    dependencies=[READ],
    tags=["learners"],
    summary="Show a learner",
    response_model=schemas.LearnerDocument,
    responses=problems(404, 409, 422, 500, 503),
)
async def show(learner: TheLearnerByThen) -> JSONResponse:
    """Its configuration, position, class counts and readiness."""
    return JSONResponse(_document(learner))


@router.patch(
    "/learners/{name}",
    dependencies=[ADMIN],
    tags=["learners"],
    summary="Change settings",
    response_model=schemas.LearnerDocument,
    responses=problems(*BODY, 404, 500, 503),
    openapi_extra=schemas.request_body(schemas.LearnerChange, examples.CHANGE),
)
async def change(learner: TheLearner, grant: TheGrant, body: TheBody) -> JSONResponse:
    """Change the threshold's objective, the figures' settings or what is done about late labels.

    What was learnt stays: the model, the calibration, the figures, and all that any objective's threshold follows from.
    """
    await learner.change(decode_settings(body), grant)
    return JSONResponse(_document(learner))


@router.delete(
    "/learners/{name}",
    dependencies=[ADMIN],
    tags=["learners"],
    summary="Delete a learner",
    status_code=204,
    responses=problems(404, 422, 500, 503),
)
async def delete(name: TheName, engine: TheEngine, grant: TheGrant) -> Response:
    """Delete a learner with its log and its snapshots."""
    grant.find(name)
    await engine.delete(name)
    return Response(status_code=204)


@router.get(
    "/learners/{name}/digest",
    dependencies=[READ],
    tags=["learners"],
    summary="A hash of the state",
    response_model=schemas.Digest,
    responses=problems(404, 409, 422, 500, 503),
)
async def digest(learner: TheLearnerByThen) -> dict[str, Any]:
    """The position and a hash of the whole state there."""
    position, value = await learner.log.digest()
    return {"position": position, "digest": value}


@router.get(
    "/learners/{name}/weights",
    dependencies=[READ],
    tags=["learners"],
    summary="The largest weights",
    response_model=schemas.Weights,
    responses=problems(404, 409, 422, 500, 503),
)
async def weights(
    learner: TheLearnerByThen, top: Annotated[int, Query(ge=1, le=MAX_TOP, description="weights to give at most")] = 20
) -> JSONResponse:
    """What a linear learner scores by, the largest absolute weight first.

    Weights are of the features as scored, which is after scaling: under standard scaling, what the score moves by for
    one standard deviation. Names of hashed features and of categories are noted on demand: what is `column 4711` now
    has its name in the next answer, once this node has met an event that has the feature.
    """
    found = copy_weights(learner.view, learner.position)  # copied here, where nothing moves
    return JSONResponse(await asyncio.to_thread(rank_weights, found, top, learner.feature_names))


# Copies


@router.post(
    "/learners/{name}/clone",
    dependencies=[ADMIN],
    tags=["learners"],
    summary="Make another learner of the same state",
    status_code=201,
    response_model=schemas.LearnerDocument,
    responses=problems(*BODY, 404, 409, 500, 503),
    openapi_extra=schemas.request_body(schemas.CloneBody, examples.CLONE),
)
async def clone(learner: TheLearner, engine: TheEngine, grant: TheGrant, body: TheBody) -> JSONResponse:
    """Begin a new learner with this one's configuration and exact state; from there on it goes its own way.

    The ids that were learnt go along, and stay duplicates. Events that were served and wait for their labels do not:
    a label by id alone goes to the learner that served the event.
    """
    return JSONResponse(_document(await copies.clone(engine, learner, decode_settings(body), grant)), status_code=201)


_FILE: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}


@router.get(
    "/learners/{name}/export",
    dependencies=[ADMIN],
    tags=["learners"],
    summary="The state as a file",
    response_class=Response,
    responses={
        200: {"description": "The file", "content": {copies.MEDIA_TYPE: _FILE}},
        **problems(404, 422, 500, 503),
    },
)
async def export(learner: TheLearner) -> Response:
    """Configuration and state in one file, with a checksum, as it stands; `/import` makes a learner of it, anywhere."""
    position, data = await copies.export_state(learner)
    disposition = f'attachment; filename="{copies.file_name(learner.name, position)}"'
    return Response(data, media_type=copies.MEDIA_TYPE, headers={"content-disposition": disposition})


async def the_file(request: Request, name: Name, grant: TheGrant) -> AsyncIterator[bytes]:
    """The body as it is, within the bounds of the node and the key for imports of that name."""
    grant.may_make(name)
    imports = app_state(request.scope).imports
    heading = heading_of(request.scope["headers"])
    kind = heading.content_type.decode("latin-1").partition(";")[0].strip().lower()
    if kind not in ("", copies.MEDIA_TYPE):
        raise WrongType(f"the body is {kind[:100]}; expected {copies.MEDIA_TYPE}")
    try:
        body = await imports.read(request.receive, request.scope, heading, grant.body_bytes)
    except TooLarge:
        most = app_state(request.scope).settings.max_import_bytes
        what = "the setting max_import_bytes"
        if grant.body_bytes is not None and grant.body_bytes < most:
            most, what = grant.body_bytes, "the key's limit body_bytes"
        raise TooLarge(f"the file is over {most} bytes; {what} bounds it") from None
    try:
        yield body
    finally:
        imports.release(body)


@router.post(
    "/learners/{name}/import",
    dependencies=[ADMIN],
    tags=["learners"],
    summary="Make a learner of an exported file",
    status_code=201,
    response_model=schemas.LearnerDocument,
    responses=problems(*BODY, 409, 500, 503),
    openapi_extra={"requestBody": {"required": True, "content": {copies.MEDIA_TYPE: _FILE}}},
)
async def import_file(
    name: Name, engine: TheEngine, grant: TheGrant, body: Annotated[bytes, Depends(the_file)]
) -> JSONResponse:
    """Begin a learner with the configuration and the state in a file that `/export` gave, of equal digest.

    Everything in the file is checked before anything is created.
    """
    return JSONResponse(_document(await copies.import_state(engine, name, body, grant)), status_code=201)


# Snapshots


@router.get(
    "/learners/{name}/snapshots",
    dependencies=[READ],
    tags=["snapshots"],
    summary="List the snapshots",
    response_model=schemas.SnapshotList,
    responses=problems(404, 422, 500, 503),
)
async def snapshots(learner: TheLearner, engine: TheEngine) -> dict[str, Any]:
    """The retained snapshots, newest first."""
    found = await engine.node.call(engine.node.store.snapshots(learner.name, learner.birth))
    return {"snapshots": [one._asdict() for one in found]}


@router.post(
    "/learners/{name}/snapshots",
    dependencies=[ADMIN],
    tags=["snapshots"],
    summary="Take a snapshot",
    status_code=201,
    response_model=schemas.SnapshotDocument,
    responses=problems(404, 422, 500, 503),
)
async def snapshot(learner: TheLearner) -> dict[str, Any]:
    """Save the state now."""
    return (await learner.snapshots.save())._asdict()


@router.post(
    "/learners/{name}/snapshots/{position}/restore",
    dependencies=[ADMIN],
    tags=["snapshots"],
    summary="Roll back to a snapshot",
    response_model=schemas.Restored,
    responses=problems(404, 422, 500, 503),
)
async def restore(learner: TheLearner, position: Annotated[int, Path(ge=1, le=2**53)]) -> dict[str, Any]:
    """Go on from a snapshot: what was learnt after it is undone, figures and remembered ids included."""
    return {"position": await learner.restore(position)}
