"""MessagePack replies to NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from rarestream.client.documents import no_reply_of

__all__ = [
    "NO_DECISION",
    "Ids",
    "PredictResult",
    "ScoreExplanation",
    "UpdateResult",
    "decode_predict",
    "decode_update",
    "join_predictions",
    "join_updates",
]

NO_DECISION = -128  # among decisions, labels and ranks: there is none

Ids = Sequence[str | int | None]
Floats = NDArray[np.float64]
Small = NDArray[np.int8]


class UpdateResult(NamedTuple):
    """Reply to n labelled events. Scores are from before each event was learnt, or from when it was served.

    If an event was not learnt, its numbers are NaN and its decision or rank is `NO_DECISION`.
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
    ids: Ids | None  # as sent; generated ones for ids="auto"
    repeats: int  # requests sent again; events that a lost one had applied count as `duplicate`


class ScoreExplanation(NamedTuple):
    """A score as a sum: intercept, the largest contributions by feature, and the rest of them."""

    intercept: float
    features: tuple[tuple[str, float], ...]
    rest: float


class PredictResult(NamedTuple):
    """Reply to n scored events."""

    position: int  # of the learner's log, at which they were scored
    ready: bool  # False: scores are not meaningful yet; there is no threshold (NaN), label or rank
    remembered: int  # events with an id, which wait for their labels; 0 while the store is away
    stale_seconds: float  # since the service last reached its store; 0 while it answers
    scores: Floats  # (n,) higher: more likely positive, or of a high rank
    probabilities: Floats | None  # (n,); None of an ordinal learner
    thresholds: Floats | None  # (n,); None of an ordinal learner
    labels: Small | None  # (n,) 1: an alert; None of an ordinal learner
    ranks: Small | None  # (n,) of an ordinal learner, otherwise None
    explanations: tuple[ScoreExplanation, ...] | None  # n, if `explain` was given


class _ColumnBody(msgspec.Struct):
    dtype: Literal["float64", "int8"]
    shape: tuple[int]
    data: memoryview


class _UpdateColumns(msgspec.Struct):
    applied: int
    duplicate: int
    relabelled: int
    unknown: int
    expired: int
    position: int
    class_counts: dict[str, int]
    status: _ColumnBody
    statuses: list[str]
    scores: _ColumnBody
    probabilities: _ColumnBody | None = None
    thresholds: _ColumnBody | None = None
    decisions: _ColumnBody | None = None
    ranks: _ColumnBody | None = None


class _Contribution(msgspec.Struct):
    name: str
    contribution: float


class _ExplanationBody(msgspec.Struct):
    intercept: float
    features: list[_Contribution]
    rest: float


class _PredictColumns(msgspec.Struct):
    position: int
    ready: bool
    remembered: int
    stale_seconds: float
    scores: _ColumnBody
    probabilities: _ColumnBody | None = None
    thresholds: _ColumnBody | None = None
    labels: _ColumnBody | None = None
    ranks: _ColumnBody | None = None
    explanations: list[_ExplanationBody] | None = None


_update_decoder = msgspec.msgpack.Decoder(_UpdateColumns)
_predict_decoder = msgspec.msgpack.Decoder(_PredictColumns)


def decode_update(body: bytes | memoryview, count: int, ids: Ids | None, repeats: int) -> UpdateResult:
    """Decode the reply to `count` labelled events. Raises `OutcomeUnknown` if it is none."""
    try:
        reply = _update_decoder.decode(body)
        status = _array(reply.status, count)
        if count and status.min() < 0:  # an index from the end, to NumPy
            raise ValueError(f"a status is {status.min()}; expected 0 to {len(reply.statuses) - 1}")
        return UpdateResult(
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
        raise no_reply_of(error) from None


def decode_predict(body: bytes | memoryview, count: int) -> PredictResult:
    """Decode the reply to a predict of `count` events. Raises `OutcomeUnknown` if it is none."""
    try:
        reply = _predict_decoder.decode(body)
        explanations = reply.explanations
        if explanations is not None and len(explanations) != count:
            raise ValueError(f"{len(explanations)} explanations of {count} events")
        return PredictResult(
            reply.position,
            reply.ready,
            reply.remembered,
            reply.stale_seconds,
            _array(reply.scores, count),
            _optional(reply.probabilities, count),
            _optional(reply.thresholds, count),
            _optional(reply.labels, count),
            _optional(reply.ranks, count),
            None if explanations is None else tuple(_explanation(body) for body in explanations),
        )
    except (msgspec.MsgspecError, ValueError) as error:
        raise no_reply_of(error) from None


def join_updates(parts: Sequence[UpdateResult], ids: Ids | None) -> UpdateResult:
    """Join the replies to one or more consecutive requests."""
    last = parts[-1]
    return UpdateResult(
        sum(part.applied for part in parts),
        sum(part.duplicate for part in parts),
        sum(part.relabelled for part in parts),
        sum(part.unknown for part in parts),
        sum(part.expired for part in parts),
        last.position,
        last.class_counts,
        np.concatenate([part.status for part in parts]),
        np.concatenate([part.scores for part in parts]),
        _joined([part.probabilities for part in parts]),
        _joined([part.thresholds for part in parts]),
        _joined([part.decisions for part in parts]),
        _joined([part.ranks for part in parts]),
        ids,
        sum(part.repeats for part in parts),
    )


def join_predictions(parts: Sequence[PredictResult]) -> PredictResult:
    """Join the replies to one or more consecutive requests: the last position, ready if all were."""
    explanations = [part.explanations for part in parts]
    return PredictResult(
        parts[-1].position,
        all(part.ready for part in parts),
        sum(part.remembered for part in parts),
        max(part.stale_seconds for part in parts),
        np.concatenate([part.scores for part in parts]),
        _joined([part.probabilities for part in parts]),
        _joined([part.thresholds for part in parts]),
        _joined([part.labels for part in parts]),
        _joined([part.ranks for part in parts]),
        None if explanations[0] is None else tuple(chain.from_iterable(part or () for part in explanations)),
    )


def _array(column: _ColumnBody, count: int) -> NDArray[Any]:
    """Copy a column, so that the caller may write to it. Raises ValueError unless it has `count` entries."""
    dtype = np.dtype(column.dtype)
    array = np.frombuffer(column.data, dtype.newbyteorder("<")).astype(dtype).reshape(column.shape)
    if len(array) != count:
        raise ValueError(f"a column has {len(array)} entries for {count} events")
    return array


def _optional(column: _ColumnBody | None, count: int) -> NDArray[Any] | None:
    return None if column is None else _array(column, count)


def _joined(parts: Sequence[NDArray[Any] | None]) -> NDArray[Any] | None:
    present = [part for part in parts if part is not None]
    return np.concatenate(present) if present else None


def _explanation(body: _ExplanationBody) -> ScoreExplanation:
    return ScoreExplanation(
        body.intercept, tuple((feature.name, feature.contribution) for feature in body.features), body.rest
    )
