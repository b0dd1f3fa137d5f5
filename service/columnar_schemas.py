"""What the hot routes read and write besides JSON documents, as the OpenAPI page shows it: columns, and lines."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from service.columnar import MSGPACK
from service.ndjson import NDJSON
from service.schemas import ClassCounts, Source, request_body

__all__ = ["MODELS", "hot_body", "hot_reply"]


class _Columns(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Array(_Columns):
    """Numbers as they are in memory: little-endian, in C order."""

    dtype: Literal["float32", "float64", "int8", "int32", "int64", "uint64"]
    shape: list[int]
    data: bytes = Field(description="MessagePack bin of as many bytes as dtype and shape say")


class Csr(_Columns):
    """Sparse rows: row i has the values indptr[i] to indptr[i + 1], in columns that ascend."""

    indptr: Array = Field(description="int32 or int64, (n + 1,)")
    indices: Array = Field(description="int32 or int64, (nnz,)")
    values: Array = Field(description="float32 or float64, (nnz,)")


class _Features(_Columns):
    x: Array | None = Field(None, description="dense: float32 or float64, (n, dim)")
    csr: Csr | None = Field(None, description="sparse")
    features: dict[str, Array | list[Any]] | None = Field(
        None, description="named and table: a column for each name; nil where an event lacks it"
    )
    ids: Array | list[str | int | None] | None = Field(None, description="uint64, or a list")
    times: Array | list[float | None] | None = Field(None, description="float32 or float64; NaN or nil: none")


class ColumnarEvents(_Features):
    """n events as columns, in MessagePack; their features are one of `x`, `csr`, `features`."""


class ColumnarUpdate(_Features):
    """n labelled events as columns, in MessagePack; their features are one of `x`, `csr`, `features`."""

    labels: Array | list[int | bool] = Field(description="int8, float32 or float64")
    weights: Array | list[float | None] | None = Field(None, description="float32 or float64; nil: 1")
    source: Source | None = None


class ColumnarLabels(_Columns):
    """Labels of n events that were served, as columns, in MessagePack."""

    ids: Array | list[str | int] = Field(description="uint64, or a list")
    labels: Array | list[int | bool] = Field(description="int8, float32 or float64")
    weights: Array | list[float | None] | None = Field(None, description="float32 or float64; nil: 1")
    times: Array | list[float | None] | None = Field(None, description="when the labels became known; NaN or nil: now")


class _Sums(_Columns):
    applied: int
    duplicate: int
    relabelled: int
    unknown: int
    expired: int
    position: int = Field(description="of the newest record that was applied")
    class_counts: ClassCounts | dict[str, int]


class ColumnarLearnt(_Sums):
    """What became of n labelled events, in their order. An ordinal learner has `ranks` and no probabilities."""

    statuses: list[str]
    status: Array = Field(description="int8: indices into `statuses`")
    scores: Array = Field(description="float64; NaN where nothing was learnt")
    probabilities: Array | None = Field(None, description="float64; likewise")
    thresholds: Array | None = Field(None, description="float64; likewise")
    decisions: Array | None = Field(None, description="int8; -128 where there is none")
    ranks: Array | None = Field(None, description="int8; -128 where there is none")


class ColumnarScores(_Columns):
    """What is said of n events, in their order. An ordinal learner has `ranks` and no probabilities."""

    position: int
    ready: bool
    remembered: int
    stale_seconds: float
    scores: Array = Field(description="float64")
    probabilities: Array | None = Field(None, description="float64")
    thresholds: Array | None = Field(None, description="float64")
    labels: Array | None = Field(None, description="int8; -128 where there is none")
    ranks: Array | None = Field(None, description="int8; -128 where there is none")
    explanations: list[dict[str, Any]] | None = None


class Taken(_Sums):
    """A line of the reply to labelled events that came as lines: everything up to it is in the log, and learnt."""

    lines: int = Field(description="of the body that have been taken by now")
    bytes: int = Field(description="of the body that have been taken by now, expanded")


MODELS: list[type[BaseModel]] = [ColumnarEvents, ColumnarUpdate, ColumnarLabels, ColumnarLearnt, ColumnarScores, Taken]


def hot_body(
    model: type[BaseModel], examples: dict[str, Any], columns: type[BaseModel], line: type[BaseModel]
) -> dict[str, Any]:
    """The OpenAPI entry of a body of a hot route, in every coding."""
    entry = request_body(model, examples)
    entry["requestBody"]["content"] |= _others(columns, line, "one event a line; a body of lines may be of any length")
    return entry


def hot_reply(columns: type[BaseModel], line: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI entry of the reply in the other codings."""
    last = "where a later line is refused, the last line is a problem document, with `lines` and `bytes`"
    return {200: {"content": _others(columns, line, last)}}


def _others(columns: type[BaseModel], line: type[BaseModel], description: str) -> dict[str, Any]:
    lines = {"allOf": [{"$ref": f"#/components/schemas/{line.__name__}"}], "description": description}
    return {
        MSGPACK.media_type: {"schema": {"$ref": f"#/components/schemas/{columns.__name__}"}},
        NDJSON.media_type: {"schema": lines},
    }
