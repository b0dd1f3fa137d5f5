"""Routes of groups: learners that receive the same stream."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Annotated, Any, cast

import msgspec
import numpy as np
from fastapi import APIRouter, Depends, Query, Response
from fastapi.responses import JSONResponse

from learners import GroupConfig
from service.api import schemas
from service.api.list_pages import WHOLE, ListPage
from service.api.operations import Request, Result, admit_by_size, encode, prepare, scored_by
from service.api.routes.dependencies import (
    ADMIN,
    BODY,
    PREDICT,
    READ,
    UPDATE,
    AccessRoute,
    KeyPermissions,
    Name,
    TheBody,
    TheEngine,
    TheName,
    ThePage,
    problems,
    settings_of,
)
from service.api.schemas import examples
from service.auth import Permissions
from service.engine import Engine
from service.engine.replica import GroupReplica, LearnerReplica
from service.errors import Invalid
from service.wire import JSON, Events, Labelled, Operation

__all__ = ["TheGroup", "comparison", "listed", "router", "the_group"]

_STRETCH = 5e-3  # seconds of work on the event loop before a yield

router = APIRouter(route_class=AccessRoute)


async def the_group(name: TheName, engine: TheEngine, permissions: KeyPermissions) -> GroupReplica:
    """Return the group of the path; 404 if it does not exist or the key does not allow it."""
    permissions.find_group(name)
    group = await engine.group(name)
    permissions.find_group(name, group.config.learners)
    return group


TheGroup = Annotated[GroupReplica, Depends(the_group)]


def _document(name: str, group: GroupReplica, *, tests: bool = False) -> dict[str, Any]:
    return {
        "name": name,
        "config": group.config.to_json(),
        "position": group.position,
        "events": int(group.view.counts[0]),
        "failed": None if group.failure is None else group.failure.detail,
        **({"tests": group.tests()} if tests else {}),
    }


@router.put(
    "/groups/{name}",
    dependencies=[ADMIN],
    tags=["groups"],
    operation_id="createGroup",
    summary="Name learners that receive the same stream",
    response_model=schemas.GroupDocument,
    responses={201: {"description": "Created", "model": schemas.GroupDocument}, **problems(*BODY, 409, 500, 503)},
    openapi_extra=schemas.request_body(schemas.GroupBody, examples.GROUP),
)
async def create(name: Name, engine: TheEngine, permissions: KeyPermissions, body: TheBody) -> JSONResponse:
    """Create a group of existing learners; 200 if it exists with the same configuration, 409 with another."""
    permissions.may_make(name)
    config = await asyncio.to_thread(settings_of, name, body, GroupConfig.of, "group")
    group, new = await engine.create_group(name, config, permissions)
    return JSONResponse(_document(name, group), status_code=201 if new else 200)


@router.get(
    "/groups",
    dependencies=[READ],
    tags=["groups"],
    operation_id="listGroups",
    summary="List the groups",
    response_model=schemas.GroupList,
    responses=problems(422),
)
async def index(
    engine: TheEngine,
    permissions: KeyPermissions,
    page: ThePage,
    tests: Annotated[bool, Query(description="give each group's tests, too: which of a pair is better")] = False,
) -> JSONResponse:
    """List every group of this node by name, and those of the store that it cannot load.

    The list has only the groups of learners that the key allows.
    """
    return JSONResponse(await listed(engine, permissions, page, tests=tests))


async def listed(engine: Engine, permissions: Permissions, page: ListPage = WHOLE, *, tests: bool) -> dict[str, Any]:
    """Return the document `GroupList`."""
    groups = []
    began = time.perf_counter()
    visible = {
        name: group for name, group in engine.groups.items() if permissions.sees_group(name, group.config.learners)
    }
    left_out = {name: why for name, why in engine.unavailable(groups=True).items() if permissions.sees(name)}
    for name in page.names({*visible, *left_out}):
        if name in visible:
            groups.append(_document(name, visible[name], tests=tests))
        if time.perf_counter() - began > _STRETCH:
            await asyncio.sleep(0)
            began = time.perf_counter()
    return page.cut({"groups": groups, "unavailable": left_out}, "groups")


@router.get(
    "/groups/{name}",
    dependencies=[READ],
    tags=["groups"],
    operation_id="getGroup",
    summary="Show a group",
    response_model=schemas.GroupDocument,
    responses=problems(404, 422, 500, 503),
)
async def show(name: TheName, group: TheGroup) -> JSONResponse:
    """Show its learners and its position."""
    return JSONResponse(_document(name, group))


@router.delete(
    "/groups/{name}",
    dependencies=[ADMIN],
    tags=["groups"],
    operation_id="deleteGroup",
    summary="Delete a group",
    status_code=204,
    responses=problems(404, 422, 500, 503),
)
async def delete(name: TheName, engine: TheEngine, permissions: KeyPermissions) -> Response:
    """Delete a group and its comparison; the learners stay."""
    group = engine.groups.get(name)  # None if it cannot be loaded; it can still be deleted
    permissions.find_group(name, () if group is None else group.config.learners)
    await engine.delete_group(name)
    return Response(status_code=204)


async def _prepare(
    operation: Operation, body: bytes, members: dict[str, LearnerReplica], permissions: Permissions
) -> dict[str, Request]:
    """Prepare the body for each learner, once for all that decode it alike; count each learner's events.

    Raises `BadBody`, `Invalid` or `RateLimited`: the body is refused as a whole.
    """

    def newest() -> float:  # the earliest clock of the members: it moves none of them
        return float(np.min([member.newest_time() for member in members.values()]))

    decoded: dict[tuple[object, ...], Request] = {}
    requests: dict[str, Request] = {}
    for name, member in members.items():
        config = member.learner.config
        field = None if config.threshold is None else config.threshold.field
        key = (config.features, config.params if config.features.sparse else None, field, config.uses_clock)
        if key not in decoded:
            try:
                decoded[key] = await asyncio.to_thread(prepare, operation, body, config, JSON, newest)
            except Invalid as error:
                raise Invalid(f"{name}: {error.detail}", error.problems) from None
        requests[name] = decoded[key]
    if permissions.spend is not None:
        permissions.spend(sum(request.event_count for request in requests.values()))
    for name, request in requests.items():
        await admit_by_size(members[name], request)
    return requests


async def _reply(head: dict[str, Any], requests: dict[str, Request], results: Mapping[str, Result]) -> Response:
    """Encode the results of all learners behind the head."""

    def encode_all() -> bytes:
        replies = {name: msgspec.Raw(encode(requests[name], result, JSON)) for name, result in results.items()}
        return msgspec.json.encode({**head, "learners": replies})

    return Response(await asyncio.to_thread(encode_all), media_type="application/json")


async def _learn(
    engine: Engine, group: GroupReplica, permissions: Permissions, body: bytes, operation: Operation
) -> Response:
    async with engine.members(group) as members:
        requests = await _prepare(operation, body, members, permissions)
        answer = await group.learn(
            members, {name: cast(Labelled, request.events) for name, request in requests.items()}
        )
    return await _reply({"position": answer.position, "compared": answer.compared}, requests, answer.learnt)


@router.post(
    "/groups/{name}/update",
    dependencies=[UPDATE],
    tags=["groups"],
    operation_id="updateGroupEvents",
    summary="Learn labelled events in every learner of the group",
    response_model=schemas.GroupUpdateReply,
    responses=problems(*BODY, 404, 409, 500, 503),
    openapi_extra=schemas.request_body(schemas.UpdateBody, examples.UPDATE),
)
async def update(engine: TheEngine, group: TheGroup, permissions: KeyPermissions, body: TheBody) -> Response:
    """Learn in every learner, as `update` of a learner does, and compare the scores from before."""
    return await _learn(engine, group, permissions, body, "update")


@router.post(
    "/groups/{name}/labels",
    dependencies=[UPDATE],
    tags=["groups"],
    operation_id="labelGroupEvents",
    summary="Label events that the group served, by id",
    response_model=schemas.GroupUpdateReply,
    responses=problems(*BODY, 404, 500, 503),
    openapi_extra=schemas.request_body(schemas.LabelsBody, examples.LABELS),
)
async def labels(engine: TheEngine, group: TheGroup, permissions: KeyPermissions, body: TheBody) -> Response:
    """Label in every learner, as `labels` of a learner does, and compare the served scores."""
    return await _learn(engine, group, permissions, body, "labels")


@router.post(
    "/groups/{name}/predict",
    dependencies=[PREDICT],
    tags=["groups"],
    operation_id="predictGroupEvents",
    summary="Score events by every learner of the group",
    response_model=schemas.GroupPredictReply,
    responses=problems(*BODY, 404, 500, 503),
    openapi_extra=schemas.request_body(schemas.PredictBody, examples.PREDICT),
)
async def predict(engine: TheEngine, group: TheGroup, permissions: KeyPermissions, body: TheBody) -> Response:
    """Score by every learner, as `predict` of a learner does; each remembers events with an id."""
    async with engine.members(group) as members:
        requests = await _prepare("predict", body, members, permissions)
        scores = await group.predict(
            members, {name: cast(Events, request.events) for name, request in requests.items()}
        )
        results = {name: scored_by(members[name], scored) for name, scored in scores.items()}
    return await _reply({}, requests, results)


@router.get(
    "/groups/{name}/compare",
    dependencies=[READ],
    tags=["groups"],
    operation_id="compareGroup",
    summary="Compare the learners of the group",
    response_model=schemas.Comparison,
    responses=problems(404, 422, 500, 503),
)
async def compare(name: TheName, group: TheGroup, engine: TheEngine) -> JSONResponse:
    """Compare the AUCs over the window, with intervals, and sequential tests that stay valid at every look."""
    return JSONResponse(await comparison(name, group, engine))


async def comparison(name: str, group: GroupReplica, engine: Engine) -> dict[str, Any]:
    """Return the document `Comparison`."""
    position, document = await group.compared()
    return {"name": name, "position": position, "gone": engine.missing_members(group), **document}
