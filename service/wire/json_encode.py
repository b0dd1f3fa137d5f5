"""Encode the replies to update, predict and labels in JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from learners import Predictions, ScoreExplanation, Status
from service.wire.requests import Learnt

__all__ = [
    "STATUSES",
    "Head",
    "encode_learnt",
    "encode_learnt_parts",
    "encode_scores",
    "encode_scores_parts",
    "explanation",
    "finite_or_none",
]


class Head(msgspec.Struct):
    """The members of a reply to a predict that are the same for all its events."""

    position: int
    ready: bool
    remembered: int
    stale_seconds: float


class _JsonPredictReply(Head):
    results: list[Any]


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


class _JsonPrediction(msgspec.Struct, omit_defaults=True):
    id: str | None
    score: float
    probability: float
    threshold: float | None
    label: int | None
    explanation: dict[str, Any] | None = None


class _JsonRankPrediction(msgspec.Struct):
    id: str | None
    score: float
    rank: int | None


_encode: Callable[[Any], bytes] = msgspec.json.Encoder().encode

STATUSES = ("applied", "duplicate", "relabelled", "unknown", "expired")
_STATUS = {Status.APPLIED: "applied", Status.DUPLICATE: "duplicate", Status.RELABELLED: "relabelled"}
_STATUS |= {Status.UNKNOWN: "unknown", Status.BEYOND: "beyond"}  # the last never reaches a reply: it is an error


def encode_learnt(learnt: Learnt, ids: tuple[str | None, ...] | None) -> bytes:
    """Encode the reply to labelled events, with the status of each."""
    status, results = _results(learnt, ids)
    return _encode({**_counts(status), **_shared(learnt), "results": results})


def encode_learnt_parts(
    learnt: Learnt, ids: tuple[str | None, ...] | None, seqs: Sequence[int | None], counts: Sequence[int]
) -> list[bytes]:
    """Encode a reply for each part of the labelled events. O(events)."""
    status, results = _results(learnt, ids)
    shared = _encode(_shared(learnt))[1:-1]
    replies = []
    start = 0
    for seq, count in zip(seqs, counts, strict=True):
        if count == 1:
            replies.append(_PART % (seq, _SINGLE[status[start]], shared, _encode(results[start])))
            start += 1
            continue
        stop = start + count
        members = _encode(_counts(status[start:stop]))[1:-1]
        replies.append(_PART % (seq, members, shared, _encode(results[start:stop])[1:-1]))
        start = stop
    return replies


def _counts(status: Sequence[str]) -> dict[str, int]:
    """Return the number of events of each status."""
    return {name: status.count(name) for name in STATUSES}


_PART = b'{"seq":%d,"status":200,%b,%b,"results":[%b]}'
_SINGLE = {name: _encode(_counts([name]))[1:-1] for name in STATUSES}  # the counts of one event


def _shared(learnt: Learnt) -> dict[str, Any]:
    """Return the members that are the same for all events."""
    return {"position": learnt.position, "class_counts": learnt.class_counts}


def _results(learnt: Learnt, ids: tuple[str | None, ...] | None) -> tuple[list[str], list[Any]]:
    """Return the status and the result of each event."""
    outcome = learnt.outcome
    status = [_STATUS[item] for item in outcome.status.tolist()]
    if learnt.expired is not None:
        late = np.flatnonzero(learnt.expired & (outcome.status == Status.UNKNOWN))
        for i in late.tolist():
            status[i] = "expired"
    names = ids or [None] * len(status)
    message: list[NDArray[Any]] = [outcome.scores]
    result: type[_Result] | type[_RankResult] = _RankResult
    if outcome.probabilities is not None and outcome.thresholds is not None:
        message += [outcome.probabilities, outcome.thresholds]
        result = _Result
    message.append(outcome.decisions)
    values = [column.tolist() for column in message]
    if not outcome.status.any():  # all were learnt, as nearly always
        return status, list(map(result, names, status, *values))
    nothing = [None] * len(message)
    results = [
        result(name, statu, *report) if statu in ("applied", "relabelled") else result(name, statu, *nothing)
        for name, statu, *report in zip(names, status, *values, strict=True)
    ]
    return status, results


def encode_scores(
    scores: Predictions,
    ids: tuple[str | None, ...],
    head: Head,
    explained: Sequence[ScoreExplanation] | None = None,
) -> bytes:
    """Encode the reply to a predict, after the members of `head`."""
    return _encode(
        _JsonPredictReply(
            head.position, head.ready, head.remembered, head.stale_seconds, _predictions(scores, ids, head, explained)
        )
    )


def encode_scores_parts(
    scores: Predictions,
    ids: tuple[str | None, ...],
    head: Head,
    seqs: Sequence[int | None],
    counts: Sequence[int],
    remembered: Sequence[int],
) -> list[bytes]:
    """Encode a reply for each part of the events of a predict. O(events)."""
    results = _predictions(scores, ids, head, None)
    shared = _encode({"position": head.position, "ready": head.ready, "stale_seconds": head.stale_seconds})[1:-1]
    replies = []
    start = 0
    for seq, count, number in zip(seqs, counts, remembered, strict=True):
        stop = start + count
        replies.append(_PART % (seq, b'"remembered":%d' % number, shared, _encode(results[start:stop])[1:-1]))
        start = stop
    return replies


def _predictions(
    scores: Predictions, ids: tuple[str | None, ...], head: Head, explained: Sequence[ScoreExplanation] | None
) -> list[Any]:
    """Return the result of each event. Before both classes have been seen there is nothing to decide by."""
    nothing = [None] * len(ids)
    decisions = scores.decisions.tolist() if head.ready else nothing
    values = scores.scores.tolist()
    if scores.probabilities is None or scores.thresholds is None:
        return list(map(_JsonRankPrediction, ids, values, decisions))
    columns = scores.probabilities.tolist(), scores.thresholds.tolist() if head.ready else nothing
    results = list(map(_JsonPrediction, ids, values, *columns, decisions))
    if explained is not None:
        for prediction, why in zip(results, explained, strict=True):
            prediction.explanation = explanation(why)
    return results


def explanation(why: ScoreExplanation) -> dict[str, Any]:
    """Return the explanation of a score for a reply."""
    features = [{"name": name, "contribution": part} for name, part in why.features]
    return {"intercept": why.intercept, "features": features, "rest": why.rest}


def finite_or_none(value: float) -> float | None:
    """Return a number as JSON has it: None, which becomes null, for NaN and infinity."""
    return float(value) if math.isfinite(value) else None
