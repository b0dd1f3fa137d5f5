"""Replies of the hot routes in MessagePack, by columns, in the order of the events of the request.

    update   {"applied", "duplicate", "relabelled", "unknown", "expired", "position", "class_counts",
    labels    "status": ARRAY int8, indices into "statuses", "scores", "probabilities", "thresholds": ARRAY float64,
              "decisions": ARRAY int8}
    predict  {"position", "ready", "remembered", "stale_seconds", "scores", "probabilities", "thresholds",
              "labels": ARRAY int8, "explanations"?}

ARRAY is as in `columnar.py`. Of an ordinal learner there are "ranks", and no probabilities and thresholds. Where JSON
has null there is NaN, or -128 among decisions, labels and ranks. O(events), with no work in Python for each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from learners.batch import Status
from learners.explain import Explanation
from learners.scorer import Scores
from service.hosted import Learnt
from service.replies import STATUSES, explanation

__all__ = ["NONE", "counted", "encode_learnt", "encode_scores", "statuses"]

NONE = -128  # a decision or a rank where there is none

_DTYPES: dict[str, tuple[str, np.dtype[Any]]] = {  # to ask NumPy for a name takes longer than all the rest
    "d": ("float64", np.dtype("<f8")),
    "b": ("int8", np.dtype("i1")),
}
_encode = msgspec.msgpack.Encoder().encode

_PLACE = np.full(len(Status), NONE, dtype=np.int8)  # of each status in STATUSES; BEYOND never reaches a reply
for _one, _name in {
    Status.APPLIED: "applied",
    Status.DUPLICATE: "duplicate",
    Status.RELABELLED: "relabelled",
    Status.UNKNOWN: "unknown",
}.items():
    _PLACE[_one] = STATUSES.index(_name)
_APPLIED, _RELABELLED, _UNKNOWN, _EXPIRED = map(STATUSES.index, ("applied", "relabelled", "unknown", "expired"))


def statuses(learnt: Learnt) -> NDArray[np.int8]:
    """What became of each event, (n,): an index into `STATUSES`."""
    status: NDArray[np.int8] = _PLACE[learnt.outcome.status]
    if learnt.expired is not None:
        status[learnt.expired & (status == _UNKNOWN)] = _EXPIRED
    return status


def counted(status: NDArray[np.int8]) -> dict[str, int]:
    """How many events became what."""
    return dict(zip(STATUSES, np.bincount(status, minlength=len(STATUSES)).tolist(), strict=True))


def encode_learnt(learnt: Learnt, ids: tuple[str | None, ...] | None) -> bytes:  # noqa: ARG001 - the caller has them
    """The reply to labelled events, in their order: what became of each. O(events)."""
    outcome = learnt.outcome
    status = statuses(learnt)
    said = (status == _APPLIED) | (status == _RELABELLED)
    reply: dict[str, Any] = {
        **counted(status),
        "position": learnt.position,
        "class_counts": learnt.class_counts,
        "statuses": STATUSES,
        "status": _array_of(status),
        "scores": _array_of(np.where(said, outcome.scores, math.nan)),
    }
    decisions = _array_of(np.where(said, outcome.decisions, NONE).astype(np.int8))
    if outcome.probabilities is None or outcome.thresholds is None:
        return _encode({**reply, "ranks": decisions})
    reply["probabilities"] = _array_of(np.where(said, outcome.probabilities, math.nan))
    reply["thresholds"] = _array_of(np.where(said, outcome.thresholds, math.nan))
    return _encode({**reply, "decisions": decisions})


def encode_scores(
    scores: Scores,
    ids: tuple[str | None, ...],  # noqa: ARG001 - the caller has them
    head: dict[str, Any],
    explained: Sequence[Explanation] | None = None,
) -> bytes:
    """The reply to a predict, in the order of its events, after the members of `head`. O(events)."""
    # before both classes have been seen there is nothing to decide by
    decisions = scores.decisions if head["ready"] else np.full(len(scores.scores), NONE)
    reply: dict[str, Any] = {**head, "scores": _array_of(scores.scores)}
    if scores.probabilities is None or scores.thresholds is None:
        return _encode({**reply, "ranks": _array_of(decisions.astype(np.int8))})
    reply["probabilities"] = _array_of(scores.probabilities)
    reply["thresholds"] = _array_of(scores.thresholds)
    reply["labels"] = _array_of(decisions.astype(np.int8))
    if explained is not None:
        reply["explanations"] = [explanation(one) for one in explained]
    return _encode(reply)


def _array_of(values: NDArray[Any]) -> dict[str, Any]:
    """An ARRAY of what is a vector of float64 or int8."""
    name, dtype = _DTYPES[values.dtype.char]
    return {"dtype": name, "shape": [len(values)], "data": np.ascontiguousarray(values, dtype=dtype).data}
