"""Dependencies of the routes: permissions, the engine, the learner of the path, the body, and documented problems."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from fastapi import Depends, Path, Query, Request, Security
from fastapi.requests import HTTPConnection
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError
from starlette.routing import Match
from starlette.types import Receive, Send
from starlette.types import Scope as AsgiScope

from learners import MAX_FEATURES, InvalidInput
from rarestream.values import parse_time
from service.api.body import check_json
from service.api.list_pages import ListPage
from service.api.schemas.document import IsoTime
from service.api.state import app_state
from service.auth import SCOPES, UNRESTRICTED, Permissions, Scope
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
    "AccessRoute",
    "AfterPage",
    "AtLeast",
    "Explain",
    "KeyPermissions",
    "Limit",
    "Name",
    "PublicAccess",
    "QueryTime",
    "RequiredScope",
    "TheBody",
    "TheEngine",
    "TheLearner",
    "TheLearnerByThen",
    "TheName",
    "ThePage",
    "known_parameters",
    "problems",
    "settings_of",
]

Settings = TypeVar("Settings")


async def known_parameters(connection: HTTPConnection) -> None:
    """Refuse query parameters that the route does not have. Raises `Invalid`."""
    if connection.scope["query_string"]:  # few requests have one
        names = (name for name, _ in connection.query_params.multi_items())
        check_parameters(names, list(_parameters(connection.scope["route"].dependant)))


def _parameters(dependant: Dependant) -> Iterator[str]:
    """Yield the names of the query parameters of a route's function and its dependencies."""
    for parameter in dependant.query_params:
        yield parameter.alias
    for needed in dependant.dependencies:
        yield from _parameters(needed)


class AccessRule:
    """A dependency that states who may call a route."""


class PublicAccess(AccessRule):
    """Allow everybody: the route reveals nothing of learners and changes nothing."""

    def __init__(self, any_query: bool = False) -> None:
        """`any_query`: links to the route may add parameters of their own, but no key."""
        self._any_query = any_query

    async def __call__(self, request: Request) -> None:
        """Check the query. Raises `Invalid`."""
        if self._any_query:
            check_no_key(request.query_params)
        else:
            await known_parameters(request)


_bearer = HTTPBearer(scheme_name="key", description="A key of the service: `rs_...`", auto_error=False)


class RequiredScope(AccessRule):
    """Allow keys with this scope, and everybody if the service has no keys."""

    def __init__(self, scope: Scope | None, any_query: bool = False) -> None:
        """`scope` None: any key. `any_query`: clients may add parameters of their own, but no key."""
        self._scope = scope
        self._any_query = any_query

    async def __call__(
        self,
        request: Request,
        bearer: Annotated[object, Security(_bearer)],  # noqa: ARG002 - for the OpenAPI document
    ) -> None:
        """Admit the request and check the query. Raises `ServiceError` if either is refused."""
        guard = app_state(request.scope).guard
        permissions = UNRESTRICTED
        if guard.on:
            changes = request.method not in ("GET", "HEAD")
            client = request.scope.get("client")
            state = request.scope["state"]
            permissions = guard.admit(
                request.scope["headers"], self._scope, client=client, changes=changes, state=state
            )
        request.scope["state"]["permissions"] = permissions
        if self._any_query:
            check_no_key(request.query_params)
        else:
            await known_parameters(request)


READ, PREDICT, UPDATE, _, ADMIN = (Depends(RequiredScope(scope)) for scope in SCOPES)
ANY = Depends(RequiredScope(None))
OPEN = Depends(PublicAccess())


class AccessRoute(APIRoute):
    """A route that must state who may call it, itself or by its router, so that a forgotten one is not open to all."""

    def __init__(
        self, path: str, endpoint: Callable[..., Any], *, dependencies: Sequence[Any] | None = None, **options: Any
    ) -> None:
        """Create the route as FastAPI does. Raises RuntimeError if it does not state who may call it."""
        if not any(isinstance(item.dependency, AccessRule) for item in dependencies or ()):
            raise RuntimeError(f"the route {path} does not state who may call it")
        super().__init__(path, endpoint, dependencies=dependencies, **options)

    def matches(self, scope: AsgiScope) -> tuple[Match, AsgiScope]:
        """Match as FastAPI does, and HEAD where GET matches. The server sends no body after HEAD."""
        return super().matches({**scope, "method": "GET"} if self._answers_head(scope) else scope)

    async def handle(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Serve a request that matched."""
        if self._answers_head(scope):
            await self.app(scope, receive, send)
        else:
            await super().handle(scope, receive, send)

    def _answers_head(self, scope: AsgiScope) -> bool:
        return scope["type"] == "http" and scope["method"] == "HEAD" and "GET" in (self.methods or ())


async def key_permissions(request: Request) -> Permissions:
    """Return the permissions of the request's key; callers check the learner of the path themselves."""
    permissions: Permissions = request.scope["state"]["permissions"]
    return permissions


KeyPermissions = Annotated[Permissions, Depends(key_permissions)]


async def the_engine(request: Request) -> Engine:
    """Return the engine of this application."""
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
    """Return the name of the path if it is valid. Raises `Invalid`."""
    return check_name(name)


TheName = Annotated[str, Depends(the_name)]


async def the_learner(name: TheName, engine: TheEngine, permissions: KeyPermissions) -> AsyncIterator[LearnerReplica]:
    """Hold the learner of the path in memory until the reply; 404 if it does not exist or the key does not allow it."""
    permissions.find(name)
    async with engine.use(name) as learner:
        yield learner


TheLearner = Annotated[LearnerReplica, Depends(the_learner)]
Explain = Annotated[
    int | None, Query(ge=1, le=MAX_FEATURES, description="give so many largest contributions to each score")
]
AtLeast = Annotated[
    int | None,
    Query(ge=1, le=MAX_POSITION, description="wait until this node has applied the learner's log up to this position"),
]


def _parse_time(value: Any) -> Any:
    seconds = parse_time(value) if isinstance(value, str) else None
    if seconds is None:
        try:
            return float(value)
        except ValueError:
            raise PydanticCustomError("time", "is neither seconds since the epoch nor an ISO 8601 time") from None
    return seconds


QueryTime = Annotated[
    float,
    Field(allow_inf_nan=False),
    BeforeValidator(_parse_time, json_schema_input_type=float | IsoTime),
]


async def the_learner_by_then(learner: TheLearner, at_least: AtLeast = None) -> LearnerReplica:
    """Return the learner of the path, at the position `at_least` of the query or later."""
    await learner.log.wait_for(at_least)
    return learner


TheLearnerByThen = Annotated[LearnerReplica, Depends(the_learner_by_then)]


Limit = Annotated[int | None, Query(ge=1, le=1000, description="entries at most; all if absent")]


async def the_page(
    limit: Limit = None,
    cursor: Annotated[str, Query(max_length=300, description="`cursor` of the page before")] = "",
) -> ListPage:
    """Return the page of the query."""
    return ListPage(limit, cursor)


ThePage = Annotated[ListPage, Depends(the_page)]
AfterPage = Annotated[int, Query(ge=0, lt=2**53, description="`cursor` of the page before; 0: the first page")]


async def the_body(request: Request, permissions: KeyPermissions) -> AsyncIterator[bytes]:
    """Read a JSON body within the limits of the node and the key, and hold it until the reply."""
    bodies = app_state(request.scope).bodies
    heading = heading_of(request.scope["headers"])
    check_json(heading)
    body = await bodies.read(request.receive, request.scope, heading, permissions.body_bytes)
    try:
        yield body
    finally:
        bodies.release(body)


TheBody = Annotated[bytes, Depends(the_body)]


def settings_of(name: str, body: bytes, read: Callable[[Any], Settings], what: str) -> Settings:
    """Parse the settings in a body with `read`; `what` names them in messages.

    Raises `Invalid` with every problem of the name and of the settings.
    """
    try:
        settings = read(decode_settings(body))
    except InvalidInput as error:
        wrong = problems_of(name)
        detail = f"the name and the {what} are refused" if wrong else f"the {what} is refused"
        raise Invalid(f"{detail}; nothing was created", [*wrong, *error.problems]) from None
    check_name(name)
    return settings


_PROBLEM = {"content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}}}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI entries of the problems of a route."""
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
    400: "The body is malformed",
    401: "A valid key is required",
    403: "The key does not permit this, or a page of another origin asks",
    404: "No such learner",
    406: "No reply has an accepted type",
    408: "The body did not arrive in time",
    409: "The name is in use, a limit or the end of the log is reached, or earlier events of the source are missing",
    413: "The body is too large",
    415: "The media type is not supported",
    421: "The request is for another host",
    422: "Some values are invalid; each is listed, and nothing was changed",
    429: "The queue is full, or a limit of the key is reached; nothing was accepted",
    500: "Stored data is damaged",
    503: "The log cannot be written now; the outcome is unknown, so repeat with the same ids",
}
BODY = (400, 408, 413, 415, 422, 429)
