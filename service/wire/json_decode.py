"""Bodies of the hot routes to columns. JSON here; other codings give the same columns.

Dense events are scanned by compiled code (`scan/`), all others decoded by a typed decoder that knows the event's
members. Whatever these or the columns refuse is decoded once more, slowly, by `precise.py`, which finds every bad event
and points at it: the first hundred are listed.
"""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from learners import MAX_TIME, MAX_WEIGHT, Config, InvalidInput, Segment, show
from learners.features import Dense, Features
from learners.numerics import Rows, Vector
from service.errors import BadBody
from service.wire.json_errors import AHEAD, MAX_EVENTS, TOP, Precise, good_id, segments_of, source_problems
from service.wire.kernels import Scanned, scan
from service.wire.requests import Events, Labelled

__all__ = [
    "Malformed",
    "decode_events",
    "decode_json",
    "decode_labels",
    "decode_settings",
    "decode_update",
    "decode_value",
    "latest_time",
    "precisely_labelled",
    "with_clock",
]


class _JsonSource(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    offset: int | None = None
    offsets: list[int] | None = None
    after: int | None = None


class _JsonEvent(msgspec.Struct, forbid_unknown_fields=True):
    id: str | int | None = None
    x: list[float] | None = None
    indices: list[int] | None = None
    values: list[float] | None = None
    features: dict[str, Any] | None = None
    time: float | None = None


class _JsonLabelledEvent(_JsonEvent, forbid_unknown_fields=True):
    label: bool | int | float | None = None
    weight: float | None = None


class _JsonLabel(msgspec.Struct, forbid_unknown_fields=True):
    id: str | int
    label: bool | int | float
    weight: float | None = None
    time: float | None = None


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


class _Unfit(Exception):
    """The fast way does not take this body; the precise one says why."""


# what ends the fast way; OverflowError: a whole number beyond float64
_NOT_FAST = (msgspec.DecodeError, UnicodeError, OverflowError, RecursionError, InvalidInput, _Unfit)


class Malformed(ValueError):
    """Bytes that are not a JSON value: the reason, and the line and column (from 1) if the parser knows them."""

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
    """Decode JSON settings. Raises `BadBody` as `decode_json` does, and for a member that an object has twice."""
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
    """Labelled events as columns, and what each that has features carries for them: a list, or a matrix of dense ones.

    Raises `BadBody` or `Invalid`, which lists every bad event.
    """
    try:
        return _scanned_update(body, config) or _labelled(_update_decoder.decode(body), config)
    except _NOT_FAST:
        return precisely_labelled(Precise(config, "update"), decode_json(body))


def decode_labels(body: bytes, config: Config) -> tuple[Labelled, Any]:
    """Labels of events that were served, by id, as columns; none has features. Raises as `decode_update`."""
    try:
        late = _labels_decoder.decode(body).events
        if not 0 < len(late) <= MAX_EVENTS:
            raise _Unfit
        events = [_JsonLabelledEvent(id=item.id, label=item.label, weight=item.weight, time=item.time) for item in late]
        return _columns(events, [], (), config), []
    except _NOT_FAST:
        return precisely_labelled(Precise(config, "labels"), decode_json(body))


def decode_events(body: bytes, config: Config) -> tuple[Events, Any]:
    """Unlabelled events as columns, and what each carries for its features: a list, or a matrix of dense ones.

    Raises as `decode_update`.
    """
    try:
        scanned = _scanned(body, config, labelled=False)
        if scanned is not None:
            times = _past(scanned.times)
            return Events(scanned.rows, scanned.ids, times, config.costs(scanned.rows)), scanned.rows
        events = _predict_decoder.decode(body).events
        carried = _carried(events, config.features)
        rows = config.encode(carried, typed=True)
        return Events(rows, _ids(events), _times(events), config.costs(carried)), carried
    except _NOT_FAST:
        plain, carried = Precise(config, "predict").read(decode_json(body))
        ids = tuple(None if event.get("id") is None else str(event["id"]) for event in plain)
        times = _optional([event.get("time") for event in plain], math.nan)
        return Events(config.encode(carried), ids, times, config.costs(carried)), carried


# The fast way: dense events in one pass of compiled code


def _scanned(body: bytes, config: Config, labelled: bool) -> Scanned | None:
    features = config.features
    return scan(body, features.dim, labelled, MAX_EVENTS) if isinstance(features, Dense) else None


def _scanned_update(body: bytes, config: Config) -> tuple[Labelled, Any] | None:
    """Labelled events that are dense, and all with features; None where the body is another one."""
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
    return columns, scanned.rows


# The fast way: any events, by a typed decoder


def _carried(events: Sequence[_JsonEvent], features: Features) -> list[Any]:
    """Return what each event carries for its features; raise `_Unfit` if the learner takes something else."""
    if not 0 < len(events) <= MAX_EVENTS:
        raise _Unfit
    member = features.MEMBER
    if member == "indices":
        pairs = [(event.indices, event.values) for event in events]
        if any(item is None or two is None for item, two in pairs):
            raise _Unfit
        if any(event.x is not None or event.features is not None for event in events):
            raise _Unfit
        return pairs
    carried: list[Any] = [event.x for event in events] if member == "x" else [event.features for event in events]
    if any(item is None for item in carried):
        raise _Unfit
    if any(event.indices is not None or event.values is not None for event in events):
        raise _Unfit
    if any((event.features if member == "x" else event.x) is not None for event in events):
        raise _Unfit
    return carried


def _ids(events: Sequence[_JsonEvent]) -> tuple[str | None, ...]:
    ids = [None if event.id is None else str(event.id) for event in events]
    if any(item is not None and not good_id(item) for item in ids):
        raise _Unfit
    return tuple(ids)


def _labelled(parsed: _JsonUpdate, config: Config) -> tuple[Labelled, Any]:
    events = parsed.events
    if not 0 < len(events) <= MAX_EVENTS:
        raise _Unfit
    segments = () if parsed.source is None else _segments(parsed.source, len(events))
    local = [event for event in events if not _featureless(event)]
    carried = _carried(local, config.features) if local else []
    return _columns(events, carried, segments, config), carried


def _segments(source: _JsonSource, n: int) -> tuple[Segment, ...]:
    """Return the segment of n events of a source."""
    value = msgspec.to_builtins(source)
    if source_problems(value, n):
        raise _Unfit
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
        raise _Unfit
    if config.labels.ranks is not None and any(event.label is True for event in events):
        raise _Unfit
    labels = np.array([event.label for event in events], dtype=np.float64)  # None: NaN
    weights = _optional([event.weight for event in events], 1.0)
    times = _optional([event.time for event in events], math.nan)
    return _checked(rows, carried, labels, weights, times, ids, segments, config.costs(features), config)


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
    """Labelled events of these columns, where all of them are as they may be; else `_Unfit`."""
    kind = config.labels
    if not kind.good(labels).all():
        raise _Unfit
    if weights is not None and not ((weights >= 0) & (weights <= MAX_WEIGHT)).all():
        raise _Unfit
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
    return _past(_optional([event.time for event in events], math.nan))


def _past(times: Vector | None) -> Vector | None:
    """Check that no time is out of bounds, or ahead of now by more than clocks may differ, and return the times."""
    if times is not None and ((times < -MAX_TIME) | (times > latest_time())).any():
        raise _Unfit
    return times


def latest_time() -> float:
    """Return the largest time that an event may have now."""
    return time.time() + AHEAD


def with_clock(times: Vector | None, n: int, config: Config) -> Vector | None:
    """Return the times of n labelled events, (n,); if the learner needs a clock, missing ones become now."""
    if not config.uses_clock:
        return times
    now = time.time()
    return np.full(n, now) if times is None else np.where(np.isnan(times), now, times)


def _optional(values: list[float | None], missing: float) -> Vector | None:
    if all(value is None for value in values):
        return None
    return np.array([missing if value is None else value for value in values], dtype=np.float64)


# The precise way


def precisely_labelled(precise: Precise, body: Any) -> tuple[Labelled, Any]:
    """Labelled events of parsed JSON, as `decode_update` gives them. Raises `Invalid` with all that is wrong."""
    events, carried = precise.read(body)
    parsed = [
        msgspec.convert({key: event.get(key) for key in TOP}, _JsonLabelledEvent, strict=False) for event in events
    ]
    source = body.get("source")
    segments: tuple[Segment, ...] = ()
    if source is not None:
        segments = segments_of(source, len(events))
    return _columns(parsed, carried, segments, precise.config), carried
