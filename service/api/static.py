"""Serves the dashboard: `/` and `/static/...`.

The files are read once, when this module is imported. The page is plain HTML, CSS and ES modules. The only other script
is Plotly's bundle from the installed `plotly` package. Nothing comes from another host; the Content-Security-Policy
makes the browser enforce that.
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

from service.api.routes import AccessRoute, PublicAccess

__all__ = ["router"]

router = APIRouter(include_in_schema=False, route_class=AccessRoute)

_ANYONE = [Depends(PublicAccess(any_query=True))]

_DASHBOARD = Path(__file__).parents[1] / "dashboard"
_TYPES = {".js": "text/javascript", ".css": "text/css"}

# Plotly adds one empty <style> element and fills it through the object model, to which no policy applies. So the empty
# one is the only inline style to allow.
_EMPTY_STYLE = f"'sha256-{base64.b64encode(hashlib.sha256(b'').digest()).decode()}'"
_CONTENT_SECURITY_POLICY = "; ".join(
    [
        "default-src 'self'",
        f"style-src 'self' {_EMPTY_STYLE}",
        "img-src 'self' data: blob:",  # the empty icon; a chart that is saved as a picture
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
    """Return the path of Plotly's JavaScript and the package's version, without importing the package, which is slow.

    Raises RuntimeError if it is not installed or has no bundle.
    """
    spec = importlib.util.find_spec("plotly")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        bundle = Path(folder) / "package_data" / "plotly.min.js"
        if bundle.is_file():
            return bundle, importlib.metadata.version("plotly")
    raise RuntimeError("plotly is not installed, or its package_data/plotly.min.js is missing; expected plotly>=6")


class _Asset:
    """A small file in memory. A browser caches it and revalidates it each time, mostly with a 304."""

    def __init__(self, body: bytes, media_type: str, headers: dict[str, str]) -> None:
        self.body = body
        self.media_type = media_type
        self.etag = f'"{hashlib.blake2b(body, digest_size=16).hexdigest()}"'
        self.headers = {**_EVERYWHERE, **headers, "ETag": self.etag, "Cache-Control": "no-cache"}

    def reply(self, request: Request) -> Response:
        """Return the file, or 304 if the request's `If-None-Match` names it."""
        etags = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
        if self.etag in etags or "*" in etags:
            return Response(status_code=304, headers=self.headers)
        return Response(self.body, media_type=self.media_type, headers=self.headers)


def _map_style(bundle: bytes) -> bytes:
    """Return the id of the style element that the bundle adds for maps on loading; empty if it adds none.

    The policy would refuse that element, and we have no maps. So the page has an empty element with this id.
    """
    match = re.search(rb'document\.getElementById\("([0-9a-f]{64})"\)', bundle)
    return match[1] if match else b""


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


@router.get("/", dependencies=_ANYONE)
async def page(request: Request) -> Response:
    """Serve the dashboard."""
    return _PAGE.reply(request)


@router.get("/static/plotly.min.js", dependencies=_ANYONE)
async def plotly(v: str = "") -> Response:
    """Serve Plotly's bundle (about 5 MB), which a browser caches for good if `v` is its version.

    Any other `v` is not cached, because a page of one node may ask another node during a rolling update.
    """
    cache = "public, max-age=31536000, immutable" if v == _PLOTLY_VERSION else "no-cache"
    return FileResponse(_BUNDLE, media_type="text/javascript", headers={**_EVERYWHERE, "Cache-Control": cache})


@router.get("/static/{name}", dependencies=_ANYONE)
async def static(name: str, request: Request) -> Response:
    """Serve a module or style sheet that was in the dashboard's folder at the start."""
    asset = _STATIC.get(name)
    if asset is None:
        raise HTTPException(404)
    return asset.reply(request)
