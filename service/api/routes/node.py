"""Routes of the node: the catalogue, the permissions of a key, its health, and the other nodes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse

from learners import FEATURE_KINDS, Config, InvalidInput, LearnerSettings, algorithms
from learners.algorithms import describe
from learners.decisions import Calibration, Threshold
from learners.features import Embedding, LateLabels, Scaling
from learners.metrics import MetricSettings
from service.api import schemas
from service.api.routes.dependencies import ANY, OPEN, READ, Guarded, TheEngine, TheGrant, problems
from service.engine import Engine
from service.names import check_name

__all__ = ["health", "router"]

router = APIRouter(route_class=Guarded)
health = APIRouter(route_class=Guarded, dependencies=[OPEN])  # probes have no key


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
    summary="The catalogue",
    response_model=schemas.Catalogue,
    responses=problems(422),
)
async def catalogue() -> dict[str, Any]:
    """List every algorithm and the settings of the other parts of a learner, with JSON schemas."""
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
    return {"algorithms": [{**describe(name), "usual": _usual(name)} for name in algorithms()], "parts": parts}


@router.get(
    "/key",
    dependencies=[ANY],
    tags=["node"],
    summary="What this key may do",
    response_model=schemas.KeyDocument,
    responses=problems(422),
)
async def key(grant: TheGrant) -> JSONResponse:
    """Return the key's name, scopes, learners, limits and time of expiry.

    If the service has no keys, everybody has all scopes and the name is null.
    """
    return JSONResponse(grant.document())


@health.get(
    "/health/live",
    tags=["node"],
    summary="Is the process alive",
    response_model=schemas.Health,
    responses=problems(422),
)
async def live(engine: TheEngine) -> JSONResponse:
    """Answer 200 while the event loop runs."""
    return JSONResponse(_health(engine))


@health.get(
    "/health/ready",
    tags=["node"],
    summary="Can it take updates",
    response_model=schemas.Health,
    responses={503: {"description": "Not now", "model": schemas.Health}, **problems(422)},
)
async def ready(engine: TheEngine) -> JSONResponse:
    """Answer 200 once every learner is loaded and while the store answers, else 503."""
    health = _health(engine)
    return JSONResponse(health, status_code=200 if health["status"] == "ok" else 503)


@router.get(
    "/nodes",
    tags=["node"],
    summary="Which nodes there are",
    dependencies=[READ],
    response_model=schemas.Nodes,
    responses=problems(404, 422, 500, 503),
)
async def nodes(
    engine: TheEngine, grant: TheGrant, learner: Annotated[str | None, Query(description="whose hosts to tell")] = None
) -> JSONResponse:
    """List the live nodes if learners are spread over them, and the hosts of a learner."""
    placement = engine.placement
    if learner is not None:
        grant.find(check_name(learner))
        await engine.discover(learner)
        engine.check_exists(learner)
    return JSONResponse(
        {
            "replication": placement.replication,
            "address": placement.address or None,
            "nodes": list(placement.addresses),
            "hosts": None if learner is None else list(placement.places(learner)),
        }
    )


def _health(engine: Engine) -> dict[str, Any]:
    status = "ok"
    if engine.node.unreachable is not None:
        status = "store-unavailable"
    elif not engine.ready:
        status = "starting"
    return {
        "status": status,
        "detail": engine.node.unreachable or engine.node.store.caution,
        "learners": engine.learners,
        "stale_seconds": engine.node.stale_seconds,
    }
