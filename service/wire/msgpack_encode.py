"""Encode the replies to update, predict and labels in MessagePack: columns in the order of the request's events.

    update   {"applied", "duplicate", "relabelled", "unknown", "expired", "position", "class_counts",
    labels    "status": ARRAY int8, indices into "statuses", "scores", "probabilities", "thresholds": ARRAY float64,
              "decisions": ARRAY int8}
    predict  {"position", "ready", "remembered", "stale_seconds", "scores", "probabilities", "thresholds",
              "labels": ARRAY int8, "explanations"?}

`msgpack_decode.py` describes ARRAY. Replies of ordinal learners have "ranks", and no probabilities and thresholds. The
null of JSON is NaN, or -128 among decisions, labels and ranks. O(events), with no work in Python for each.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from learners import Predictions, ScoreExplanation, Status
from service.wire.json_encode import STATUSES, Head, explanation
from service.wire.msgpack_templates import begin, in_parts
from service.wire.requests import Learnt

__all__ = [
    "NONE",
    "counted",
    "encode_learnt",
    "encode_learnt_parts",
    "encode_scores",
    "encode_scores_parts",
    "statuses",
]

NONE = -128  # an undefined decision or rank

_encode = msgspec.msgpack.Encoder().encode

_PLACE = np.full(len(Status), NONE, dtype=np.int8)  # of each status in STATUSES; BEYOND never reaches a reply
for _code, _name in {
    Status.APPLIED: "applied",
    Status.DUPLICATE: "duplicate",
    Status.RELABELLED: "relabelled",
    Status.UNKNOWN: "unknown",
}.items():
    _PLACE[_code] = STATUSES.index(_name)
_MAPS = [bytes([0x80 + members]) for members in range(16)]  # what MessagePack begins a map with
_EXPLANATIONS = _encode("explanations")
_OF_HEAD = len(msgspec.structs.fields(Head))
_SINGLE = [
    _encode({name: int(name == item) for name in STATUSES}) for item in STATUSES
]  # the counts of one event, by its place
_APPLIED, _RELABELLED, _UNKNOWN, _EXPIRED = map(STATUSES.index, ("applied", "relabelled", "unknown", "expired"))


def statuses(learnt: Learnt) -> NDArray[np.int8]:
    """Return the status of each event, (n,): an index into `STATUSES`."""
    status: NDArray[np.int8] = _PLACE[learnt.outcome.status]
    if learnt.expired is not None:
        status[learnt.expired & (status == _UNKNOWN)] = _EXPIRED
    return status


def counted(status: NDArray[np.int8]) -> dict[str, int]:
    """Return the number of events of each status."""
    return dict(zip(STATUSES, np.bincount(status, minlength=len(STATUSES)).tolist(), strict=True))


def encode_learnt(learnt: Learnt, ids: tuple[str | None, ...] | None) -> bytes:  # noqa: ARG001 - the caller has them
    """Encode the reply to labelled events, with the status of each in their order. O(events)."""
    columns = _columns(learnt)
    reply: dict[str, Any] = {
        **counted(columns["status"]),
        "position": learnt.position,
        "class_counts": learnt.class_counts,
        "statuses": STATUSES,
    }
    return b"".join([_MAPS[len(reply) + len(columns)], _encode(reply)[1:], *_members(columns)])


def encode_learnt_parts(
    learnt: Learnt,
    ids: tuple[str | None, ...] | None,  # noqa: ARG001 - the caller has them
    seqs: Sequence[int | None],
    counts: Sequence[int],
) -> list[bytes]:
    """Encode a reply for each part of the labelled events. O(events)."""
    columns = _columns(learnt)
    status = columns["status"]
    if len(counts) == len(status):  # one event each
        report = [_SINGLE[item] for item in status.tolist()]
    else:
        report = [_encode(counted(part)) for part in np.split(status, np.cumsum(counts)[:-1])]
    alike = {"position": learnt.position, "class_counts": learnt.class_counts, "statuses": STATUSES}
    return in_parts(seqs, counts, report, alike, {name: _little_endian(column) for name, column in columns.items()})


def _members(columns: dict[str, NDArray[Any]]) -> list[bytes]:
    """Encode the members of a map that are ARRAYs."""
    actual: list[bytes] = []
    for name, column in columns.items():
        actual += (begin(name, column.dtype.char, len(column)), _little_endian(column).tobytes())
    return actual


def _swapped(column: NDArray[Any]) -> NDArray[Any]:
    return column.byteswap()


def _same(column: NDArray[Any]) -> NDArray[Any]:
    return column


_little_endian = _same if sys.byteorder == "little" else _swapped  # the numbers as they are in little-endian memory


def _columns(learnt: Learnt) -> dict[str, NDArray[Any]]:
    """Return the columns of a reply to labelled events, (n,) each."""
    outcome = learnt.outcome
    status = statuses(learnt)
    message = (status == _APPLIED) | (status == _RELABELLED)
    decisions = np.where(message, outcome.decisions, NONE).astype(np.int8)
    columns: dict[str, NDArray[Any]] = {"status": status, "scores": np.where(message, outcome.scores, math.nan)}
    if outcome.probabilities is None or outcome.thresholds is None:
        return {**columns, "ranks": decisions}
    columns["probabilities"] = np.where(message, outcome.probabilities, math.nan)
    columns["thresholds"] = np.where(message, outcome.thresholds, math.nan)
    return {**columns, "decisions": decisions}


def encode_scores(
    scores: Predictions,
    ids: tuple[str | None, ...],  # noqa: ARG001 - the caller has them
    head: Head,
    explained: Sequence[ScoreExplanation] | None = None,
) -> bytes:
    """Encode the reply to a predict, in the order of its events, after the members of `head`. O(events)."""
    columns = _predictions(scores, head)
    parts = [_MAPS[_OF_HEAD + len(columns) + (explained is not None)], _encode(head)[1:], *_members(columns)]
    if explained is not None:
        parts += (_EXPLANATIONS, _encode([explanation(item) for item in explained]))
    return b"".join(parts)


def encode_scores_parts(
    scores: Predictions,
    ids: tuple[str | None, ...],  # noqa: ARG001 - the caller has them
    head: Head,
    seqs: Sequence[int | None],
    counts: Sequence[int],
    remembered: Sequence[int],
) -> list[bytes]:
    """Encode a reply for each part of the events of a predict. O(events)."""
    alike = {"position": head.position, "ready": head.ready, "stale_seconds": head.stale_seconds}
    columns = {name: _little_endian(column) for name, column in _predictions(scores, head).items()}
    return in_parts(seqs, counts, [_encode({"remembered": count}) for count in remembered], alike, columns)


def _predictions(scores: Predictions, head: Head) -> dict[str, NDArray[Any]]:
    """Return the columns of a reply to a predict, (n,) each.

    Before both classes have been seen there is nothing to decide by.
    """
    decisions = scores.decisions if head.ready else np.full(len(scores.scores), NONE)
    labels = decisions.astype(np.int8)
    if scores.probabilities is None or scores.thresholds is None:
        return {"scores": scores.scores, "ranks": labels}
    thresholds = scores.thresholds if head.ready else np.full(len(labels), math.nan)
    return {
        "scores": scores.scores,
        "probabilities": scores.probabilities,
        "thresholds": thresholds,
        "labels": labels,
    }
