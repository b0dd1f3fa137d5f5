"""Routes of learners: create, show, list, change, delete, copy; digests, weights and snapshots."""

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
    """Create a learner; 200 if it exists with the same configuration, 409 if it has another."""
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
    """List every learner by name: those in memory, those evicted to the store, those that cannot be loaded.

    If learners are spread over nodes, the list includes those of other nodes. It has only the learners that the key
    allows.
    """
    if figures:
        document = await figures_of_all(request, engine, grant)
        return Response(msgspec.json.encode(document), media_type="application/json")
    forwarding = app_state(request.scope).forwarding
    others = await forwarding.gathered(request, "/v1/learners", grant)
    learners = [_document(engine.replicas[name]) for name in sorted(filter(grant.sees, engine.replicas))]
    left_out = {name: why for name, why in engine.unavailable(groups=False).items() if grant.sees(name)}
    local = {"learners": learners, "asleep": sorted(filter(grant.sees, engine.evicted)), "unavailable": left_out}
    return JSONResponse(_merge_lists(local, others))


async def figures_of_all(request: Request, engine: Engine, grant: Grant) -> dict[str, Any]:
    """Return the document `LearnerFigureList` of the learners of all nodes."""
    forwarding = app_state(request.scope).forwarding
    overview = app_state(request.scope).overview
    others = await forwarding.gathered(request, "/v1/learners?figures=true", grant)
    local = await overview.document(engine, grant)
    return {**_merge_lists(local, others), "creating": _merge_creations(local, others), "loaded": local["loaded"]}


def _merge_lists(local: dict[str, Any], others: list[dict[str, Any]]) -> dict[str, Any]:
    """Merge the lists of nodes, each learner once; this node's row has precedence, then the first other node's."""
    lists = (*reversed(others), local)
    rows = {row["name"]: row for each in lists for row in each["learners"]}
    unavailable = {name: why for each in lists for name, why in each["unavailable"].items()}
    asleep = {name for each in lists for name in each["asleep"]} - rows.keys()
    return {
        "learners": [rows[name] for name in sorted(rows)],
        "asleep": sorted(asleep),
        "unavailable": {name: unavailable[name] for name in sorted(unavailable.keys() - rows.keys())},
    }


def _merge_creations(local: dict[str, Any], others: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Merge the learners in creation of all nodes, without those that some node has already."""
    lists = (*reversed(others), local)
    existing = {row["name"] for each in lists for row in each["learners"]}
    # a node of the release before has no such list
    creations = {item["name"]: item for each in lists for item in each.get("creating", [])}
    return [item for name, item in creations.items() if name not in existing]


@router.get(
    "/learners/{name}",
    dependencies=[READ],
    tags=["learners"],
    summary="Show a learner",
    response_model=schemas.LearnerDocument,
    responses=problems(404, 409, 422, 500, 503),
)
async def show(learner: TheLearnerByThen) -> JSONResponse:
    """Show its configuration, position, class counts and readiness."""
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
    """Change the threshold's objective, the settings of the metrics, or the treatment of late labels.

    The learner keeps its model, its calibration, its metrics, and the data behind the thresholds of all objectives.
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
    """Return the position and a hash of the whole state there."""
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
    """Return the weights of a linear learner, the largest absolute value first.

    Weights are those of the scaled features: under standard scaling, the change of the score per standard deviation.
    The node collects names of hashed features and categories only after the first request for weights. `column 4711`
    gets its name once an event with that feature arrives.
    """
    copied = copy_weights(learner.view, learner.position)  # on the event loop, where the view does not change
    return JSONResponse(await asyncio.to_thread(rank_weights, copied, top, learner.feature_names))


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
    """Create a learner with the configuration and the exact state of this one; after that the two are independent.

    The copy remembers the learnt ids, so repeats are duplicates there, too. It does not get the served events that wait
    for labels: send a label by id to the learner that served the event.
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
    """Return the configuration and the present state as a file with a checksum; `/import` creates a learner from it."""
    position, data = await copies.export_state(learner)
    disposition = f'attachment; filename="{copies.file_name(learner.name, position)}"'
    return Response(data, media_type=copies.MEDIA_TYPE, headers={"content-disposition": disposition})


async def the_file(request: Request, name: Name, grant: TheGrant) -> AsyncIterator[bytes]:
    """Read an import's body within the limits of the node and the key."""
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
    """Create a learner with the configuration and the state of a file from `/export`; the digests are equal.

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
    """List the retained snapshots, newest first."""
    retained = await engine.node.call(engine.node.store.snapshots(learner.name, learner.birth))
    return {"snapshots": [snapshot._asdict() for snapshot in retained]}


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
    """Return to a snapshot; everything learnt after it is undone, including metrics and remembered ids."""
    return {"position": await learner.restore(position)}
