"""What is no part of /v1: the dashboard's files, `/` and `/static/...`, and `/metrics` for Prometheus.

The files are read once, when this module is imported.

The page is plain HTML, CSS and one module; the only other script is Plotly's bundle, served from the installed `plotly`
package. Nothing comes from another host, and the Content-Security-Policy makes the browser hold us to that.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, Response

from service.exposition import CONTENT_TYPE, Exposition

__all__ = ["router"]

router = APIRouter(include_in_schema=False)

_DASHBOARD = Path(__file__).parent / "dashboard"

_CONTENT_SECURITY_POLICY = "; ".join(
    [
        "default-src 'self'",
        "style-src 'self' 'unsafe-inline'",  # Plotly adds a <style> element and style attributes
        "img-src 'self' data: blob:",  # the empty icon; Plotly turns a chart into a picture through a blob
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


_BUNDLE, _PLOTLY_VERSION = _plotly_bundle()
_PAGE = _Asset(
    (_DASHBOARD / "index.html").read_bytes().replace(b"{{plotly}}", _PLOTLY_VERSION.encode()),
    "text/html",
    _ON_THE_PAGE,
)
_STATIC = {
    "dashboard.js": _Asset((_DASHBOARD / "dashboard.js").read_bytes(), "text/javascript", {}),
    "dashboard.css": _Asset((_DASHBOARD / "dashboard.css").read_bytes(), "text/css", {}),
}


@router.api_route("/", methods=["GET", "HEAD"])
async def page(request: Request) -> Response:
    """The dashboard."""
    return _PAGE.reply(request)


@router.api_route("/static/dashboard.js", methods=["GET", "HEAD"])
async def module(request: Request) -> Response:
    """What moves the dashboard."""
    return _STATIC["dashboard.js"].reply(request)


@router.api_route("/static/dashboard.css", methods=["GET", "HEAD"])
async def style(request: Request) -> Response:
    """How it looks."""
    return _STATIC["dashboard.css"].reply(request)


@router.api_route("/static/plotly.min.js", methods=["GET", "HEAD"])
async def plotly(v: str = "") -> Response:
    """Plotly's bundle (about 5 MB): kept for good by the browser when asked for by the version that it is.

    Any other `v` is not cached: while a new version is rolled out, a page of one node may ask another node.
    """
    lasting = "public, max-age=31536000, immutable" if v == _PLOTLY_VERSION else "no-cache"
    return FileResponse(_BUNDLE, media_type="text/javascript", headers={**_EVERYWHERE, "Cache-Control": lasting})


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    """Figures of this node, for Prometheus."""
    exposition: Exposition = request.app.state.exposition
    return Response(await exposition.text(request.app.state), media_type=CONTENT_TYPE)
