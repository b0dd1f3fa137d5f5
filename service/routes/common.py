"""What routes share: the engine, the learner of the path, the body within its bounds, documented problems."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends, Path, Request
from fastapi.requests import HTTPConnection

from learners.parameters import Problem, pointer
from service.compression import expanded
from service.engine import Engine
from service.errors import Invalid, QueueFull, TooLarge, TooSlow, WrongType
from service.hosted import Hosted

if TYPE_CHECKING:
    from fastapi.dependencies.models import Dependant

__all__ = [
    "BODY",
    "Buffered",
    "Name",
    "TheBody",
    "TheEngine",
    "TheLearner",
    "TheName",
    "body_of",
    "known_parameters",
    "pieces_of",
    "problems",
]

_LISTED = 100  # problems of one query


async def known_parameters(connection: HTTPConnection) -> None:
    """Refuse a query with parameters that the route does not have: one that is misspelt would be ignored in silence.

    Raises `Invalid` with a pointer to each of the first 100.
    """
    if not connection.scope["query_string"]:  # as of nearly all requests
        return
    known = list(_parameters(connection.scope["route"].dependant))
    expected = f"expected {' or '.join(known)}" if known else "this request takes none"
    found = [name for name in connection.query_params if name not in known][:_LISTED]
    if found:
        problems = [Problem(pointer(name), f"is no parameter here; {expected}") for name in found]
        raise Invalid("the query is refused; nothing was changed", problems)


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


async def the_learner(name: TheName, engine: TheEngine) -> AsyncIterator[Hosted]:
    """The learner of the path, awake until the request is answered; 404 where there is none."""
    async with engine.held(name) as learner:
        yield learner


TheLearner = Annotated[Hosted, Depends(the_learner)]


async def the_body(request: Request) -> AsyncIterator[bytes]:
    """The body of a route that reads JSON only."""
    kind, _, parameters = request.headers.get("content-type", "application/json").lower().partition(";")
    if kind.strip() != "application/json" or ("charset" in parameters and "utf-8" not in parameters):
        raise WrongType(f"the body is {(kind + parameters)[:100]}; expected application/json in UTF-8")
    async with body_of(request) as body:
        yield body


def pieces_of(request: Request, limit: int | None) -> AsyncIterator[bytes]:
    """The body as it comes, expanded where it is compressed; of at most `limit` bytes."""
    return expanded(request.stream(), request.headers.get("content-encoding", "identity"), limit)


@asynccontextmanager
async def body_of(request: Request) -> AsyncIterator[bytes]:
    """The body, within the node's bounds for one and for all that are held until they are answered."""
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
                async for part in pieces_of(request, limit):
                    size += len(part)
                    buffered.bytes += len(part)
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


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"description": _WORDS[status], **_PROBLEM} for status in statuses}


_WORDS = {
    400: "The body cannot be read",
    404: "No such learner",
    406: "The reply is not written in any form that the request accepts",
    408: "The body did not come in time",
    409: "The name is taken, a limit is reached, or events of the source are missing before these",
    413: "The body is too large",
    415: "The media type is not supported",
    422: "Some values are refused; each is listed, and nothing was changed",
    429: "The queue is full; nothing was taken",
    500: "Stored data cannot be read back",
    503: "The log cannot be written just now; the outcome is unknown, so repeat with the same ids",
}
BODY = (400, 408, 413, 415, 422, 429)
