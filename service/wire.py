"""Bodies of the hot routes to columns, and columns to replies. JSON here; other codings give the same columns.

A body is decoded once, by a typed decoder that knows the event's members. Whatever it or the columns refuse is decoded
a second time, slowly, by `_Precise`, which finds every bad event and points at it: the first hundred are listed.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from learners.arguments import MAX_TIME, MAX_WEIGHT
from learners.arrays import Vector
from learners.batch import Segment, Status
from learners.config import Config
from learners.explain import Explanation
from learners.features import MAX_PROBLEMS, Features
from learners.parameters import Problem, Refused, pointer, show
from learners.recent import MAX_SOURCE_NAME
from learners.scorer import Scores
from service.errors import BadBody, Invalid
from service.hosted import Learnt
from service.serving import Events, Labelled

__all__ = [
    "AHEAD",
    "MAX_EVENTS",
    "MAX_ID",
    "STATUSES",
    "decode_events",
    "decode_json",
    "decode_labels",
    "decode_update",
    "encode_learnt",
    "encode_scores",
    "explanation",
    "good_id",
    "latest_time",
    "source_problems",
    "with_clock",
]

MAX_EVENTS = 100_000  # of one request: its reply is bounded, too
MAX_ID = 256  # characters
MAX_OFFSET = 2**53
AHEAD = 86_400.0  # seconds that a time may lie ahead of this node's: a clock that runs fast, not an error of units

_MEMBERS = {
    "x": ("x",),
    "indices": ("indices", "values"),
    "features": ("features",),
}


class _Source(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    offset: int


class _Event(msgspec.Struct, forbid_unknown_fields=True):
    id: str | int | None = None
    x: list[float] | None = None
    indices: list[int] | None = None
    values: list[float] | None = None
    features: dict[str, Any] | None = None
    time: float | None = None


class _Labelled(_Event, forbid_unknown_fields=True):
    label: bool | int | float | None = None
    weight: float | None = None


class _Late(msgspec.Struct, forbid_unknown_fields=True):
    id: str | int
    label: bool | int | float
    weight: float | None = None
    time: float | None = None


class _UpdateBody(msgspec.Struct, forbid_unknown_fields=True):
    events: list[_Labelled]
    source: _Source | None = None


class _PredictBody(msgspec.Struct, forbid_unknown_fields=True):
    events: list[_Event]


class _LabelsBody(msgspec.Struct, forbid_unknown_fields=True):
    events: list[_Late]


_update_decoder = msgspec.json.Decoder(_UpdateBody)
_predict_decoder = msgspec.json.Decoder(_PredictBody)
_labels_decoder = msgspec.json.Decoder(_LabelsBody)


class _Unfit(Exception):
    """The fast way does not take this body; the precise one says why."""


# what ends the fast way; OverflowError: a whole number beyond float64
_NOT_FAST = (msgspec.DecodeError, UnicodeError, OverflowError, RecursionError, Refused, _Unfit)


def decode_json(body: bytes) -> Any:
    """Any JSON value. Raises `BadBody`: malformed, not UTF-8, or nested beyond reason."""
    try:
        return json.loads(body.decode())
    except UnicodeDecodeError as error:
        raise BadBody(f"the body is not UTF-8: byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise BadBody(f"the body is not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
    except ValueError:
        raise BadBody("the body has a whole number of more than 4,300 digits") from None
    except RecursionError:
        raise BadBody("the body is nested too deeply") from None


def decode_update(body: bytes, config: Config) -> Labelled:
    """Labelled events as columns. Raises `BadBody` or `Invalid`, which lists every bad event."""
    try:
        parsed = _update_decoder.decode(body)
        return _labelled(parsed, config)
    except _NOT_FAST:
        return _Precise(config, "update").labelled(decode_json(body))


def decode_labels(body: bytes, config: Config) -> Labelled:
    """Labels of events that were served, by id, as columns. Raises as `decode_update`."""
    try:
        late = _labels_decoder.decode(body).events
        if not 0 < len(late) <= MAX_EVENTS:
            raise _Unfit
        events = [_Labelled(id=one.id, label=one.label, weight=one.weight, time=one.time) for one in late]
        return _columns(events, [], (), config)
    except _NOT_FAST:
        return _Precise(config, "labels").labelled(decode_json(body))


def decode_events(body: bytes, config: Config) -> tuple[Events, list[Any]]:
    """Unlabelled events as columns, and what each carries for its features. Raises as `decode_update`."""
    try:
        events = _predict_decoder.decode(body).events
        carried = _carried(events, config.features)
        rows = config.encode(carried, typed=True)
        times = _times(events)
        return Events(rows, _ids(events), times, config.costs(carried)), carried
    except _NOT_FAST:
        return _Precise(config, "predict").events(decode_json(body))


# The fast way


def _carried(events: Sequence[_Event], features: Features) -> list[Any]:
    """What each event carries for its features; `_Unfit` if that is not what the learner takes."""
    if not 0 < len(events) <= MAX_EVENTS:
        raise _Unfit
    member = features.MEMBER
    if member == "indices":
        pairs = [(event.indices, event.values) for event in events]
        if any(one is None or two is None for one, two in pairs):
            raise _Unfit
        if any(event.x is not None or event.features is not None for event in events):
            raise _Unfit
        return pairs
    carried: list[Any] = [event.x for event in events] if member == "x" else [event.features for event in events]
    if any(one is None for one in carried):
        raise _Unfit
    if any(event.indices is not None or event.values is not None for event in events):
        raise _Unfit
    if any((event.features if member == "x" else event.x) is not None for event in events):
        raise _Unfit
    return carried


def _ids(events: Sequence[_Event]) -> tuple[str | None, ...]:
    ids = [None if event.id is None else str(event.id) for event in events]
    if any(one is not None and not good_id(one) for one in ids):
        raise _Unfit
    return tuple(ids)


def good_id(text: str) -> bool:
    """Whether a text can be an event's id."""
    return 0 < len(text) <= MAX_ID and text.isprintable()


def _labelled(parsed: _UpdateBody, config: Config) -> Labelled:
    events = parsed.events
    segments: tuple[Segment, ...] = ()
    if parsed.source is not None:
        if source_problems(msgspec.to_builtins(parsed.source)):
            raise _Unfit
        segments = (Segment(0, len(events), parsed.source.name, parsed.source.offset),)
    if not 0 < len(events) <= MAX_EVENTS:
        raise _Unfit
    own = [event for event in events if not _featureless(event)]
    return _columns(events, _carried(own, config.features) if own else [], segments, config)


def _featureless(event: _Labelled) -> bool:
    return event.x is None and event.features is None and event.indices is None and event.values is None


def _columns(events: Sequence[_Labelled], own: list[Any], segments: tuple[Segment, ...], config: Config) -> Labelled:
    """The columns of labelled events; `own` is what those of them carry that carry features."""
    rows = config.encode(own, typed=True)
    carried = np.array([not _featureless(event) for event in events], dtype=np.bool_)
    ids = _ids(events)
    if any(one is None for one, has in zip(ids, carried.tolist(), strict=True) if not has):
        raise _Unfit
    labels = np.array([event.label for event in events], dtype=np.float64)  # None: NaN
    weights = _optional([event.weight for event in events], 1.0)
    kind = config.labels
    if not kind.good(labels).all() or (kind.ranks is not None and any(event.label is True for event in events)):
        raise _Unfit
    if weights is not None and not ((weights >= 0) & (weights <= MAX_WEIGHT)).all():
        raise _Unfit
    return Labelled(
        rows=rows,
        carried=carried,
        labels=kind.columns(labels),
        weights=weights,
        times=with_clock(_times(events), len(events), config),
        ids=ids if any(one is not None for one in ids) else None,
        segments=segments,
        costs=config.costs(own),
    )


def _times(events: Sequence[_Event]) -> Vector | None:
    times = _optional([event.time for event in events], math.nan)
    if times is not None and ((times < -MAX_TIME) | (times > latest_time())).any():
        raise _Unfit
    return times


def latest_time() -> float:
    """The largest time that an event may have now."""
    return time.time() + AHEAD


def with_clock(times: Vector | None, n: int, config: Config) -> Vector | None:
    """The times of n labelled events, (n,); those not given are now, where the learner asks for every event's."""
    if not config.timed:
        return times
    now = time.time()
    return np.full(n, now) if times is None else np.where(np.isnan(times), now, times)


def _optional(values: list[float | None], missing: float) -> Vector | None:
    if all(value is None for value in values):
        return None
    return np.array([missing if value is None else value for value in values], dtype=np.float64)


# The precise way


def source_problems(source: Any) -> list[Problem]:
    """What is wrong with where a request says that its events come from."""
    if not isinstance(source, dict):
        return [Problem("/source", f"is {show(source)}; expected an object of name and offset")]
    problems = [
        Problem(f"/source{pointer(name)}", "is not a member; expected name, offset")
        for name in source
        if name not in ("name", "offset")
    ]
    name, offset = source.get("name"), source.get("offset")
    if not isinstance(name, str) or not name.isprintable() or not 0 < len(name.encode()) <= MAX_SOURCE_NAME:
        problems.append(Problem("/source/name", f"is {show(name)}; expected 1 to {MAX_SOURCE_NAME} bytes of text"))
    if not isinstance(offset, int) or isinstance(offset, bool) or not 0 <= offset <= MAX_OFFSET:
        problems.append(Problem("/source/offset", f"is {show(offset)}; expected a whole number from 0 to 2^53"))
    return problems


def _number_problem(value: Any, least: float, most: float) -> str | None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not least <= value <= most:
        return f"is {show(value)}; expected a number from {least:g} to {most:g}"
    return None


class _Precise:
    """Reads a body member by member and remembers everything that is wrong with it."""

    def __init__(self, config: Config, what: Literal["update", "predict", "labels"]) -> None:
        self.config = config
        self.features = config.features
        self.what = what
        self.members = _MEMBERS[config.features.MEMBER]
        self.allowed = {
            *(() if what == "labels" else self.members),
            "id",
            "time",
            *(() if what == "predict" else ("label", "weight")),
        }
        self.problems: list[Problem] = []  # of the body itself
        self.bad: dict[int, Problem] = {}  # the first one of each bad event

    def labelled(self, body: Any) -> Labelled:
        """Labelled events."""
        events, carried = self._read(body)
        parsed = [msgspec.convert({key: event.get(key) for key in _TOP}, _Labelled, strict=False) for event in events]
        source = body.get("source")
        segments: tuple[Segment, ...] = ()
        if source is not None:
            segments = (Segment(0, len(events), source["name"], int(source["offset"])),)
        return _columns(parsed, carried, segments, self.config)

    def events(self, body: Any) -> tuple[Events, list[Any]]:
        """Unlabelled events."""
        events, carried = self._read(body)
        ids = tuple(None if event.get("id") is None else str(event["id"]) for event in events)
        times = _optional([event.get("time") for event in events], math.nan)
        return Events(self.config.encode(carried), ids, times, self.config.costs(carried)), carried

    def _read(self, body: Any) -> tuple[list[dict[str, Any]], list[Any]]:
        """The events, and what those of them carry that carry features. Raises `Invalid` with all that is wrong."""
        if not isinstance(body, dict):
            raise Invalid("the body is not an object", [Problem("", f"is {show(body)}; expected an object")])
        known = ("events", "source") if self.what == "update" else ("events",)
        for name in body:
            if name not in known:
                detail = f"is not a member; expected {', '.join(known)}"
                self.problems.append(Problem(pointer(name), detail))
        if body.get("source") is not None and self.what == "update":
            self.problems += source_problems(body["source"])
        events = body.get("events")
        if not isinstance(events, list) or not events:
            found = show(events) if "events" in body else "missing"
            self.problems.append(Problem("/events", f"is {found}; expected a list of at least one event"))
            raise Invalid("the body has no events", self.problems)
        if len(events) > MAX_EVENTS:
            self.problems.append(Problem("/events", f"has {len(events)} events; expected at most {MAX_EVENTS}"))
            raise Invalid("the body has too many events; nothing was changed", self.problems)
        for i, event in enumerate(events):
            self._check(i, event)
            if len(self.bad) == MAX_PROBLEMS:
                break
        carried = self._check_features(events)
        if self.problems or self.bad or carried is None:
            least = "at least " if len(self.bad) == MAX_PROBLEMS else ""
            what = f"{least}{len(self.bad)} of {len(events)} events" if self.bad else "the body"
            listed = [self.bad[i] for i in sorted(self.bad)]
            raise Invalid(f"refused {what}; nothing was changed", self.problems + listed)
        return events, carried

    def _note(self, i: int, where: str, detail: str) -> None:
        if len(self.bad) < MAX_PROBLEMS:
            self.bad.setdefault(i, Problem(f"/events/{i}{where}", detail))

    def _check(self, i: int, event: Any) -> None:
        """Everything about an event but its features' values."""
        if not isinstance(event, dict):
            self._note(i, "", f"is {show(event)}; expected an object")
            return
        for name in event:
            if name not in self.allowed and not (event[name] is None and name in _TOP):
                detail = f"is not a member here; expected {', '.join(sorted(self.allowed))}"
                self._note(i, pointer(name), detail)
        name = event.get("id")
        if self._carries(event):
            for member in self.members:
                if event.get(member) is None:
                    detail = f"is missing; this learner takes {self.features.KIND} features"
                    if self.what == "update":
                        detail += ", or the id of an event that was served"
                    self._note(i, f"/{member}", detail)
        elif name is None:
            self._note(i, "/id", "is missing; expected the id of an event that was served")
        if name is not None:
            text = isinstance(name, (str, int)) and not isinstance(name, bool)
            if not text or not good_id(str(name)):
                self._note(i, "/id", f"is {show(name)}; expected 1 to {MAX_ID} printable characters, or a whole number")
        if self.what != "predict":
            self._check_label(i, event)
        limits = {"time": (-MAX_TIME, latest_time())}
        if self.what != "predict":
            limits["weight"] = (0.0, MAX_WEIGHT)
        for member, (least, most) in limits.items():
            value = event.get(member)
            if value is not None and (fault := _number_problem(value, least, most)):
                since = f"is {show(value)}; expected seconds since the epoch, at most a day ahead of now"
                self._note(i, f"/{member}", since if member == "time" else fault)

    def _carries(self, event: dict[str, Any]) -> bool:
        """Whether an event is to carry features: all of them, or, where a label may come by id alone, those that do."""
        if self.what == "labels":
            return False
        return self.what == "predict" or event.get("id") is None or any(event.get(one) is not None for one in _CARRIED)

    def _check_label(self, i: int, event: dict[str, Any]) -> None:
        if "label" not in event:
            self._note(i, "/label", f"is missing; expected {self.config.labels.expected}")
        elif fault := self.config.labels.fault(event["label"]):
            self._note(i, "/label", fault)

    def _check_features(self, events: list[Any]) -> list[Any] | None:
        """What the events carry, where all is well with it; the problems of those that looked well join the others."""
        if len(self.bad) == MAX_PROBLEMS:
            return None
        well = [i for i in range(len(events)) if i not in self.bad and self._carries(events[i])]
        carried = [
            tuple(events[i][member] for member in self.members) if len(self.members) > 1 else events[i][self.members[0]]
            for i in well
        ]
        try:
            self.config.encode(carried)
            self.config.costs(carried)
        except Refused as error:
            prefix = "" if len(self.members) > 1 else f"/{self.members[0]}"
            for found, detail in error.problems:
                number, _, rest = found[1:].partition("/")
                self._note(well[int(number)], prefix + (f"/{rest}" if rest else ""), detail)
            return None
        return carried


_CARRIED = ("x", "indices", "values", "features")
_TOP = ("id", "x", "indices", "values", "features", "label", "weight", "time")


# Replies


class _Result(msgspec.Struct):
    id: str | None
    status: str
    score: float | None
    probability: float | None
    threshold: float | None
    decision: int | None


class _RankResult(msgspec.Struct):
    id: str | None
    status: str
    score: float | None
    rank: int | None


class _Prediction(msgspec.Struct, omit_defaults=True):
    id: str | None
    score: float
    probability: float
    threshold: float
    label: int | None
    explanation: dict[str, Any] | None = None


class _RankPrediction(msgspec.Struct):
    id: str | None
    score: float
    rank: int | None


_encode: Callable[[Any], bytes] = msgspec.json.Encoder().encode

STATUSES = ("applied", "duplicate", "relabelled", "unknown", "expired")
_STATUS = {Status.APPLIED: "applied", Status.DUPLICATE: "duplicate", Status.RELABELLED: "relabelled"}
_STATUS |= {Status.UNKNOWN: "unknown", Status.BEYOND: "beyond"}  # the last never reaches a reply: it is an error


def encode_learnt(learnt: Learnt, ids: tuple[str | None, ...] | None) -> bytes:
    """The reply to labelled events: what became of each."""
    outcome = learnt.outcome
    status = [_STATUS[one] for one in outcome.status.tolist()]
    if learnt.expired is not None:
        late = np.flatnonzero(learnt.expired & (outcome.status == Status.UNKNOWN))
        for i in late.tolist():
            status[i] = "expired"
    names = ids or [None] * len(status)
    said: list[NDArray[Any]] = [outcome.scores]
    result: type[_Result] | type[_RankResult] = _RankResult
    if outcome.probabilities is not None and outcome.thresholds is not None:
        said += [outcome.probabilities, outcome.thresholds]
        result = _Result
    said.append(outcome.decisions)
    nothing = [None] * len(said)
    results = [
        result(name, one, *values) if one in ("applied", "relabelled") else result(name, one, *nothing)
        for name, one, *values in zip(names, status, *(column.tolist() for column in said), strict=True)
    ]
    return _encode(
        {
            **{name: status.count(name) for name in STATUSES},
            "position": learnt.position,
            "class_counts": learnt.class_counts,
            "results": results,
        }
    )


def encode_scores(
    scores: Scores,
    ids: tuple[str | None, ...],
    head: dict[str, Any],
    explained: Sequence[Explanation] | None = None,
) -> bytes:
    """The reply to a predict, after the members of `head`."""
    # before both classes have been seen there is nothing to decide by
    decisions = scores.decisions.tolist() if head["ready"] else [None] * len(ids)
    values = scores.scores.tolist()
    results: list[Any]
    if scores.probabilities is None or scores.thresholds is None:
        results = [_RankPrediction(*one) for one in zip(ids, values, decisions, strict=True)]
    else:
        columns = zip(ids, values, scores.probabilities.tolist(), scores.thresholds.tolist(), decisions, strict=True)
        results = [_Prediction(*one) for one in columns]
        for prediction, why in zip(results, explained or (), strict=False):
            prediction.explanation = explanation(why)
    return _encode({**head, "results": results})


def explanation(why: Explanation) -> dict[str, Any]:
    """What a reply says of why a score is what it is."""
    features = [{"name": name, "contribution": part} for name, part in why.features]
    return {"intercept": why.intercept, "features": features, "rest": why.rest}
