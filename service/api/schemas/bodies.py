"""OpenAPI models of updates, predictions and labels in MessagePack (columns) and NDJSON (lines)."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from service.api.schemas.document import Bytes, EventTime, Seconds, WholeSeconds
from service.api.schemas.events import ClassCounts, Source
from service.api.schemas.problems import ProblemDocument
from service.wire import ENCODINGS, MAX_EVENTS, MSGPACK, NDJSON

__all__ = ["MODELS", "operation_body", "operation_reply", "request_body"]


class _StrictModel(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ColumnArray(_StrictModel):
    """Numbers in their memory layout: little-endian, in C order."""

    dtype: Literal["float32", "float64", "bool", "int8", "uint8", "int32", "int64", "uint64"]
    shape: list[int]
    data: bytes = Field(description="MessagePack bin of as many bytes as dtype and shape say")


class Csr(_StrictModel):
    """Sparse rows: row i has the values indptr[i] to indptr[i + 1], in ascending columns."""

    indptr: ColumnArray = Field(description="int32 or int64, (n + 1,)")
    indices: ColumnArray = Field(description="int32 or int64, (nnz,)")
    values: ColumnArray = Field(description="float32 or float64, (nnz,)")


class _FeatureColumns(_StrictModel):
    x: ColumnArray | None = Field(None, description="dense: float32 or float64, (n, dim)")
    csr: Csr | None = Field(None, description="sparse")
    features: dict[str, ColumnArray | list[Any]] | None = Field(
        None, description="named and table: a column for each name; nil where an event lacks it"
    )
    ids: ColumnArray | list[str | int | None] | None = Field(None, description="int32, int64 or uint64, or a list")
    times: ColumnArray | list[EventTime | None] | None = Field(
        None, description="seconds since the epoch, in a list also ISO 8601; NaN or nil: none"
    )


class ColumnarEvents(_FeatureColumns):
    """n events as columns, in MessagePack; their features are one of `x`, `csr`, `features`."""


class ColumnarUpdate(_FeatureColumns):
    """n labelled events as columns, in MessagePack; their features are one of `x`, `csr`, `features`."""

    labels: ColumnArray | list[int | bool] = Field(description="any dtype, or a list")
    weights: ColumnArray | list[float | None] | None = Field(None, description="nil: 1")
    source: Source | None = None


class ColumnarLabels(_StrictModel):
    """Labels of n served events as columns, in MessagePack."""

    ids: ColumnArray | list[str | int] = Field(description="int32, int64 or uint64, or a list")
    labels: ColumnArray | list[int | bool] = Field(description="any dtype, or a list")
    weights: ColumnArray | list[float | None] | None = Field(None, description="nil: 1")
    times: ColumnArray | list[EventTime | None] | None = Field(
        None, description="when the labels became known; NaN or nil: now"
    )


class _StatusCounts(_StrictModel):
    applied: int
    duplicate: int
    relabelled: int
    unknown: int
    expired: int
    position: int = Field(description="of the newest record that was applied")
    class_counts: ClassCounts | dict[str, int]


class ColumnarLearnt(_StatusCounts):
    """Results of n labelled events, in their order. An ordinal learner has `ranks` and no probabilities."""

    statuses: list[str]
    status: ColumnArray = Field(description="int8: indices into `statuses`")
    scores: ColumnArray = Field(description="float64; NaN where nothing was learnt")
    probabilities: ColumnArray | None = Field(None, description="float64; likewise")
    thresholds: ColumnArray | None = Field(None, description="float64; likewise")
    decisions: ColumnArray | None = Field(None, description="int8; -128 if undefined")
    ranks: ColumnArray | None = Field(None, description="int8; -128 if undefined")


class ColumnarScores(_StrictModel):
    """Predictions for n events, in their order. An ordinal learner has `ranks` and no probabilities."""

    position: int
    ready: bool
    remembered: int
    stale_seconds: Seconds
    scores: ColumnArray = Field(description="float64")
    probabilities: ColumnArray | None = Field(None, description="float64")
    thresholds: ColumnArray | None = Field(None, description="float64; NaN if undefined")
    labels: ColumnArray | None = Field(None, description="int8; -128 if undefined")
    ranks: ColumnArray | None = Field(None, description="int8; -128 if undefined")
    explanations: list[dict[str, Any]] | None = None


class _LineProgress(_StrictModel):
    """Progress through a body of lines."""

    lines: int = Field(description="of the body, processed so far")
    bytes: Bytes = Field(description="of the body, processed so far, after decompression")


class LearntProgressLine(_StatusCounts, _LineProgress):
    """A line of the reply to labelled events sent as lines: everything up to it is in the log and learnt."""


class LearntLines(_StatusCounts, _LineProgress):
    """The last line of that reply: all lines were processed. The counts are those of the whole body."""

    done: Literal[True]


class ScoredLines(_LineProgress):
    """The last line of the reply to a predict sent as lines: all were scored."""

    done: Literal[True]
    position: int
    ready: bool
    remembered: int
    stale_seconds: Seconds


class RefusedLines(ProblemDocument, _LineProgress):
    """The last line of a reply if a later line was refused: the lines before it, as many as `lines`, stay valid."""

    done: Literal[False]
    retry_after: WholeSeconds | None = Field(
        None, description="seconds; replaces the header, because the headers were sent before"
    )


MODELS: list[type[BaseModel]] = [
    ColumnarEvents,
    ColumnarUpdate,
    ColumnarLabels,
    ColumnarLearnt,
    ColumnarScores,
    LearntProgressLine,
    LearntLines,
    ScoredLines,
    RefusedLines,
]

_ENCODING = {
    "name": "Content-Encoding",
    "in": "header",
    "description": "compression of the body; it is decompressed while it arrives, within the limits of a body",
    "schema": {"type": "string", "enum": list(ENCODINGS), "default": ENCODINGS[0]},
}
_COLUMNS = f"""At most {MAX_EVENTS} events. A MessagePack map; the example shows it in JSON, with `data` in base64."""
_EACH = "One event per line. A body of lines may have any length; it is processed and answered while it arrives."


def operation_body(
    model: type[BaseModel],
    examples: dict[str, Any],
    columns: type[BaseModel],
    line: type[BaseModel],
    pair: tuple[dict[str, Any], str],
) -> dict[str, Any]:
    """Return the OpenAPI entry of an operation's body in every coding; `pair`: an example of columns and of lines."""
    entry = request_body(model, examples)
    packed, lines = ({"examples": {"two events": {"value": example}}} for example in pair)
    entry["requestBody"]["content"] |= {
        MSGPACK.media_type: {"schema": _of(columns, _COLUMNS), **packed},
        NDJSON.media_type: {"schema": _of(line, _EACH), **lines},
    }
    return {**entry, "parameters": [_ENCODING]}


def operation_reply(
    columns: type[BaseModel], line: type[BaseModel], last: type[BaseModel]
) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI entry of the reply in the other codings; `last`: the last line of a success."""
    lines = {
        "anyOf": [{"$ref": _place(model)} for model in (line, last, RefusedLines)],
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


def request_body(model: type[BaseModel] | dict[str, Any], examples: dict[str, Any]) -> dict[str, Any]:
    """Return the OpenAPI entry of a body that the route decodes itself; `model` may be a schema."""
    named = {name: {"value": value} for name, value in examples.items()}
    schema = model if isinstance(model, dict) else {"$ref": _place(model)}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema, "examples": named}}}}
