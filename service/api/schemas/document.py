"""Common parts of the models: the base class, and numbers with a unit."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from rarestream.values import EARLIEST_TIME

__all__ = ["Bytes", "Document", "EventTime", "IsoTime", "Moment", "PerSecond", "Seconds", "WholeSeconds"]


class Document(BaseModel):
    """A document without further members."""

    model_config = ConfigDict(extra="forbid")


# Numbers with a unit. Their schemas have it as `unit`, as those of the catalogue do.
Seconds = Annotated[float, Field(json_schema_extra={"unit": "seconds"})]
WholeSeconds = Annotated[int, Field(json_schema_extra={"unit": "seconds"})]
Moment = Annotated[float, Field(json_schema_extra={"unit": "seconds since the epoch"})]
IsoTime = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
EventTime = (
    Annotated[float, Field(ge=EARLIEST_TIME, le=1e12, json_schema_extra={"unit": "seconds since the epoch"})] | IsoTime
)  # as requests give it
PerSecond = Annotated[float, Field(json_schema_extra={"unit": "per second"})]
Bytes = Annotated[int, Field(json_schema_extra={"unit": "bytes"})]
