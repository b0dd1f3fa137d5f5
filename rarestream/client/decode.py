"""Replies of the service as NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from rarestream.client.errors import Unanswered

__all__ = [
    "NOTHING",
    "Document",
    "Explanation",
    "Ids",
    "Predicted",
    "Updated",
    "document",
    "join_predicted",
    "join_updated",
    "predicted",
    "updated",
]

NOTHING = -128  # among decisions, labels and ranks: nothing was decided

Document = dict[str, Any]  # a reply that is for reading, as the API describes it
Ids = Sequence[str | int | None]
Floats = NDArray[np.float64]
Small = NDArray[np.int8]


class Updated(NamedTuple):
    """What became of n labelled events. Figures are those from before each was learnt, or of when it was served.

    Where nothing was learnt of an event, its figures are NaN and its decision or rank is `NOTHING`.
    """

    applied: int
    duplicate: int
    relabelled: int
    unknown: int
    expired: int
    position: int  # of the newest record that was applied
    class_counts: dict[str, int]  # labelled events learnt, by class, at that position
    status: NDArray[np.str_]  # (n,) "applied", "duplicate", "relabelled", "unknown" or "expired"
    scores: Floats  # (n,)
    probabilities: Floats | None  # (n,); None of an ordinal learner
    thresholds: Floats | None  # (n,); None of an ordinal learner
    decisions: Small | None  # (n,) 1: probability >= threshold; None of an ordinal learner
    ranks: Small | None  # (n,) of an ordinal learner, otherwise None
    ids: Ids | None  # as they were sent; those of ids="auto", too
    repeats: int  # requests sent again: what an unanswered one had learnt is `duplicate` by then


class Explanation(NamedTuple):
    """A score as a sum: intercept, the largest contributions by feature, and the rest of them."""

    intercept: float
    features: tuple[tuple[str, float], ...]
    rest: float


class Predicted(NamedTuple):
    """What is said of n events."""

    position: int  # of the learner's log, at which they were scored
    ready: bool  # False: scores mean nothing yet, and no threshold (NaN), label or rank is given
    remembered: int  # events with an id, whose labels may come later; 0 while the store is away
    stale_seconds: float  # how long the service has not reached its store; 0 while it answers
    scores: Floats  # (n,) higher: more likely positive, or of a high rank
    probabilities: Floats | None  # (n,); None of an ordinal learner
    thresholds: Floats | None  # (n,); None of an ordinal learner
    labels: Small | None  # (n,) 1: an alert; None of an ordinal learner
    ranks: Small | None  # (n,) of an ordinal learner, otherwise None
    explanations: tuple[Explanation, ...] | None  # n, where they were asked for


class _Array(msgspec.Struct):
    dtype: Literal["float64", "int8"]
    shape: tuple[int]
    data: memoryview


class _Updated(msgspec.Struct):
    applied: int
    duplicate: int
    relabelled: int
    unknown: int
    expired: int
    position: int
    class_counts: dict[str, int]
    status: _Array
    statuses: list[str]
    scores: _Array
    probabilities: _Array | None = None
    thresholds: _Array | None = None
    decisions: _Array | None = None
    ranks: _Array | None = None


class _Contribution(msgspec.Struct):
    name: str
    contribution: float


class _Explanation(msgspec.Struct):
    intercept: float
    features: list[_Contribution]
    rest: float


class _Predicted(msgspec.Struct):
    position: int
    ready: bool
    remembered: int
    stale_seconds: float
    scores: _Array
    probabilities: _Array | None = None
    thresholds: _Array | None = None
    labels: _Array | None = None
    ranks: _Array | None = None
    explanations: list[_Explanation] | None = None


_updated_decoder = msgspec.msgpack.Decoder(_Updated)
_predicted_decoder = msgspec.msgpack.Decoder(_Predicted)


def updated(body: bytes | memoryview, count: int, ids: Ids | None, repeats: int) -> Updated:
    """The reply to so many labelled events. Raises `Unanswered` where it is not one."""
    try:
        reply = _updated_decoder.decode(body)
        status = _array(reply.status, count)
        if count and status.min() < 0:  # an index from the end, to NumPy
            raise ValueError(f"a status is {status.min()}; expected 0 to {len(reply.statuses) - 1}")
        return Updated(
            reply.applied,
            reply.duplicate,
            reply.relabelled,
            reply.unknown,
            reply.expired,
            reply.position,
            reply.class_counts,
            np.array(reply.statuses)[status],
            _array(reply.scores, count),
            _optional(reply.probabilities, count),
            _optional(reply.thresholds, count),
            _optional(reply.decisions, count),
            _optional(reply.ranks, count),
            ids,
            repeats,
        )
    except (msgspec.MsgspecError, ValueError, IndexError) as error:
        raise _strange(error) from None


def predicted(body: bytes | memoryview, count: int) -> Predicted:
    """The reply to a predict of so many events. Raises `Unanswered` where it is not one."""
    try:
        reply = _predicted_decoder.decode(body)
        explanations = reply.explanations
        if explanations is not None and len(explanations) != count:
            raise ValueError(f"{len(explanations)} explanations of {count} events")
        return Predicted(
            reply.position,
            reply.ready,
            reply.remembered,
            reply.stale_seconds,
            _array(reply.scores, count),
            _optional(reply.probabilities, count),
            _optional(reply.thresholds, count),
            _optional(reply.labels, count),
            _optional(reply.ranks, count),
            None if explanations is None else tuple(_explanation(one) for one in explanations),
        )
    except (msgspec.MsgspecError, ValueError) as error:
        raise _strange(error) from None


def document(body: bytes) -> Document:
    """A JSON object. Raises `Unanswered` where it is not one."""
    try:
        return msgspec.json.decode(body, type=Document)
    except msgspec.MsgspecError as error:
        raise _strange(error) from None


def join_updated(parts: Sequence[Updated], ids: Ids | None) -> Updated:
    """The replies to consecutive requests, at least one, as one."""
    last = parts[-1]
    return Updated(
        sum(one.applied for one in parts),
        sum(one.duplicate for one in parts),
        sum(one.relabelled for one in parts),
        sum(one.unknown for one in parts),
        sum(one.expired for one in parts),
        last.position,
        last.class_counts,
        np.concatenate([one.status for one in parts]),
        np.concatenate([one.scores for one in parts]),
        _joined([one.probabilities for one in parts]),
        _joined([one.thresholds for one in parts]),
        _joined([one.decisions for one in parts]),
        _joined([one.ranks for one in parts]),
        ids,
        sum(one.repeats for one in parts),
    )


def join_predicted(parts: Sequence[Predicted]) -> Predicted:
    """The replies to consecutive requests, at least one, as one: at the last position, ready if all were."""
    explanations = [one.explanations for one in parts]
    return Predicted(
        parts[-1].position,
        all(one.ready for one in parts),
        sum(one.remembered for one in parts),
        max(one.stale_seconds for one in parts),
        np.concatenate([one.scores for one in parts]),
        _joined([one.probabilities for one in parts]),
        _joined([one.thresholds for one in parts]),
        _joined([one.labels for one in parts]),
        _joined([one.ranks for one in parts]),
        None if explanations[0] is None else tuple(one for part in explanations for one in part or ()),
    )


def _array(told: _Array, count: int) -> NDArray[Any]:
    """A copy, which the caller may write to. Raises ValueError where it has not an entry for each event."""
    dtype = np.dtype(told.dtype)
    column = np.frombuffer(told.data, dtype.newbyteorder("<")).astype(dtype).reshape(told.shape)
    if len(column) != count:
        raise ValueError(f"a column has {len(column)} entries for {count} events")
    return column


def _optional(told: _Array | None, count: int) -> NDArray[Any] | None:
    return None if told is None else _array(told, count)


def _joined(parts: Sequence[NDArray[Any] | None]) -> NDArray[Any] | None:
    there = [one for one in parts if one is not None]
    return np.concatenate(there) if there else None


def _explanation(told: _Explanation) -> Explanation:
    return Explanation(told.intercept, tuple((one.name, one.contribution) for one in told.features), told.rest)


def _strange(error: Exception) -> Unanswered:
    return Unanswered(f"the answer is not like rarestream's: {error}")
