"""The interface of a coding: functions that decode bodies to columns and encode replies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

from learners import Config, Predictions, ScoreExplanation
from service.wire.json_encode import Head
from service.wire.requests import Events, Labelled, Learnt

__all__ = ["Coding", "Operation", "SplitReplies"]


Operation = Literal["update", "predict", "labels"]


class Coding(NamedTuple):
    """A way to write bodies and replies."""

    media_type: str
    content_type: tuple[bytes, bytes]  # the header that says so
    # columns, and what each event that has features carries for them
    decode_update: Callable[[bytes, Config], tuple[Labelled, Any]]
    decode_labels: Callable[[bytes, Config], tuple[Labelled, Any]]
    decode_events: Callable[[bytes, Config], tuple[Events, Any]]
    encode_learnt: Callable[[Learnt, tuple[str | None, ...] | None], bytes]
    encode_scores: Callable[[Predictions, tuple[str | None, ...], Head, Sequence[ScoreExplanation] | None], bytes]


class SplitReplies(NamedTuple):
    """A way to write a reply for each part of a request: messages of a websocket that were executed as one.

    `seqs` has the `seq` of each part, `counts` its number of events, `remembered` how many of these are remembered.
    """

    # of learnt events, their ids, seqs, counts
    encode_learnt: Callable[[Learnt, tuple[str | None, ...] | None, Sequence[int | None], Sequence[int]], list[bytes]]
    # of scores, their ids, the head without its `remembered`, seqs, counts, remembered
    encode_scores: Callable[
        [Predictions, tuple[str | None, ...], Head, Sequence[int | None], Sequence[int], Sequence[int]], list[bytes]
    ]
