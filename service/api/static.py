"""What is no part of /v1: the dashboard's files, `/` and `/static/...`, and `/metrics` for Prometheus.

The files are read once, when this module is imported.

The page is plain HTML, CSS and ES modules; the only other script is Plotly's bundle, served from the installed `plotly`
package. Nothing comes from another host, and the Content-Security-Policy makes the browser hold us to that.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import importlib.util
import re
from pathlib import Path

from fastapi import APIRouter, Depends, HTTPException, Request
from fastapi.responses import FileResponse, Response

from service.api.prometheus import CONTENT_TYPE
from service.api.routes import Guarded, Needs, Open, TheGrant
from service.api.state import app_state

__all__ = ["router"]

router = APIRouter(include_in_schema=False, route_class=Guarded)

_ANYONE = [Depends(Open(any_query=True))]

_DASHBOARD = Path(__file__).parents[1] / "dashboard"
_TYPES = {".js": "text/javascript", ".css": "text/css"}

# Plotly adds one <style> element, empty, and fills it through the object model, which no policy concerns. So no
# inline style has to be allowed but the empty one.
_EMPTY_STYLE = f"'sha256-{base64.b64encode(hashlib.sha256(b'').digest()).decode()}'"
_CONTENT_SECURITY_POLICY = "; ".join(
    [
        "default-src 'self'",
        f"style-src 'self' {_EMPTY_STYLE}",
        "img-src 'self' data:",  # the empty icon
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
)
_EVERYWHERE = {"X-Content-Type-Options": "nosniff"}
_ON_THE_PAGE = {
    "Content-Security-Policy": _CONTENT_SECURITY_POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",  # for browsers that do not know frame-ancestors
}


def _plotly_bundle() -> tuple[Path, str]:
    """Where Plotly's JavaScript lies, and the version of the package. The package itself is slow to import: it is not.

    Raises RuntimeError where it is not installed, or holds no bundle.
    """
    spec = importlib.util.find_spec("plotly")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        bundle = Path(folder) / "package_data" / "plotly.min.js"
        if bundle.is_file():
            return bundle, importlib.metadata.version("plotly")
    raise RuntimeError("plotly is not installed, or its package_data/plotly.min.js is missing; expected plotly>=6")


class _Asset:
    """A small file held in memory, which a browser may keep but asks about each time: mostly answered by a 304."""

    def __init__(self, body: bytes, media_type: str, headers: dict[str, str]) -> None:
        self.body = body
        self.media_type = media_type
        self.etag = f'"{hashlib.blake2b(body, digest_size=16).hexdigest()}"'
        self.headers = {**_EVERYWHERE, **headers, "ETag": self.etag, "Cache-Control": "no-cache"}

    def reply(self, request: Request) -> Response:
        """The file, or 304 when the request's `If-None-Match` names it."""
        known = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
        if self.etag in known or "*" in known:
            return Response(status_code=304, headers=self.headers)
        return Response(self.body, media_type=self.media_type, headers=self.headers)


def _map_style(bundle: bytes) -> bytes:
    """The id of the style element that Plotly's maps add when the bundle is loaded, unless one of that id is there.

    We have no maps, and the policy would refuse it: the page holds an empty element of the id. Empty where a bundle
    adds no such style.
    """
    found = re.search(rb'document\.getElementById\("([0-9a-f]{64})"\)', bundle)
    return found[1] if found else b""


_BUNDLE, _PLOTLY_VERSION = _plotly_bundle()
_PAGE = _Asset(
    (_DASHBOARD / "index.html")
    .read_bytes()
    .replace(b"{{plotly}}", _PLOTLY_VERSION.encode())
    .replace(b"{{map-style}}", _map_style(_BUNDLE.read_bytes())),
    "text/html",
    _ON_THE_PAGE,
)
_STATIC = {
    file.name: _Asset(file.read_bytes(), _TYPES[file.suffix], {})
    for file in sorted(_DASHBOARD.iterdir())
    if file.suffix in _TYPES
}


@router.api_route("/", methods=["GET", "HEAD"], dependencies=_ANYONE)
async def page(request: Request) -> Response:
    """The dashboard."""
    return _PAGE.reply(request)


@router.api_route("/static/plotly.min.js", methods=["GET", "HEAD"], dependencies=_ANYONE)
async def plotly(v: str = "") -> Response:
    """Plotly's bundle (about 5 MB): kept for good by the browser when asked for by the version that it is.

    Any other `v` is not cached: while a new version is rolled out, a page of one node may ask another node.
    """
    lasting = "public, max-age=31536000, immutable" if v == _PLOTLY_VERSION else "no-cache"
    return FileResponse(_BUNDLE, media_type="text/javascript", headers={**_EVERYWHERE, "Cache-Control": lasting})


@router.api_route("/static/{name}", methods=["GET", "HEAD"], dependencies=_ANYONE)
async def static(name: str, request: Request) -> Response:
    """A module or a style sheet of the dashboard; nothing but what was in its folder at the start."""
    asset = _STATIC.get(name)
    if asset is None:
        raise HTTPException(404)
    return asset.reply(request)


@router.get("/metrics", dependencies=[Depends(Needs("read", any_query=True))])
async def metrics(request: Request, grant: TheGrant) -> Response:
    """Figures of this node, for Prometheus; with a key for some learners only, of these."""
    state = app_state(request.scope)
    return Response(await state.exposition.text(state, grant), media_type=CONTENT_TYPE)
