"""Routes of learners: create, show, list, change, delete, copy; digests, weights and snapshots."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any
from urllib.parse import urlencode

import msgspec
from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.responses import JSONResponse

from learners import Config
from service.api import schemas
from service.api.list_pages import WHOLE, ListPage, cut_list
from service.api.routes.dependencies import (
    ADMIN,
    BODY,
    READ,
    AccessRoute,
    AfterPage,
    KeyPermissions,
    Limit,
    Name,
    TheBody,
    TheEngine,
    TheLearner,
    TheLearnerByThen,
    TheName,
    ThePage,
    problems,
    settings_of,
)
from service.api.schemas import examples
from service.api.state import app_state
from service.auth import Permissions
from service.engine import MAX_TOP, Engine, copies, copy_weights, describe_fields, rank_weights
from service.engine.replica import LearnerReplica
from service.errors import TooLarge, WrongType
from service.storage import SnapshotInfo
from service.wire import decode_settings, heading_of, iso_time

__all__ = ["figures_of_all", "router"]

router = APIRouter(route_class=AccessRoute)


def _document(replica: LearnerReplica) -> dict[str, Any]:
    view = replica.view
    counts, budget = view.class_counts, view.alert_budget
    return {
        "name": replica.name,
        "birth": replica.birth.hex(),
        "config": replica.learner.config.to_json(),
        "warnings": [warning.to_json() for warning in replica.learner.config.warnings()],
        "position": replica.position,
        "events": sum(counts.values()),
        "class_counts": counts,
        "ready": view.not_ready is None,
        "not_ready": view.not_ready,
        "threshold": view.threshold,
        "alert_budget": None if budget is None else {**budget, "resets_iso": iso_time(budget["resets"])},
        "fit": None
        if view.fitted_events is None
        else {
            "events": view.fitted_events,
            "running": replica.fits.running,
            "waiting": replica.fits.waiting,
            "failed": replica.fits.failure,
        },
        "members": view.members,
        "columns": view.columns,
        "absent_fields": view.absent_fields,
        "state_bytes": sum(array.nbytes for array in replica.learner.state().values()),
        "sources": view.sources,
        "queued_events": replica.queued_events,
        "snapshot": None if replica.snapshots.newest is None else _snapshot(replica.snapshots.newest),
        "pending": None if replica.served_events.pending is None else replica.served_events.pending._asdict(),
        "stale_seconds": replica.node.stale_seconds,
        "failed": None if replica.failure is None else replica.failure.detail,
    }


def _snapshot(info: SnapshotInfo) -> dict[str, Any]:
    return {**info._asdict(), "time_iso": iso_time(info.time)}


def _read_config(values: Any) -> tuple[Config, Config]:
    """Read a configuration as it is meant now, and as an earlier version has stored it. Raises `InvalidInput`."""
    return Config.of(values), Config.of_stored(values)


@router.put(
    "/learners/{name}",
    dependencies=[ADMIN],
    tags=["learners"],
    operation_id="createLearner",
    summary="Create a learner",
    response_model=schemas.LearnerDocument,
    responses={201: {"description": "Created", "model": schemas.LearnerDocument}, **problems(*BODY, 409, 500, 503)},
    openapi_extra=schemas.request_body(schemas.LearnerConfig, examples.CREATE),
)
async def create(name: Name, engine: TheEngine, permissions: KeyPermissions, body: TheBody) -> JSONResponse:
    """Create a learner; 200 if it exists with the same configuration, 409 if it has another."""
    permissions.may_make(name)
    config, earlier = await asyncio.to_thread(settings_of, name, body, _read_config, "configuration")
    replica, new = await engine.create(name, config, permissions, earlier)
    return JSONResponse(_document(replica), status_code=201 if new else 200)


@router.get(
    "/learners",
    dependencies=[READ],
    tags=["learners"],
    operation_id="listLearners",
    summary="List the learners",
    response_model=schemas.LearnerList | schemas.LearnerFigureList,
    responses=problems(422),
)
async def index(
    request: Request,
    engine: TheEngine,
    permissions: KeyPermissions,
    page: ThePage,
    figures: Annotated[bool, Query(description="give each learner's small live metrics, not its settings")] = False,
) -> Response:
    """List every learner by name: those in memory, those evicted to the store, those that cannot be loaded.

    If learners are spread over nodes, the list includes those of other nodes. It has only the learners that the key
    allows. A page has the next names, in whichever of the three they are.
    """
    if figures:
        document = await figures_of_all(request, engine, permissions, page)
        return Response(msgspec.json.encode(document), media_type="application/json")
    others = await _gather_others(request, permissions, page.query)
    unavailable = engine.unavailable(groups=False)
    names = page.names(filter(permissions.sees, {*engine.replicas, *engine.evicted, *unavailable}))
    local = {
        "learners": [_document(engine.replicas[name]) for name in names if name in engine.replicas],
        "asleep": [name for name in names if name in engine.evicted],
        "unavailable": {name: unavailable[name] for name in names if name in unavailable},
    }
    return JSONResponse(page.cut(_merge_lists(local, others), "learners", more=_any_more(others)))


async def figures_of_all(
    request: Request, engine: Engine, permissions: Permissions, page: ListPage = WHOLE
) -> dict[str, Any]:
    """Return the document `LearnerFigureList` of the learners of all nodes, or of a page of them."""
    overview = app_state(request.scope).overview
    others = await _gather_others(request, permissions, {"figures": "true", **page.query})
    local = await overview.document(engine, permissions)
    merged = page.cut(_merge_lists(local, others), "learners", more=_any_more(others))
    creating = _merge_creations(local, others)
    return {**merged, "creating": creating, "loaded": local["loaded"], "trouble": local["trouble"]}


async def _gather_others(request: Request, permissions: Permissions, query: dict[str, str]) -> list[dict[str, Any]]:
    target = f"/v1/learners?{urlencode(query)}" if query else "/v1/learners"
    return await app_state(request.scope).forwarding.gathered(request, target, permissions)


def _any_more(others: list[dict[str, Any]]) -> bool:
    return any(document.get("cursor") for document in others)


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
    operation_id="getLearner",
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
    operation_id="changeLearner",
    summary="Change settings",
    response_model=schemas.LearnerDocument,
    responses=problems(*BODY, 404, 500, 503),
    openapi_extra=schemas.request_body(schemas.LearnerChange, examples.CHANGE),
)
async def change(learner: TheLearner, permissions: KeyPermissions, body: TheBody) -> JSONResponse:
    """Change the threshold's objective, the settings of the metrics, or the treatment of late labels.

    The learner keeps its model, its calibration, its metrics, and the data behind the thresholds of all objectives.
    """
    await learner.change(decode_settings(body), permissions)
    return JSONResponse(_document(learner))


@router.delete(
    "/learners/{name}",
    dependencies=[ADMIN],
    tags=["learners"],
    operation_id="deleteLearner",
    summary="Delete a learner",
    status_code=204,
    responses=problems(404, 422, 500, 503),
)
async def delete(name: TheName, engine: TheEngine, permissions: KeyPermissions) -> Response:
    """Delete a learner with its log and its snapshots."""
    permissions.find(name)
    await engine.delete(name)
    return Response(status_code=204)


@router.get(
    "/learners/{name}/digest",
    dependencies=[READ],
    tags=["learners"],
    operation_id="getDigest",
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
    operation_id="getWeights",
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


@router.get(
    "/learners/{name}/fields",
    dependencies=[READ],
    tags=["learners"],
    operation_id="getFields",
    summary="The fields of named events",
    response_model=schemas.FieldList,
    responses=problems(404, 409, 422, 500, 503),
)
async def fields(learner: TheLearnerByThen, limit: Limit = None, cursor: AfterPage = 0) -> JSONResponse:
    """Return what the learner remembers of each field: its kind, how its values were sent, and what contradicts.

    At most 1,024 fields are remembered beside the declared ones.
    """
    document = describe_fields(learner.view, learner.position)
    page, end = cut_list(document["fields"], limit, cursor)
    return JSONResponse({**document, "fields": page, "cursor": end})


# Copies


@router.post(
    "/learners/{name}/clone",
    dependencies=[ADMIN],
    tags=["learners"],
    operation_id="cloneLearner",
    summary="Make another learner of the same state",
    status_code=201,
    response_model=schemas.LearnerDocument,
    responses=problems(*BODY, 404, 409, 500, 503),
    openapi_extra=schemas.request_body(schemas.CloneBody, examples.CLONE),
)
async def clone(learner: TheLearner, engine: TheEngine, permissions: KeyPermissions, body: TheBody) -> JSONResponse:
    """Create a learner with the configuration and the exact state of this one; after that the two are independent.

    The copy remembers the learnt ids, so repeats are duplicates there, too. It does not get the served events that wait
    for labels: send a label by id to the learner that served the event.
    """
    return JSONResponse(
        _document(await copies.clone(engine, learner, decode_settings(body), permissions)), status_code=201
    )


_FILE: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}


@router.get(
    "/learners/{name}/export",
    dependencies=[ADMIN],
    tags=["learners"],
    operation_id="exportLearner",
    summary="The state as a file",
    response_class=Response,
    responses={
        200: {"description": "The file", "content": {copies.MEDIA_TYPE: _FILE}},
        **problems(404, 422, 500, 503),
    },
)
async def export(learner: TheLearner) -> Response:
    """Return the configuration and the present state as a file with a checksum; `/import` creates a learner from it.

    If a record of the log is damaged, the file has the state before it, and `failed` of the learner says so.
    """
    position, data = await copies.export_state(learner)
    disposition = f'attachment; filename="{copies.file_name(learner.name, position)}"'
    return Response(data, media_type=copies.MEDIA_TYPE, headers={"content-disposition": disposition})


async def the_file(request: Request, name: Name, permissions: KeyPermissions) -> AsyncIterator[bytes]:
    """Read an import's body within the limits of the node and the key."""
    permissions.may_make(name)
    imports = app_state(request.scope).imports
    heading = heading_of(request.scope["headers"])
    kind = heading.content_type.decode("latin-1").partition(";")[0].strip().lower()
    if kind not in ("", copies.MEDIA_TYPE):
        raise WrongType(f"the body is {kind[:100]}; expected {copies.MEDIA_TYPE}")
    try:
        body = await imports.read(request.receive, request.scope, heading, permissions.body_bytes)
    except TooLarge:
        most = app_state(request.scope).settings.max_import_bytes
        what = "the setting max_import_bytes"
        if permissions.body_bytes is not None and permissions.body_bytes < most:
            most, what = permissions.body_bytes, "the key's limit body_bytes"
        raise TooLarge(f"the file is over {most} bytes; {what} bounds it") from None
    try:
        yield body
    finally:
        imports.release(body)


@router.post(
    "/learners/{name}/import",
    dependencies=[ADMIN],
    tags=["learners"],
    operation_id="importLearner",
    summary="Make a learner of an exported file",
    status_code=201,
    response_model=schemas.LearnerDocument,
    responses=problems(*BODY, 409, 500, 503),
    openapi_extra={"requestBody": {"required": True, "content": {copies.MEDIA_TYPE: _FILE}}},
)
async def import_file(
    name: Name, engine: TheEngine, permissions: KeyPermissions, body: Annotated[bytes, Depends(the_file)]
) -> JSONResponse:
    """Create a learner with the configuration and the state of a file from `/export`; the digests are equal.

    Everything in the file is checked before anything is created.
    """
    return JSONResponse(_document(await copies.import_state(engine, name, body, permissions)), status_code=201)


# Snapshots


@router.get(
    "/learners/{name}/snapshots",
    dependencies=[READ],
    tags=["snapshots"],
    operation_id="listSnapshots",
    summary="List the snapshots",
    response_model=schemas.SnapshotList,
    responses=problems(404, 422, 500, 503),
)
async def snapshots(
    learner: TheLearner, engine: TheEngine, limit: Limit = None, cursor: AfterPage = 0
) -> dict[str, Any]:
    """List the retained snapshots, newest first; the cursor is a position."""
    retained = await engine.node.call(engine.node.store.snapshots(learner.name, learner.birth))
    page, end = cut_list([info for info in retained if not cursor or info.position < cursor], limit, 0)
    return {"snapshots": [_snapshot(info) for info in page], "cursor": page[-1].position if end else None}


@router.post(
    "/learners/{name}/snapshots",
    dependencies=[ADMIN],
    tags=["snapshots"],
    operation_id="createSnapshot",
    summary="Take a snapshot",
    status_code=201,
    response_model=schemas.SnapshotDocument,
    responses=problems(404, 422, 500, 503),
)
async def snapshot(learner: TheLearner) -> dict[str, Any]:
    """Save the state now."""
    return _snapshot(await learner.snapshots.save())


@router.post(
    "/learners/{name}/snapshots/{position}/restore",
    dependencies=[ADMIN],
    tags=["snapshots"],
    operation_id="restoreSnapshot",
    summary="Roll back to a snapshot",
    response_model=schemas.RestoreReply,
    responses=problems(404, 422, 500, 503),
)
async def restore(learner: TheLearner, position: Annotated[int, Path(ge=1, le=2**53)]) -> dict[str, Any]:
    """Return to a snapshot; everything learnt after it is undone, including metrics and remembered ids."""
    return {"position": await learner.restore(position)}
