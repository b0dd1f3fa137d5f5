"""Decode JSON bodies of update, predict and labels to columns. Other codings give the same columns.

Compiled code (`kernels`) scans dense events. A typed decoder that knows the members of an event reads all others, and
bodies that the scanner finds unusual. If one of them, or a check of the columns, refuses a body, `json_errors.py`
decodes it again. That is slow, but it finds every bad event, and lists the first hundred.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from learners import MAX_WEIGHT, Config, InvalidInput, Segment, show
from learners.features import Dense, Features
from learners.numerics import Rows, Vector
from rarestream.values import EARLIEST_TIME, id_text, parse_time
from service import clock
from service.errors import BadBody, TooLarge
from service.wire.json_errors import AHEAD, MAX_EVENTS, TOP, ErrorReport, segments_of, source_problems
from service.wire.kernels import RefusedEvents, ScannedEvents, scan
from service.wire.requests import Events, Labelled

__all__ = [
    "Malformed",
    "decode_events",
    "decode_json",
    "decode_labels",
    "decode_settings",
    "decode_update",
    "decode_value",
    "labelled_by_report",
    "latest_time",
    "with_clock",
]

MAX_SETTINGS_BYTES = 2**20  # of a body that is no events or labels


class _JsonSource(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    offset: int | None = None
    offsets: list[int] | None = None
    after: int | None = None


class _JsonEvent(msgspec.Struct, forbid_unknown_fields=True):
    id: str | int | float | None = None
    x: list[float] | None = None
    indices: list[int] | None = None
    values: list[float] | None = None
    features: dict[str, Any] | None = None
    time: float | str | None = None


class _JsonLabelledEvent(_JsonEvent, forbid_unknown_fields=True):
    label: bool | int | float | None = None
    weight: float | None = None


class _JsonLabel(msgspec.Struct, forbid_unknown_fields=True):
    id: str | int | float
    label: bool | int | float
    weight: float | None = None
    time: float | str | None = None


class _JsonUpdate(msgspec.Struct, forbid_unknown_fields=True):
    events: list[_JsonLabelledEvent]
    source: _JsonSource | None = None


class _JsonPredict(msgspec.Struct, forbid_unknown_fields=True):
    events: list[_JsonEvent]


class _JsonLabels(msgspec.Struct, forbid_unknown_fields=True):
    events: list[_JsonLabel]


_Hook = Callable[[list[tuple[str, Any]]], dict[str, Any]]

_update_decoder = msgspec.json.Decoder(_JsonUpdate)
_predict_decoder = msgspec.json.Decoder(_JsonPredict)
_source_decoder = msgspec.json.Decoder(_JsonSource)
_labels_decoder = msgspec.json.Decoder(_JsonLabels)


class _FastPathMiss(Exception):
    """The fast decoders do not take this body; the error report says why."""


# what ends the fast way; OverflowError: a whole number beyond float64
_NOT_FAST = (
    msgspec.DecodeError, UnicodeError, OverflowError, RecursionError, InvalidInput, RefusedEvents, _FastPathMiss
)  # fmt: skip


class Malformed(ValueError):
    """Bytes are not a JSON value: the reason, and the line and column (from 1) if the parser knows them."""

    def __init__(self, reason: str, line: int | None = None, column: int | None = None) -> None:
        self.reason = reason
        self.column = column
        super().__init__(reason if line is None else f"{reason} at line {line}, column {column}")


def decode_json(body: bytes) -> Any:
    """Decode any JSON value; the last of an object's members with the same name wins.

    Raises `BadBody` if the body is malformed, not UTF-8, or nested too deeply.
    """
    return _decode_body(body, None)


def decode_settings(body: bytes) -> Any:
    """Decode JSON settings.

    Raises `BadBody` as `decode_json` does, and for a member that an object has twice. Raises `TooLarge` for a body that
    would keep the event loop busy for long.
    """
    if len(body) > MAX_SETTINGS_BYTES:
        raise TooLarge(f"the settings have {len(body)} bytes; at most {MAX_SETTINGS_BYTES} are taken")
    return _decode_body(body, _distinct)


def _decode_body(body: bytes, hook: _Hook | None) -> Any:
    try:
        return decode_value(body, hook)
    except Malformed as error:
        raise BadBody(f"the body {error}") from None


def _distinct(members: list[tuple[str, Any]]) -> dict[str, Any]:
    distinct = dict(members)
    if len(distinct) < len(members):
        counts = Counter(name for name, _ in members)
        raise Malformed(f"has an object with the member {show(counts.most_common(1)[0][0])} more than once")
    return distinct


def decode_value(text: bytes, hook: _Hook | None = None) -> Any:
    """Decode a JSON value, perhaps after a byte order mark; `hook` makes objects of members. Raises `Malformed`."""
    try:
        return json.loads(text.decode("utf-8-sig"), object_pairs_hook=hook)
    except UnicodeDecodeError as error:
        raise Malformed(f"is not UTF-8: byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise Malformed(f"is not JSON: {error.msg}", error.lineno, error.colno) from None
    except Malformed:
        raise
    except ValueError:
        raise Malformed("has a whole number of more than 4,300 digits") from None
    except RecursionError:
        raise Malformed("is nested too deeply") from None


def decode_update(body: bytes, config: Config) -> tuple[Labelled, Any]:
    """Decode labelled events to columns, and the features as they were sent: a list, or a matrix of dense ones.

    Raises `BadBody` or `Invalid`, which lists every bad event.
    """
    try:
        return _scanned_update(body, config) or _labelled(_update_decoder.decode(body), config)
    except _NOT_FAST:
        return labelled_by_report(ErrorReport(config, "update"), decode_json(body))


def decode_labels(body: bytes, config: Config) -> tuple[Labelled, Any]:
    """Decode labels of served events, by id, to columns without features. Raises as `decode_update`."""
    try:
        late = _labels_decoder.decode(body).events
        if not 0 < len(late) <= MAX_EVENTS:
            raise _FastPathMiss
        events = [_JsonLabelledEvent(id=item.id, label=item.label, weight=item.weight, time=item.time) for item in late]
        return _columns(events, [], (), config), []
    except _NOT_FAST:
        return labelled_by_report(ErrorReport(config, "labels"), decode_json(body))


def decode_events(body: bytes, config: Config) -> tuple[Events, Any]:
    """Decode unlabelled events to columns, and the features as they were sent: a list, or a matrix of dense ones.

    Raises as `decode_update`.
    """
    try:
        scanned = _scanned(body, config, labelled=False)
        if scanned is not None:
            times = _past(scanned.times)
            costs, values = config.costs(scanned.rows), config.segment_values(scanned.rows)
            return Events(scanned.rows, scanned.ids, times, costs, segment_values=values), scanned.rows
        events = _predict_decoder.decode(body).events
        carried = _carried(events, config.features)
        rows = config.encode(carried, typed=True)
        fields = config.features.field_names(carried)
        values = config.segment_values(carried)
        return Events(rows, _ids(events), _times(events), config.costs(carried), fields, None, values), carried
    except _NOT_FAST:
        plain, carried = ErrorReport(config, "predict").read(decode_json(body))
        ids = tuple(id_text(event.get("id")) for event in plain)
        times = _optional([event.get("time") for event in plain], math.nan)
        rows, fields = config.encode(carried), config.features.field_names(carried)
        values = config.segment_values(carried)
        return Events(rows, ids, times, config.costs(carried), fields, None, values), carried


# The fast way: dense events in one pass of compiled code


def _scanned(body: bytes, config: Config, labelled: bool) -> ScannedEvents | None:
    features = config.features
    return scan(body, features.dim, labelled, MAX_EVENTS) if isinstance(features, Dense) else None


def _scanned_update(body: bytes, config: Config) -> tuple[Labelled, Any] | None:
    """Return labelled dense events that all have features; None if the body has others."""
    scanned = _scanned(body, config, labelled=True)
    if scanned is None or scanned.labels is None or (scanned.flags and config.labels.ranks is not None):
        return None
    n = len(scanned.labels)
    segments: tuple[Segment, ...] = ()
    if scanned.source is not None:
        segments = _segments(_source_decoder.decode(scanned.source), n)
    carried = np.ones(n, dtype=np.bool_)
    costs = config.costs(scanned.rows)
    columns = _checked(
        scanned.rows, carried, scanned.labels, scanned.weights, scanned.times, scanned.ids, segments, costs, config
    )
    return columns._replace(segment_values=config.segment_values(scanned.rows)), scanned.rows


# The fast way: any events, by a typed decoder


def _carried(events: Sequence[_JsonEvent], features: Features) -> list[Any]:
    """Return what each event carries for its features; raise `_FastPathMiss` if the learner takes something else."""
    if not 0 < len(events) <= MAX_EVENTS:
        raise _FastPathMiss
    member = features.MEMBER
    if member == "indices":
        pairs = [(event.indices, event.values) for event in events]
        if any(item is None or two is None for item, two in pairs):
            raise _FastPathMiss
        if any(event.x is not None or event.features is not None for event in events):
            raise _FastPathMiss
        return pairs
    carried: list[Any] = [event.x for event in events] if member == "x" else [event.features for event in events]
    if any(item is None for item in carried):
        raise _FastPathMiss
    if any(event.indices is not None or event.values is not None for event in events):
        raise _FastPathMiss
    if any((event.features if member == "x" else event.x) is not None for event in events):
        raise _FastPathMiss
    return carried


def _ids(events: Sequence[_JsonEvent]) -> tuple[str | None, ...]:
    try:
        return tuple(id_text(event.id) for event in events)
    except ValueError:
        raise _FastPathMiss from None


def _labelled(parsed: _JsonUpdate, config: Config) -> tuple[Labelled, Any]:
    events = parsed.events
    if not 0 < len(events) <= MAX_EVENTS:
        raise _FastPathMiss
    segments = () if parsed.source is None else _segments(parsed.source, len(events))
    local = [event for event in events if not _featureless(event)]
    carried = _carried(local, config.features) if local else []
    return _columns(events, carried, segments, config), carried


def _segments(source: _JsonSource, n: int) -> tuple[Segment, ...]:
    """Return the segment of n events of a source."""
    value = msgspec.to_builtins(source)
    if source_problems(value, n):
        raise _FastPathMiss
    return segments_of(value, n)


def _featureless(event: _JsonLabelledEvent) -> bool:
    return event.x is None and event.features is None and event.indices is None and event.values is None


def _columns(
    events: Sequence[_JsonLabelledEvent], features: list[Any], segments: tuple[Segment, ...], config: Config
) -> Labelled:
    """Return the columns of labelled events; `features`: what those with features carry."""
    rows = config.encode(features, typed=True)
    carried = np.array([not _featureless(event) for event in events], dtype=np.bool_)
    ids = _ids(events)
    if any(item is None for item, has in zip(ids, carried.tolist(), strict=True) if not has):
        raise _FastPathMiss
    if config.labels.ranks is not None and any(event.label is True for event in events):
        raise _FastPathMiss
    labels = np.array([event.label for event in events], dtype=np.float64)  # None: NaN
    weights = _optional([event.weight for event in events], 1.0)
    times = _moments(events)
    columns = _checked(rows, carried, labels, weights, times, ids, segments, config.costs(features), config)
    values = config.segment_values(features)
    return columns._replace(fields=config.features.field_names(features), segment_values=values)


def _checked(
    rows: Rows,
    carried: NDArray[np.bool_],
    labels: Vector,
    weights: Vector | None,
    times: Vector | None,
    ids: tuple[str | None, ...],
    segments: tuple[Segment, ...],
    costs: Vector | None,
    config: Config,
) -> Labelled:
    """Return the labelled events of columns if all are valid; else raise `_FastPathMiss`."""
    kind = config.labels
    if not kind.good(labels).all():
        raise _FastPathMiss
    if weights is not None and not ((weights >= 0) & (weights <= MAX_WEIGHT)).all():
        raise _FastPathMiss
    times = with_clock(_past(times), len(labels), config)
    return Labelled(
        rows=rows,
        carried=carried,
        labels=kind.columns(labels),
        weights=weights,
        times=times,
        ids=ids if any(ids) else None,
        segments=segments,
        costs=costs,
    )


def _times(events: Sequence[_JsonEvent]) -> Vector | None:
    return _past(_moments(events))


def _moments(events: Sequence[_JsonEvent]) -> Vector | None:
    """Return the times of events in seconds, (n,); NaN for a missing one. Raises `_FastPathMiss` for other text."""
    times = [event.time for event in events]
    if str in map(type, times):
        seconds = [parse_time(value) if isinstance(value, str) else value for value in times]
        if seconds.count(None) > times.count(None):
            raise _FastPathMiss
        times = list(seconds)
    return _optional(cast(list[float | None], times), math.nan)


def _past(times: Vector | None) -> Vector | None:
    """Check that no time is out of bounds, or ahead of now by more than clocks may differ, and return the times."""
    if times is not None and ((times < EARLIEST_TIME) | (times > latest_time())).any():
        raise _FastPathMiss
    return times


def latest_time() -> float:
    """Return the largest time that an event may have now."""
    return clock.now() + AHEAD


def with_clock(times: Vector | None, n: int, config: Config) -> Vector | None:
    """Return the times of n labelled events, (n,); if the learner needs a clock, missing ones become now."""
    if not config.uses_clock:
        return times
    now = clock.now()
    return np.full(n, now) if times is None else np.where(np.isnan(times), now, times)


def _optional(values: list[float | None], missing: float) -> Vector | None:
    if all(value is None for value in values):
        return None
    return np.array([missing if value is None else value for value in values], dtype=np.float64)


# The error report


def labelled_by_report(report: ErrorReport, body: Any) -> tuple[Labelled, Any]:
    """Return the labelled events of parsed JSON as `decode_update` does. Raises `Invalid` with every problem."""
    events, carried = report.read(body)
    parsed = [
        msgspec.convert({key: event.get(key) for key in TOP}, _JsonLabelledEvent, strict=False) for event in events
    ]
    source = body.get("source")
    segments: tuple[Segment, ...] = ()
    if source is not None:
        segments = segments_of(source, len(events))
    return _columns(parsed, carried, segments, report.config), carried
