"""Serves what each problem code means: `/problems`, and `/problems/{code}`, the `type` of a problem.

The text is a copy of docs/reference/problems.md, because an installed service has no documents.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Depends
from fastapi import Path as PathParameter
from fastapi.responses import PlainTextResponse

from service.api.routes import AccessRoute, PublicAccess
from service.errors import UnknownPath

__all__ = ["SECTIONS", "router"]

router = APIRouter(
    include_in_schema=False,
    route_class=AccessRoute,
    dependencies=[Depends(PublicAccess(any_query=True))],
    default_response_class=PlainTextResponse,
)
_TEXT = (Path(__file__).parent / "problems.md").read_text()
_PLAIN = re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", _TEXT)  # links lead to other documents
SECTIONS = {match[1]: match[0] for match in re.finditer(r"^## (\S+)\n(?:(?!## ).*\n)*", _PLAIN, re.MULTILINE)}


@router.get("/problems")
async def index() -> str:
    """Return all sections."""
    return _PLAIN


@router.get("/problems/{code}")
async def section(code: Annotated[str, PathParameter(description="of a problem")]) -> str:
    """Return the section of a code. Raises `UnknownPath`."""
    if code not in SECTIONS:
        raise UnknownPath("no problem has this code; /problems lists all")
    return SECTIONS[code]
