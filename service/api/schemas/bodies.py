"""What the hot routes read and write besides JSON documents, as the OpenAPI page shows it: columns, and lines."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from service.api.schemas.document import Bytes, Moment, Seconds, WholeSeconds
from service.api.schemas.events import ClassCounts, Source
from service.api.schemas.problems import ProblemDocument
from service.wire import ENCODINGS, MAX_EVENTS, MSGPACK, NDJSON

__all__ = ["MODELS", "hot_body", "hot_reply", "request_body"]


class _Columns(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Array(_Columns):
    """Numbers as they are in memory: little-endian, in C order."""

    dtype: Literal["float32", "float64", "bool", "int8", "uint8", "int32", "int64", "uint64"]
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
    ids: Array | list[str | int | None] | None = Field(None, description="int32, int64 or uint64, or a list")
    times: Array | list[Moment | None] | None = Field(None, description="seconds since the epoch; NaN or nil: none")


class ColumnarEvents(_Features):
    """n events as columns, in MessagePack; their features are one of `x`, `csr`, `features`."""


class ColumnarUpdate(_Features):
    """n labelled events as columns, in MessagePack; their features are one of `x`, `csr`, `features`."""

    labels: Array | list[int | bool] = Field(description="any dtype, or a list")
    weights: Array | list[float | None] | None = Field(None, description="nil: 1")
    source: Source | None = None


class ColumnarLabels(_Columns):
    """Labels of n events that were served, as columns, in MessagePack."""

    ids: Array | list[str | int] = Field(description="int32, int64 or uint64, or a list")
    labels: Array | list[int | bool] = Field(description="any dtype, or a list")
    weights: Array | list[float | None] | None = Field(None, description="nil: 1")
    times: Array | list[Moment | None] | None = Field(None, description="when the labels became known; NaN or nil: now")


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
    stale_seconds: Seconds
    scores: Array = Field(description="float64")
    probabilities: Array | None = Field(None, description="float64")
    thresholds: Array | None = Field(None, description="float64; NaN where there is none")
    labels: Array | None = Field(None, description="int8; -128 where there is none")
    ranks: Array | None = Field(None, description="int8; -128 where there is none")
    explanations: list[dict[str, Any]] | None = None


class _Lines(_Columns):
    """How far a body of lines was taken."""

    lines: int = Field(description="of the body that have been taken by now")
    bytes: Bytes = Field(description="of the body that have been taken by now, expanded")


class Taken(_Sums, _Lines):
    """A line of the reply to labelled events that came as lines: everything up to it is in the log, and learnt."""


class LearntLines(_Sums, _Lines):
    """The last line of that reply: all lines were taken. The counts are those of the whole body."""

    done: Literal[True]


class ScoredLines(_Lines):
    """The last line of the reply to a predict that came as lines: all were scored."""

    done: Literal[True]
    position: int
    ready: bool
    remembered: int
    stale_seconds: Seconds


class RefusedLines(ProblemDocument, _Lines):
    """The last line of a reply that has begun, where a later line was refused: those up to `lines` stand."""

    done: Literal[False]
    retry_after: WholeSeconds | None = Field(None, description="seconds, as in the header that has gone out by then")


MODELS: list[type[BaseModel]] = [
    ColumnarEvents,
    ColumnarUpdate,
    ColumnarLabels,
    ColumnarLearnt,
    ColumnarScores,
    Taken,
    LearntLines,
    ScoredLines,
    RefusedLines,
]

_ENCODING = {
    "name": "Content-Encoding",
    "in": "header",
    "description": "how the body is compressed; it is expanded as it comes, within the limits of a body",
    "schema": {"type": "string", "enum": list(ENCODINGS), "default": ENCODINGS[0]},
}
_COLUMNS = f"""At most {MAX_EVENTS} events. A MessagePack map; the example shows it in JSON, with `data` in base64."""
_EACH = "One event a line; a body of lines may be of any length, and is learnt and answered while it comes."


def hot_body(
    model: type[BaseModel],
    examples: dict[str, Any],
    columns: type[BaseModel],
    line: type[BaseModel],
    shown: tuple[dict[str, Any], str],
) -> dict[str, Any]:
    """The OpenAPI entry of a body of a hot route, in every coding; `shown`: an example of columns, and one of lines."""
    entry = request_body(model, examples)
    packed, lines = ({"examples": {"two events": {"value": one}}} for one in shown)
    entry["requestBody"]["content"] |= {
        MSGPACK.media_type: {"schema": _of(columns, _COLUMNS), **packed},
        NDJSON.media_type: {"schema": _of(line, _EACH), **lines},
    }
    return {**entry, "parameters": [_ENCODING]}


def hot_reply(
    columns: type[BaseModel], line: type[BaseModel], last: type[BaseModel]
) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI entry of the reply in the other codings; `last`: the last line where all were taken."""
    lines = {
        "anyOf": [{"$ref": _place(one)} for one in (line, last, RefusedLines)],
        "description": f"One of these on each line. The last is {last.__name__}, or RefusedLines; without either the "
        "reply was cut.",
    }
    return {
        200: {
            "content": {
                MSGPACK.media_type: {"schema": {"$ref": _place(columns)}},
                NDJSON.media_type: {"schema": lines},
            }
        }
    }


def _of(model: type[BaseModel], description: str) -> dict[str, Any]:
    return {"allOf": [{"$ref": _place(model)}], "description": description}


def _place(model: type[BaseModel]) -> str:
    return f"#/components/schemas/{model.__name__}"


def request_body(model: type[BaseModel], examples: dict[str, Any]) -> dict[str, Any]:
    """The OpenAPI entry of a body that the route decodes itself."""
    named = {name: {"value": value} for name, value in examples.items()}
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema, "examples": named}}}}
