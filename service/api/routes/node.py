"""Routes of the node: the catalogue, the permissions of a key, its health, and the other nodes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from types import MappingProxyType
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse, Response

from learners import FEATURE_KINDS, Config, InvalidInput, LearnerSettings, algorithms
from learners.algorithms import describe
from learners.decisions import Calibration, Threshold
from learners.features import Embedding, LateLabels, Scaling
from learners.metrics import MetricSettings
from rarestream import __version__
from service.api import schemas
from service.api.health import health_of
from service.api.list_pages import cut_list
from service.api.routes.dependencies import (
    ANY,
    OPEN,
    READ,
    AccessRoute,
    AfterPage,
    KeyPermissions,
    Limit,
    TheEngine,
    ThePage,
    problems,
)
from service.names import check_name
from service.wire import iso_time

__all__ = ["health", "router"]

router = APIRouter(route_class=AccessRoute)
health = APIRouter(route_class=AccessRoute, dependencies=[OPEN])  # probes have no key


_SMALLEST: Mapping[str, dict[str, Any]] = MappingProxyType(  # the least settings of each kind of features
    {
        "dense": {"dim": 1},
        "sparse": {"dim": 1},
        "named": {"bits": 4},
        "table": {"fields": [{"name": "x", "kind": "numeric"}]},
    }
)


@cache
def _usual(name: str) -> dict[str, dict[str, Any]]:
    """Return the default settings of a learner of this algorithm, by kind of features that it takes."""
    usual = {}
    for kind in FEATURE_KINDS:
        try:
            config = Config.of({"algorithm": name, "features": {"kind": kind, **_SMALLEST[kind]}}).to_json()
        except InvalidInput:  # it does not take these features
            continue
        usual[kind] = {part: value for part, value in config.items() if part not in ("algorithm", "params", "features")}
    return usual


@router.get(
    "/algorithms",
    dependencies=[READ],
    tags=["node"],
    operation_id="listAlgorithms",
    summary="The catalogue",
    response_model=schemas.Catalogue,
    responses=problems(422),
)
async def catalogue(limit: Limit = None, cursor: AfterPage = 0) -> Response:
    """List every algorithm and the settings of the other parts of a learner, with JSON schemas."""
    return Response(_catalogue(limit, cursor), media_type="application/json")


@lru_cache(8)
def _catalogue(limit: int | None, cursor: int) -> bytes:
    """Return a page of the document, which never changes: all of it has 130 kB."""
    parts = {
        "features": {kind: features.schema() for kind, features in FEATURE_KINDS.items()},
        "scaling": Scaling.schema(),
        "embedding": Embedding.schema(),
        "calibration": Calibration.schema(),
        "threshold": Threshold.schema(),
        "figures": MetricSettings.schema(),
        "late": LateLabels.schema(),
        "learner": LearnerSettings.schema(),
    }
    page, end = cut_list(list(algorithms()), limit, cursor)
    described = [{**describe(name), "usual": _usual(name)} for name in page]
    document = {"algorithms": described, "parts": parts, "cursor": end}
    return bytes(JSONResponse(schemas.Catalogue.model_validate(document).model_dump(mode="json")).body)


@router.get(
    "/key",
    dependencies=[ANY],
    tags=["node"],
    operation_id="getKey",
    summary="What this key may do",
    response_model=schemas.KeyDocument,
    responses=problems(422),
)
async def key(permissions: KeyPermissions) -> JSONResponse:
    """Return the key's name, scopes, learners, limits and time of expiry.

    If the service has no keys, everybody has all scopes and the name is null.
    """
    document = permissions.document()
    return JSONResponse({**document, "expires_iso": iso_time(document["expires"])})


@health.get(
    "/version",
    tags=["node"],
    operation_id="getVersion",
    summary="Which version answers",
    response_model=schemas.Version,
    responses=problems(422),
)
async def version() -> JSONResponse:
    """Return the version of the service and that of this interface."""
    return JSONResponse({"version": __version__, "api": "v1"})


@health.get(
    "/health/live",
    tags=["node"],
    operation_id="getLiveness",
    summary="Is the process alive",
    response_model=schemas.Health,
    responses=problems(422),
)
async def live(engine: TheEngine) -> JSONResponse:
    """Answer 200 while the event loop runs."""
    return JSONResponse(health_of(engine))


@health.get(
    "/health/ready",
    tags=["node"],
    operation_id="getReadiness",
    summary="Can it take updates",
    response_model=schemas.Health,
    responses={503: {"description": "Not now", "model": schemas.Health}, **problems(422)},
)
async def ready(engine: TheEngine) -> JSONResponse:
    """Answer 200 once every learner is loaded and while the store answers, else 503.

    A full store, and learners that cannot be recovered, change only the status: deletions and other learners go on.
    """
    health = health_of(engine)
    return JSONResponse(health, status_code=503 if health["status"] in ("starting", "store-unavailable") else 200)


@router.get(
    "/nodes",
    tags=["node"],
    operation_id="listNodes",
    summary="Which nodes there are",
    dependencies=[READ],
    response_model=schemas.Nodes,
    responses=problems(404, 422, 500, 503),
)
async def nodes(
    engine: TheEngine,
    permissions: KeyPermissions,
    page: ThePage,
    learner: Annotated[str | None, Query(description="whose hosts to tell")] = None,
) -> JSONResponse:
    """List the live nodes if learners are spread over them, and the hosts of a learner."""
    placement = engine.placement
    if learner is not None:
        permissions.find(check_name(learner))
        await engine.discover(learner)
        engine.check_exists(learner)
    addresses = page.names(placement.addresses)
    listed = addresses[: page.limit]
    return JSONResponse(
        {
            "replication": placement.replication,
            "address": placement.address or None,
            "nodes": listed,
            "cursor": listed[-1] if len(listed) < len(addresses) else None,
            "hosts": None if learner is None else list(placement.places(learner)),
        }
    )
