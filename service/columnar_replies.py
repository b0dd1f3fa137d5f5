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
import sys
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from learners.batch import Status
from learners.explain import Explanation
from learners.scorer import Scores
from service.hosted import Learnt
from service.replies import STATUSES, Head, explanation

__all__ = ["NONE", "counted", "encode_learnt", "encode_scores", "learnt_in_parts", "statuses"]

NONE = -128  # a decision or a rank where there is none

_DTYPES = {"d": "float64", "b": "int8"}
_encode = msgspec.msgpack.Encoder().encode

_PLACE = np.full(len(Status), NONE, dtype=np.int8)  # of each status in STATUSES; BEYOND never reaches a reply
for _one, _name in {
    Status.APPLIED: "applied",
    Status.DUPLICATE: "duplicate",
    Status.RELABELLED: "relabelled",
    Status.UNKNOWN: "unknown",
}.items():
    _PLACE[_one] = STATUSES.index(_name)
_MAPS = [bytes([0x80 + members]) for members in range(16)]  # what MessagePack begins a map with
_SEQ, _EXPLANATIONS = _encode("seq"), _encode("explanations")
_OF_HEAD = len(msgspec.structs.fields(Head))
# the counts of one event, by its place in STATUSES: the members of a map without its first byte
_SINGLE = [_encode({name: int(name == one) for name in STATUSES})[1:] for one in STATUSES]
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
    columns = _columns(learnt)
    reply: dict[str, Any] = {
        **counted(columns["status"]),
        "position": learnt.position,
        "class_counts": learnt.class_counts,
        "statuses": STATUSES,
    }
    return b"".join([_MAPS[len(reply) + len(columns)], _encode(reply)[1:], *_members(columns)])


def learnt_in_parts(learnt: Learnt, seqs: Sequence[int | None], counts: Sequence[int]) -> list[bytes]:
    """The same for each of the parts that the events came in, with its `seq`; `counts`: the events of each."""
    columns = _columns(learnt)
    alike = {"position": learnt.position, "class_counts": learnt.class_counts, "statuses": STATUSES}
    shared = _encode(alike)[1:]
    head = _MAPS[1 + len(STATUSES) + len(alike) + len(columns)]
    numbers = [(column.itemsize, _numbers(column)) for column in columns.values()]
    begins: dict[int, list[bytes]] = {}  # of each column of so many events, up to its numbers
    status = columns["status"]
    replies = []
    start = 0
    for seq, n in zip(seqs, counts, strict=True):
        stop = start + n
        if n not in begins:
            begins[n] = [_begin(name, column[:n]) for name, column in columns.items()]
        reply = [
            head,
            _SEQ,
            _encode(seq),
            _SINGLE[status[start]] if n == 1 else _encode(counted(status[start:stop]))[1:],
        ]
        reply.append(shared)
        for begin, (width, data) in zip(begins[n], numbers, strict=True):
            reply += (begin, data[start * width : stop * width])
        replies.append(b"".join(reply))
        start = stop
    return replies


def _members(columns: dict[str, NDArray[Any]]) -> list[bytes]:
    """The members of a map that are ARRAYs."""
    return [part for name, column in columns.items() for part in (_begin(name, column), _numbers(column))]


def _begin(name: str, column: NDArray[Any]) -> bytes:
    """A member that is an ARRAY as long as this one, up to its numbers."""
    numbers = bytes(column.nbytes)
    array = _encode({"dtype": _DTYPES[column.dtype.char], "shape": column.shape, "data": numbers})
    return _encode(name) + array[: len(array) - len(numbers)]


def _swapped(column: NDArray[Any]) -> bytes:
    return column.byteswap().tobytes()


_numbers = np.ndarray.tobytes if sys.byteorder == "little" else _swapped


@lru_cache(256)
def _begins(n: int, said: int) -> tuple[bytes, ...]:
    """Of each column of a reply to n events to score, as `_begin`: so many of numbers, and what follows from them."""
    numbers, whole = np.empty(n), np.empty(n, dtype=np.int8)
    begins = [_begin(name, numbers) for name in ("scores", "probabilities", "thresholds")[:said]]
    return *begins, _begin("ranks" if said == 1 else "labels", whole)


def _columns(learnt: Learnt) -> dict[str, NDArray[Any]]:
    """What a reply to labelled events says of each, by columns of (n,)."""
    outcome = learnt.outcome
    status = statuses(learnt)
    said = (status == _APPLIED) | (status == _RELABELLED)
    decisions = np.where(said, outcome.decisions, NONE).astype(np.int8)
    columns: dict[str, NDArray[Any]] = {"status": status, "scores": np.where(said, outcome.scores, math.nan)}
    if outcome.probabilities is None or outcome.thresholds is None:
        return {**columns, "ranks": decisions}
    columns["probabilities"] = np.where(said, outcome.probabilities, math.nan)
    columns["thresholds"] = np.where(said, outcome.thresholds, math.nan)
    return {**columns, "decisions": decisions}


def encode_scores(
    scores: Scores,
    ids: tuple[str | None, ...],  # noqa: ARG001 - the caller has them
    head: Head,
    explained: Sequence[Explanation] | None = None,
) -> bytes:
    """The reply to a predict, in the order of its events, after the members of `head`. O(events)."""
    # before both classes have been seen there is nothing to decide by
    decisions = scores.decisions if head.ready else np.full(len(scores.scores), NONE)
    said = decisions.astype(np.int8)
    columns: list[NDArray[Any]] = [scores.scores]
    if scores.probabilities is not None and scores.thresholds is not None:
        columns += (scores.probabilities, scores.thresholds)
    parts = [_MAPS[_OF_HEAD + len(columns) + 1 + (explained is not None)], _encode(head)[1:]]
    begins = _begins(len(said), len(columns))
    for begin, column in zip(begins, (*columns, said), strict=True):
        parts += (begin, _numbers(column))
    if explained is not None:
        parts += (_EXPLANATIONS, _encode([explanation(one) for one in explained]))
    return b"".join(parts)
