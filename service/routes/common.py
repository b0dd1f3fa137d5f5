"""What routes share: the engine, the learner of the path, the body within its bounds, documented problems."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends, Path, Query, Request
from fastapi.requests import HTTPConnection

from service.bodies import Bodies, check_json, heading_of
from service.engine import Engine
from service.hosted import Hosted
from service.names import PATTERN, check_name, check_parameters
from service.store import MAX_POSITION

if TYPE_CHECKING:
    from fastapi.dependencies.models import Dependant

__all__ = [
    "BODY",
    "AtLeast",
    "Name",
    "TheBody",
    "TheEngine",
    "TheLearner",
    "TheLearnerByThen",
    "TheName",
    "known_parameters",
    "problems",
]


async def known_parameters(connection: HTTPConnection) -> None:
    """Refuse a query with parameters that the route does not have. Raises `Invalid`."""
    if connection.scope["query_string"]:  # as of few requests
        names = (name for name, _ in connection.query_params.multi_items())
        check_parameters(names, list(_parameters(connection.scope["route"].dependant)))


def _parameters(dependant: Dependant) -> Iterator[str]:
    """The names of the query parameters that a route's function and its dependencies take."""
    for parameter in dependant.query_params:
        yield parameter.alias
    for needed in dependant.dependencies:
        yield from _parameters(needed)


async def the_engine(request: Request) -> Engine:
    """The engine of this application."""
    engine: Engine = request.app.state.engine
    return engine


TheEngine = Annotated[Engine, Depends(the_engine)]
Name = Annotated[
    str,
    Path(
        json_schema_extra={"pattern": f"^{PATTERN}$"},
        description="1 to 100 of letters, digits, '.', '_', '-'; begins with a letter or digit",
    ),
]


async def the_name(name: Name) -> str:
    """A name that a learner may have."""
    return check_name(name)


TheName = Annotated[str, Depends(the_name)]


async def the_learner(name: TheName, engine: TheEngine) -> AsyncIterator[Hosted]:
    """The learner of the path, awake until the request is answered; 404 where there is none."""
    async with engine.held(name) as learner:
        yield learner


TheLearner = Annotated[Hosted, Depends(the_learner)]
AtLeast = Annotated[
    int | None,
    Query(ge=1, le=MAX_POSITION, description="wait until this node has come to this position of the learner's log"),
]


async def the_learner_by_then(learner: TheLearner, at_least: AtLeast = None) -> Hosted:
    """The learner of the path, once it has come to the position that the query asks for, if it does."""
    await learner.at_least(at_least)
    return learner


TheLearnerByThen = Annotated[Hosted, Depends(the_learner_by_then)]


async def the_body(request: Request) -> AsyncIterator[bytes]:
    """The body, in JSON, within the node's bounds for one and for all that are held until they are answered."""
    bodies: Bodies = request.app.state.bodies
    heading = heading_of(request.scope["headers"])
    check_json(heading)
    body = await bodies.read(request.receive, heading)
    try:
        yield body
    finally:
        bodies.release(body)


TheBody = Annotated[bytes, Depends(the_body)]

_PROBLEM = {"content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}}}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI entries of problems that a route may answer."""
    return {
        status: {"description": _WORDS[status], **_PROBLEM, **(_LATER if status in (429, 503) else {})}
        for status in statuses
    }


_LATER = {
    "headers": {
        "Retry-After": {"description": "seconds after which to try again", "schema": {"type": "integer", "minimum": 1}}
    }
}
_WORDS = {
    400: "The body cannot be read",
    404: "No such learner",
    406: "The reply is not written in any form that the request accepts",
    408: "The body did not come in time",
    409: "The name is taken, a limit or the log's end is reached, or events of the source are missing before these",
    413: "The body is too large",
    415: "The media type is not supported",
    422: "Some values are refused; each is listed, and nothing was changed",
    429: "The queue is full; nothing was taken",
    500: "Stored data cannot be read back",
    503: "The log cannot be written just now; the outcome is unknown, so repeat with the same ids",
}
BODY = (400, 408, 413, 415, 422, 429)
