"""Common parts of the models: the base class, and numbers with a unit."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Bytes", "Document", "Moment", "PerSecond", "Seconds", "WholeSeconds"]


class Document(BaseModel):
    """A document without further members."""

    model_config = ConfigDict(extra="forbid")


# Numbers with a unit. Their schemas have it as `unit`, as those of the catalogue do.
Seconds = Annotated[float, Field(json_schema_extra={"unit": "seconds"})]
WholeSeconds = Annotated[int, Field(json_schema_extra={"unit": "seconds"})]
Moment = Annotated[float, Field(json_schema_extra={"unit": "seconds since the epoch"})]
PerSecond = Annotated[float, Field(json_schema_extra={"unit": "per second"})]
Bytes = Annotated[int, Field(json_schema_extra={"unit": "bytes"})]
