"""`GET /openapi-clients.json`: the OpenAPI document for generators of clients, which know JSON only.

Generators warn of other types of bodies, and some leave out the operation. A client does not need them: whatever has
other types takes and returns JSON, too.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse

from service.api.routes import AccessRoute, PublicAccess

__all__ = ["json_only", "router"]

_JSON = "application/json"

router = APIRouter(include_in_schema=False, route_class=AccessRoute)


@router.get("/openapi-clients.json", dependencies=[Depends(PublicAccess(any_query=True))])
async def client_document(request: Request) -> JSONResponse:
    """Return the document without the bodies that have a form in JSON, too."""
    return JSONResponse(json_only(request.app.openapi()))


def json_only(value: Any) -> Any:
    """Copy a part of an OpenAPI document; where a body may be JSON, keep this type alone."""
    if isinstance(value, list):
        return [json_only(item) for item in value]
    if not isinstance(value, dict):
        return value
    copy = {name: json_only(item) for name, item in value.items()}
    content = copy.get("content")
    if isinstance(content, dict) and _JSON in content:
        copy["content"] = {_JSON: content[_JSON]}
    return copy
