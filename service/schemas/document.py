"""What all documents of the HTTP interface have in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

__all__ = ["Document"]


class Document(BaseModel):
    """One, which has the members that are described and no others."""

    model_config = ConfigDict(extra="forbid")
