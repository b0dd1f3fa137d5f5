"""What all documents of the HTTP interface have in common."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Bytes", "Document", "Moment", "PerSecond", "Seconds", "WholeSeconds"]


class Document(BaseModel):
    """One, which has the members that are described and no others."""

    model_config = ConfigDict(extra="forbid")


# Numbers with a unit, which their schemas name as those of the catalogue do: `unit`, beside the bounds.
Seconds = Annotated[float, Field(json_schema_extra={"unit": "seconds"})]
WholeSeconds = Annotated[int, Field(json_schema_extra={"unit": "seconds"})]
Moment = Annotated[float, Field(json_schema_extra={"unit": "seconds since the epoch"})]
PerSecond = Annotated[float, Field(json_schema_extra={"unit": "per second"})]
Bytes = Annotated[int, Field(json_schema_extra={"unit": "bytes"})]
