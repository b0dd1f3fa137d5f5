"""What an error is answered with."""

from __future__ import annotations

from pydantic import Field

from service.api.schemas.document import Document

__all__ = [
    "ProblemDocument",
    "ProblemItem",
]


class ProblemItem(Document):
    """One thing that is wrong."""

    pointer: str = Field(description="JSON pointer to it in the body")
    detail: str


class ProblemDocument(Document):
    """RFC 9457."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    errors: list[ProblemItem]
    request_id: str
