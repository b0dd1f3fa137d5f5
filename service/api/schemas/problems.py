"""What an error is answered with."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from service.api.schemas.document import Document

__all__ = [
    "ProblemDocument",
    "ProblemItem",
]


class ProblemItem(Document):
    """One thing that is wrong."""

    pointer: str = Field(description="JSON pointer (RFC 6901) to the value in the body, or `/name` of a parameter")
    detail: str = Field(description="for people; programs read the other members")
    code: Literal["conflict", "invalid", "missing", "unknown"] = Field(
        description="missing: a required member is absent; unknown: there is no member or parameter of this name; "
        "conflict: it does not fit another member; invalid: any other mismatch with `expected`"
    )
    value: str | float | bool | None = Field(
        None, description="the offending scalar, or the unknown name; absent if the value is missing or not a scalar"
    )
    expected: dict[str, Any] | None = Field(None, description="JSON schema of what would be accepted, if it is known")


class ProblemDocument(Document):
    """RFC 9457."""

    type: str = Field(description="path on the service of a text: what the code means, and what to do")
    title: str
    status: int
    code: str
    detail: str
    errors: list[ProblemItem]
    request_id: str
