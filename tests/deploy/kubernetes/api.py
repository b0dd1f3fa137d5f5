"""The API server over HTTP: discovery, and the verbs of what a cluster keeps, as `helm` and `kubectl` ask for them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, NamedTuple

import yaml
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from tests.deploy.kubernetes.objects import Event, Kind, Object, Objects, Refused, selected
from tests.deploy.kubernetes.protobuf import MEDIA_TYPE, decoded

__all__ = ["application"]

APPLY, MERGE, STRATEGIC = (
    "application/apply-patch+yaml",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
)
VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]
Forward = Callable[[WebSocket, Object], Awaitable[None]]


class Path(NamedTuple):
    """What an address names."""

    kind: Kind
    namespace: str
    name: str
    part: str  # of the object: portforward


def application(objects: Objects, forward: Forward) -> Starlette:
    """`forward`: carries a websocket's streams to the ports of a pod."""
    api = _Api(objects)

    async def forwarded(websocket: WebSocket) -> None:
        at = api.path(websocket.url.path)
        if (at.kind.name, at.part) == ("Pod", "portforward"):
            await forward(websocket, objects.get(at.kind, at.namespace, at.name))
        else:
            await websocket.close()

    methods = ["GET", "POST", "PUT", "PATCH", "DELETE"]
    return Starlette(
        routes=[
            Route("/version", api.version),
            Route("/openapi/v2", api.older_document),
            Route("/openapi/v3", api.documents),
            Route("/openapi/v3/{rest:path}", api.document),
            Route("/api", api.versions),
            Route("/apis", api.groups),
            Route("/api/v1", api.resources),
            Route("/apis/{group}/{version}", api.resources),
            Route("/{rest:path}", api.object, methods=methods),
            WebSocketRoute("/{rest:path}", forwarded),
        ],
        exception_handlers={Refused: _refusal},
    )


async def _refusal(_: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    status = {"status": "Failure", "message": str(error), "reason": error.reason, "code": error.code}
    return JSONResponse({"kind": "Status", "apiVersion": "v1", "metadata": {}, **status}, error.code)


class _Api:
    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    # Discovery, in the older form that every client falls back to

    async def version(self, _: Request) -> Response:
        return JSONResponse({"major": "1", "minor": "35", "gitVersion": "v1.35.0", "platform": "linux/amd64"})

    async def versions(self, _: Request) -> Response:
        return JSONResponse({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})

    async def groups(self, _: Request) -> Response:
        named = {one.group: one for one in self._objects.kinds if one.group}
        versions = {name: {"groupVersion": one.api, "version": one.version} for name, one in named.items()}
        groups = [{"name": name, "versions": [one], "preferredVersion": one} for name, one in versions.items()]
        return JSONResponse({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})

    async def resources(self, request: Request) -> Response:
        api = request.url.path.removeprefix("/apis/").removeprefix("/api/")
        found = [
            {"name": one.resource, "singularName": one.name.lower(), "namespaced": one.namespaced, "kind": one.name}
            for one in self._objects.kinds
            if one.api == api
        ]
        if not found:
            raise Refused(404, "NotFound", "the server could not find the requested resource")
        listed = [{**one, "verbs": VERBS} for one in found]
        return JSONResponse({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api, "resources": listed})

    async def older_document(self, _: Request) -> Response:
        """Where clients look for kinds that are not in the newer one: it is empty, and in protobuf that is no byte."""
        return Response(b"", media_type="application/com.github.proto-openapi.spec.v2.v1.0+protobuf")

    async def documents(self, _: Request) -> Response:
        found = {_prefix(one)[1:]: {"serverRelativeURL": f"/openapi/v3{_prefix(one)}"} for one in self._objects.kinds}
        return JSONResponse({"paths": found})

    async def document(self, request: Request) -> Response:
        """No more than that objects are validated here, so that clients leave it to the server."""
        parameters = [{"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}]
        paths = {}
        for one in self._objects.kinds:
            if request.url.path == f"/openapi/v3{_prefix(one)}":
                kind = {"group": one.group, "version": one.version, "kind": one.name}
                patch = {"parameters": parameters, "x-kubernetes-group-version-kind": kind, "responses": {}}
                paths[f"{_prefix(one)}/{one.resource}/{{name}}"] = {"patch": patch}
        about = {"title": "Kubernetes", "version": "v1.35.0"}
        return JSONResponse({"openapi": "3.0.0", "info": about, "paths": paths})

    # Objects

    def path(self, path: str) -> Path:
        """Raises `Refused` for what this server has not."""
        parts = path.strip("/").split("/")
        group, version, rest = ("", parts[1:2], parts[2:]) if parts[0] == "api" else (parts[1:2], parts[2:3], parts[3:])
        namespace = ""
        if rest[:1] == ["namespaces"] and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        resource, name, part = (*rest, "", "", "")[:3]
        for one in self._objects.kinds:
            if ("".join(group), "".join(version), resource) == (one.group, one.version, one.resource):
                return Path(one, namespace, name, part)
        raise Refused(404, "NotFound", "the server could not find the requested resource")

    async def object(self, request: Request) -> Response:
        """Any verb of any kind."""
        at = self.path(request.url.path)
        if at.part or "dryRun" in request.query_params:
            raise Refused(404, "NotFound", f"this server has no {at.part or 'dry run'}")
        if request.method == "GET" and not at.name:
            return await self._list(request, at)
        if request.method == "GET":
            return JSONResponse(self._objects.get(*at[:3]))
        if request.method == "DELETE":
            return JSONResponse(self._objects.delete(*at[:3]))
        form = request.headers.get("content-type", "").partition(";")[0]
        given = await _body(request, form)
        if request.method == "PATCH":
            return self._patched(at, form, given, request.query_params)
        if (given.get("apiVersion"), given.get("kind")) != (at.kind.api, at.kind.name):
            raise Refused(400, "BadRequest", f"{given.get('apiVersion')} {given.get('kind')} is no {at.kind.name}")
        if request.method == "POST":
            return JSONResponse(self._objects.create(at.kind, at.namespace, given), 201)
        return JSONResponse(self._objects.replace(*at[:3], given))

    def _patched(self, at: Path, form: str, given: Object, query: Mapping[str, str]) -> Response:
        if form == APPLY:
            new, made = self._objects.apply(*at[:3], given, query.get("fieldManager", ""))
            return JSONResponse(new, 201 if made else 200)
        if form == MERGE or (form == STRATEGIC and not _has_list(given)):  # which are the same without lists
            return JSONResponse(self._objects.patch(*at[:3], given))
        raise Refused(415, "UnsupportedMediaType", f"this server has no {form} of lists")

    async def _list(self, request: Request, at: Path) -> Response:
        query = request.query_params
        labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")

        def wanted(one: Object) -> bool:
            about = one["metadata"]
            known = {"metadata.name": about["name"], "metadata.namespace": about.get("namespace", "")}
            within = at.namespace in ("", about.get("namespace"))
            return within and selected(about.get("labels", {}), labels) and selected(known, fields)

        version = len(self._objects.events)
        found = [one for one in self._objects.all(at.kind, at.namespace) if wanted(one)]
        if query.get("watch") in ("1", "true"):
            first = query.get("resourceVersion", "")
            initial = found if query.get("sendInitialEvents") == "true" or first in ("", "0") else []
            began = version if initial or first in ("", "0") else int(first)
            bookmark = query.get("sendInitialEvents") == "true"
            lines = self._watch(at.kind, wanted, initial, began, bookmark=bookmark)
            return StreamingResponse(lines, media_type="application/json")
        about = {"resourceVersion": str(version)}
        return JSONResponse(
            {"kind": f"{at.kind.name}List", "apiVersion": at.kind.api, "metadata": about, "items": found}
        )

    async def _watch(
        self, kind: Kind, wanted: Callable[[Object], bool], initial: list[Object], began: int, *, bookmark: bool
    ) -> AsyncIterator[str]:
        """What is there, and from then on what happens, each as a line."""
        for one in initial:
            yield _line(Event("ADDED", kind, one))
        if bookmark:
            about = {"resourceVersion": str(began), "annotations": {"k8s.io/initial-events-end": "true"}}
            yield _line(Event("BOOKMARK", kind, {"kind": kind.name, "apiVersion": kind.api, "metadata": about}))
        at = began
        while True:
            while at < len(self._objects.events):
                event, at = self._objects.events[at], at + 1
                if event.kind == kind and wanted(event.object):
                    yield _line(event)
            await self._objects.change()


def _prefix(kind: Kind) -> str:
    """Under which a kind is."""
    return f"/apis/{kind.api}" if kind.group else f"/api/{kind.api}"


def _line(event: Event) -> str:
    return json.dumps({"type": event.type, "object": event.object}) + "\n"


def _has_list(value: Any) -> bool:
    return isinstance(value, list) or (isinstance(value, dict) and any(map(_has_list, value.values())))


async def _body(request: Request, form: str) -> Object:
    body = await request.body()
    try:
        if form == MEDIA_TYPE:
            found = decoded(body)
        else:
            found = yaml.safe_load(body) if form.endswith("yaml") else json.loads(body)
    except (ValueError, yaml.YAMLError) as error:
        raise Refused(400, "BadRequest", f"the body cannot be read as {form}: {error}") from None
    if not isinstance(found, dict):
        raise Refused(400, "BadRequest", "the body is no object")
    return found
