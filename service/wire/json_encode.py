"""Columns to the replies of the hot routes, in JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from learners import Predictions, ScoreExplanation, Status
from service.wire.requests import Learnt

__all__ = ["STATUSES", "Head", "encode_learnt", "encode_scores", "explanation"]


class Head(msgspec.Struct):
    """What a reply to a predict says of all its events."""

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
    status, results = became(learnt, ids)
    counts = {name: status.count(name) for name in STATUSES}
    return _encode({**counts, "position": learnt.position, "class_counts": learnt.class_counts, "results": results})


def became(learnt: Learnt, ids: tuple[str | None, ...] | None) -> tuple[list[str], list[Any]]:
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
    # before both classes have been seen there is nothing to decide by
    nothing = [None] * len(ids)
    decisions = scores.decisions.tolist() if head.ready else nothing
    values = scores.scores.tolist()
    results: list[Any]
    if scores.probabilities is None or scores.thresholds is None:
        results = list(map(_JsonRankPrediction, ids, values, decisions))
    else:
        columns = scores.probabilities.tolist(), scores.thresholds.tolist() if head.ready else nothing
        results = list(map(_JsonPrediction, ids, values, *columns, decisions))
        if explained is not None:
            for prediction, why in zip(results, explained, strict=True):
                prediction.explanation = explanation(why)
    return _encode(_JsonPredictReply(head.position, head.ready, head.remembered, head.stale_seconds, results))


def explanation(why: ScoreExplanation) -> dict[str, Any]:
    """Return the explanation of a score for a reply."""
    features = [{"name": name, "contribution": part} for name, part in why.features]
    return {"intercept": why.intercept, "features": features, "rest": why.rest}
