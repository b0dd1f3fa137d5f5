"""What routes share: who may call them, the engine, the learner of the path, the body within its bounds, documented
problems."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from fastapi import Depends, Path, Query, Request, Security
from fastapi.requests import HTTPConnection
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer

from learners import InvalidInput
from service.api.body import check_json
from service.api.state import app_state
from service.auth import FREE, SCOPES, Grant, Scope
from service.engine import Engine
from service.engine.replica import LearnerReplica
from service.errors import Invalid
from service.names import PATTERN, check_name, check_no_key, check_parameters, problems_of
from service.storage import MAX_POSITION
from service.wire import decode_settings, heading_of

if TYPE_CHECKING:
    from fastapi.dependencies.models import Dependant

__all__ = [
    "ADMIN",
    "ANY",
    "BODY",
    "OPEN",
    "PREDICT",
    "READ",
    "UPDATE",
    "AtLeast",
    "Guarded",
    "Name",
    "Needs",
    "Open",
    "TheBody",
    "TheEngine",
    "TheGrant",
    "TheLearner",
    "TheLearnerByThen",
    "TheName",
    "known_parameters",
    "problems",
    "settings_of",
]

Settings = TypeVar("Settings")


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


class Declared:
    """A dependency that says who may call a route."""


class Open(Declared):
    """Whoever asks may: a route that tells nothing of learners, and changes nothing."""

    def __init__(self, any_query: bool = False) -> None:
        """`any_query`: links to it may add parameters of their own, but no key."""
        self._any_query = any_query

    async def __call__(self, request: Request) -> None:
        """Look at the query. Raises `Invalid`."""
        if self._any_query:
            check_no_key(request.query_params)
        else:
            await known_parameters(request)


_bearer = HTTPBearer(scheme_name="key", description="A key of the service: `rs_...`", auto_error=False)


class Needs(Declared):
    """Whoever has a key of this scope may, and everybody where the service asks for no keys."""

    def __init__(self, scope: Scope | None, any_query: bool = False) -> None:
        """`scope` None: any key will do. `any_query`: whoever asks may add parameters of their own, but no key."""
        self._scope = scope
        self._any_query = any_query

    async def __call__(
        self,
        request: Request,
        told: Annotated[object, Security(_bearer)],  # noqa: ARG002 - for the OpenAPI document
    ) -> None:
        """Admit the request, or raise what refuses it; then look at the query."""
        guard = app_state(request.scope).guard
        grant = FREE
        if guard.on:
            changes = request.method not in ("GET", "HEAD")
            client = request.scope.get("client")
            state = request.scope["state"]
            grant = guard.admit(request.scope["headers"], self._scope, client=client, changes=changes, state=state)
        request.scope["state"]["grant"] = grant
        if self._any_query:
            check_no_key(request.query_params)
        else:
            await known_parameters(request)


READ, PREDICT, UPDATE, ADMIN = (Depends(Needs(one)) for one in SCOPES)
ANY = Depends(Needs(None))
OPEN = Depends(Open())


class Guarded(APIRoute):
    """A route, which is none unless it, or its router, says who may call it: what is forgotten is not open to all."""

    def __init__(
        self, path: str, endpoint: Callable[..., Any], *, dependencies: Sequence[Any] | None = None, **options: Any
    ) -> None:
        """As of FastAPI. Raises RuntimeError."""
        if not any(isinstance(one.dependency, Declared) for one in dependencies or ()):
            raise RuntimeError(f"the route {path} does not say who may call it")
        super().__init__(path, endpoint, dependencies=dependencies, **options)


async def the_grant(request: Request) -> Grant:
    """What the request's key allows; the learner of its path it has to be asked for by itself."""
    grant: Grant = request.scope["state"]["grant"]
    return grant


TheGrant = Annotated[Grant, Depends(the_grant)]


async def the_engine(request: Request) -> Engine:
    """The engine of this application."""
    return app_state(request.scope).engine


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


async def the_learner(name: TheName, engine: TheEngine, grant: TheGrant) -> AsyncIterator[LearnerReplica]:
    """The learner of the path, awake until the request is answered; 404 where there is none, or none for the key."""
    grant.find(name)
    async with engine.use(name) as learner:
        yield learner


TheLearner = Annotated[LearnerReplica, Depends(the_learner)]
AtLeast = Annotated[
    int | None,
    Query(ge=1, le=MAX_POSITION, description="wait until this node has come to this position of the learner's log"),
]


async def the_learner_by_then(learner: TheLearner, at_least: AtLeast = None) -> LearnerReplica:
    """The learner of the path, once it has come to the position that the query asks for, if it does."""
    await learner.log.wait_for(at_least)
    return learner


TheLearnerByThen = Annotated[LearnerReplica, Depends(the_learner_by_then)]


async def the_body(request: Request, grant: TheGrant) -> AsyncIterator[bytes]:
    """The body, in JSON, within the bounds of the node and the key, and of all bodies that are not answered yet."""
    bodies = app_state(request.scope).bodies
    heading = heading_of(request.scope["headers"])
    check_json(heading)
    body = await bodies.read(request.receive, request.scope, heading, grant.body_bytes)
    try:
        yield body
    finally:
        bodies.release(body)


TheBody = Annotated[bytes, Depends(the_body)]


def settings_of(name: str, body: bytes, read: Callable[[Any], Settings], what: str) -> Settings:
    """What is created under a name by a body, as `read` reads it; `what` it is called.

    Raises `Invalid`, which points at all that is wrong with either.
    """
    try:
        settings = read(decode_settings(body))
    except InvalidInput as error:
        wrong = problems_of(name)
        said = f"the name and the {what} are refused" if wrong else f"the {what} is refused"
        raise Invalid(f"{said}; nothing was created", [*wrong, *error.problems]) from None
    check_name(name)
    return settings


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
    401: "A key is needed, and there is none, or none that is known",
    403: "The key is not for this, or a page of another site asks",
    404: "No such learner",
    406: "The reply is not written in any form that the request accepts",
    408: "The body did not come in time",
    409: "The name is taken, a limit or the log's end is reached, or events of the source are missing before these",
    413: "The body is too large",
    415: "The media type is not supported",
    421: "The request is for a host by whose name this node is not known",
    422: "Some values are refused; each is listed, and nothing was changed",
    429: "The queue is full, or a limit of the key is reached; nothing was taken",
    500: "Stored data cannot be read back",
    503: "The log cannot be written just now; the outcome is unknown, so repeat with the same ids",
}
BODY = (400, 408, 413, 415, 422, 429)
