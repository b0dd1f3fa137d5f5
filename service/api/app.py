"""The ASGI application: settings -> store -> engine -> routes. Every error is RFC 9457 problem+json."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse, RedirectResponse, Response
from fastapi.routing import APIRoute
from fastapi_offline import FastAPIOffline
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from learners import Problem
from rarestream import __version__
from service.api import client_document, problem_pages, routes, schemas, static
from service.api.body import Bodies
from service.api.docs_csp import DocsPolicy
from service.api.fast_path import FastPath, InlinePath, match_request
from service.api.forwarding import Forwarding
from service.api.paths import PROBES, name_and_rest
from service.api.prometheus import Exposition
from service.api.schemas import bodies
from service.api.state import AppState
from service.api.websocket import Sockets
from service.auth import Guard, Handshakes
from service.engine import Engine, import_limits
from service.errors import Invalid, ServiceError
from service.settings import Settings
from service.storage import open_store
from service.telemetry import Access, LineWriter
from service.wire import internal_error, local_path, problem_reply

__all__ = ["Application", "create_app"]

logger = logging.getLogger("rarestream.app")

_CORS: dict[str, Any] = {  # for pages of the origins in the settings; keys still apply
    "allow_methods": ["GET", "PUT", "POST", "PATCH", "DELETE"],
    "allow_headers": ["*"],
    "expose_headers": ["X-Request-ID", "Retry-After", "RateLimit", "RateLimit-Policy", "Content-Disposition"],
}

_ABOUT = """Online learning for imbalanced streams: named learners behind a durable log, with live AUC and F-measure.

A 200 from `/update` means that every event of the request is in the log. Every reply says what became of each event.
Errors are `application/problem+json` (RFC 9457) with a `code` and, under `errors`, a pointer to each bad value.

Not listed below are the websockets, `/v1/learners/{name}/ws` for one learner and `/v1/ws` for all: messages such as
`{"seq": 7, "op": "update", "events": [...]}`, as JSON text or binary MessagePack; a reply bears its `seq`."""


def _problem(request: Request, error: ServiceError) -> JSONResponse:
    request.scope["state"]["problem"] = error.code  # for the request log
    return problem_reply(error, request.scope["state"]["request_id"])


async def _on_service_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ServiceError)
    return _problem(request, error)


def _code(kind: str) -> Literal["invalid", "missing", "unknown"]:
    """Return the code of a problem for the type of an error of Pydantic."""
    if kind == "missing":
        return "missing"
    return "unknown" if kind == "extra_forbidden" else "invalid"


async def _on_validation_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    problems = [
        Problem("/" + "/".join(map(str, item["loc"][1:])), str(item["msg"]), _code(item["type"]))
        for item in error.errors()
    ]
    return _problem(request, Invalid("the request is refused", problems))


def _slashed_name(request: Request) -> bool:
    """Tell whether an unknown path looks like that of a learner or group with a slash in its name."""
    if "/" not in name_and_rest(local_path(request.scope)):
        return False
    # with these methods a name always ends the path; or the client has escaped a slash
    return request.method in ("PUT", "PATCH", "DELETE") or b"%2f" in request.scope.get("raw_path", b"").lower()


def _redirect(request: Request) -> RedirectResponse | None:
    """Return a redirect to the path without its last slash if a route has that path.

    The target is relative, so the Host header has no influence on it.
    """
    path = request.scope["path"]
    shorter = {**request.scope, "path": path.rstrip("/")}
    if not path.endswith("/") or all(route.matches(shorter)[0] is Match.NONE for route in request.app.routes):
        return None
    return RedirectResponse(request.url.replace(scheme="", netloc="", path=shorter["path"]), status_code=307)


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404 and (redirect := _redirect(request)) is not None:
        return redirect
    problem = ServiceError(str(error.detail))
    headers = dict(error.headers or {})
    if error.status_code == 404:
        problem = ServiceError(f"there is no path {request.scope['path'][:200]}; the API is described at /docs")
        if _slashed_name(request):
            problem.problems.append(Problem("/name", "a name of a learner or group holds no slash"))
    elif error.status_code == 405:
        path = f"{routes.router.prefix}{getattr(request.scope.get('route'), 'path', '')}"
        methods = {*(routes.METHODS.get(path) or headers["Allow"].split(", "))}
        allowed = ", ".join(sorted(methods | ({"HEAD"} if "GET" in methods else set())))
        headers["Allow"] = allowed
        problem = ServiceError(f"{request.method} is no method of this path; it takes {allowed}")
    problem.status, problem.title = error.status_code, str(error.detail)
    problem.code = {404: "not-found", 405: "method-not-allowed"}.get(error.status_code, "http-error")
    response = _problem(request, problem)
    response.headers.update(headers)
    return response


async def _on_internal_error(request: Request, error: Exception) -> JSONResponse:
    # Starlette logs the error itself after this reply
    return _problem(request, internal_error(error))


class Application:
    """The ASGI application: the fast path for update, predict and labels, FastAPI for everything else."""

    def __init__(self, api: FastAPI, state: AppState, inline: InlinePath, exposition: Exposition) -> None:
        self.api = api
        self.state = state
        self.router = api.router  # has the lifespan
        self.openapi = api.openapi
        self.inline = inline  # for a server whose connections answer inline: `server/http_protocol.py`
        self.exposition = exposition
        self.access = state.access  # for what is not a request
        self.head_seconds = state.settings.body_seconds  # for the headers of requests
        self._fast_path = FastPath(state)
        self._forwarding = state.forwarding
        origins = state.guard.origins
        self._answer: ASGIApp = CORSMiddleware(self._route, origins, **_CORS) if origins else self._route

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        await self._answer(scope, receive, send)

    async def _route(self, scope: Scope, receive: Receive, send: Send) -> None:
        hosts = self._forwarding.hosts(scope)
        if hosts:
            receive_again = await self._forwarding.forward(hosts, scope, receive, send)
            if receive_again is None:
                return
            receive = receive_again
        match = match_request(scope)
        if match is not None:
            await self._fast_path.answer(*match, scope, receive, send)
        elif scope["type"] == "http":
            probe = PROBES.get(local_path(scope))
            path = scope["path"] if probe is None else scope.get("root_path", "") + probe
            await self.access(self.api, {**scope, "path": path}, receive, send)
        else:
            await self.api(scope, receive, send)


def create_app(settings: Settings | None = None, lines: LineWriter | None = None) -> Application:
    """Create the application, which opens the store and loads the learners when it starts.

    `lines`: writes the request log; None: the server has a log of its own. Raises `BadKeys`.
    """
    settings = settings or Settings()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        engine = Engine(await open_store(settings.store, settings.acks, settings.store_prefix), settings)
        state.start(engine)
        inline.engine = None if engine.placement.spread else engine  # otherwise another node may host the learner
        await engine.start()
        watching = engine.node.background.keep("watch the keys file", guard.watch)
        yield
        inline.engine = None
        watching.cancel()
        await engine.stop()
        await state.forwarding.close()

    app = FastAPIOffline(
        redirect_slashes=False,  # its target has the host of the request: `_redirect`
        redoc_url=None,  # its page loads an image from another host
        title="rarestream",
        version=__version__,
        description=_ABOUT,
        lifespan=lifespan,
    )
    guard, access, request_bodies = Guard(settings), Access(settings, lines), Bodies(settings)
    closing = asyncio.Event()
    state = AppState(
        settings=settings,
        guard=guard,
        access=access,
        bodies=request_bodies,
        imports=Bodies(import_limits(settings)),
        closing=closing,
        forwarding=Forwarding(settings, guard, access, request_bodies, closing),
        handshakes=Handshakes(settings),
    )
    inline, exposition = InlinePath(request_bodies, access, guard), Exposition(state)
    app.state.shared = state
    for route in app.routes:
        if isinstance(route, APIRoute):  # of /docs
            route.methods = {*(route.methods or ()), "HEAD"}
    app.router.routes.extend(routes.SHARED.routes)
    app.include_router(static.router)
    app.include_router(problem_pages.router)
    app.include_router(client_document.router)
    app.include_router(exposition.router())
    app.add_middleware(Sockets, state=state)
    app.add_middleware(DocsPolicy)
    app.add_exception_handler(ServiceError, _on_service_error)
    app.add_exception_handler(RequestValidationError, _on_validation_error)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(Exception, _on_internal_error)

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
            _, definitions = models_json_schema(
                [(model, "validation") for model in schemas.MODELS + bodies.MODELS],
                ref_template="#/components/schemas/{model}",
            )
            document["components"]["schemas"] = {
                **definitions["$defs"],
                **document["components"]["schemas"],
                **schemas.components(),
            }
            app.openapi_schema = schemas.with_references(document)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
    return Application(app, state, inline, exposition)
