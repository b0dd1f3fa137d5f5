"""One update, predict or labels, by whichever door it comes in.

    body -> prepare -> Request -> execute -> Result -> encode -> reply

The doors differ in when these three run and in how their replies are framed. The inline path runs them in one go, ASGI
and NDJSON give large bodies to a thread, a websocket joins neighbouring messages to one body, and a group prepares one
body for several learners. Log, state and digest do not depend on the door or the coding.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from learners import Config, InvalidInput, LearnerView, Predictions, ScoreExplanation, explain_scores
from service import clock
from service.engine import LARGE, run_by_size
from service.engine.replica import LearnerReplica, ScoredEvents
from service.errors import Invalid
from service.wire import Coding, Events, Head, Labelled, Learnt, Operation

__all__ = [
    "Request",
    "Result",
    "Scored",
    "admit",
    "admit_by_size",
    "answer",
    "encode",
    "encode_by_size",
    "execute",
    "execute_at_once",
    "prepare",
    "prepare_for",
    "scored_by",
]


_SKEW = 1.0  # seconds by which clocks differ as a rule


class Request(NamedTuple):
    """A decoded body."""

    operation: Operation
    events: Events | Labelled
    carried: Any  # features of each event as they were sent, for explanations and the names of columns
    size: int  # bytes of the body
    ahead: int  # times that were more than a second ahead of this node's clock

    @property
    def event_count(self) -> int:
        """Number of its events."""
        return len(self.events.labels if isinstance(self.events, Labelled) else self.events.ids)


class Scored(NamedTuple):
    """The result of a predict."""

    scores: Predictions
    head: Head
    explanations: Sequence[ScoreExplanation] | None = None


Result = Scored | Learnt


def prepare(
    operation: Operation, body: bytes, config: Config, coding: Coding, newest: Callable[[], float] = lambda: math.nan
) -> Request:
    """Decode a body as a learner of this configuration takes it. Raises `BadBody` or `Invalid`, with every problem.

    Times ahead of this node's clock become now, in the log too, so that no event moves a learner's clock beyond it. If
    the node is behind, they become the learner's clock, `newest`: else the events would be too old when they arrive.
    """
    events: Events | Labelled
    if operation == "predict":
        events, carried = coding.decode_events(body, config)
        if config.late.keep_features:
            events = events._replace(features=carried)
    else:
        decode = coding.decode_update if operation == "update" else coding.decode_labels
        events, carried = decode(body, config)
    ahead = 0
    if events.times is not None:
        now = clock.now()
        if (events.times > now).any():
            ahead = int(np.count_nonzero(events.times > now + _SKEW))
            events = events._replace(times=np.minimum(events.times, np.fmax(now, newest())))
    return Request(operation, events, carried, len(body), ahead)


async def prepare_for(
    learner: LearnerReplica,
    operation: Operation,
    body: bytes,
    coding: Coding,
    spend: Callable[[int], None] | None = None,
) -> Request:
    """Prepare a body for a learner, in a thread if it is large, and admit the request.

    `spend` gets the number of events before anything else is done with them; it may refuse them. Raises `ServiceError`.
    """
    config = learner.learner.config
    if len(body) < LARGE:
        request = prepare(operation, body, config, coding, learner.newest_time)
    else:
        request = await asyncio.to_thread(prepare, operation, body, config, coding, learner.newest_time)
    if spend is not None:
        spend(request.event_count)
    await admit_by_size(learner, request)
    return request


def admit(learner: LearnerReplica, request: Request) -> None:
    """Note what a request tells besides its events: names of columns, and times ahead of this node's clock."""
    _note_names(learner, request)
    learner.note_ahead(request.ahead)


async def admit_by_size(learner: LearnerReplica, request: Request) -> None:
    """Admit a request; the names of a large one are noted in a thread."""
    if learner.feature_names.looking:
        await run_by_size(request.size, _note_names, learner, request)
    learner.note_ahead(request.ahead)


def _note_names(learner: LearnerReplica, request: Request) -> None:
    """Note the names of the columns if somebody looks at them."""
    if learner.feature_names.looking:
        rows = learner.view.scorer.columns.encoded(request.events.rows)
        learner.feature_names.look(rows, request.carried)


async def execute(learner: LearnerReplica, request: Request, explain: int | None = None) -> Result:
    """Learn or score the events. `explain`: number of contributions to give with each score. Raises `ServiceError`."""
    events = request.events
    if isinstance(events, Labelled):
        return await learner.label(events)
    explanations, at = None, None
    if explain is not None:
        # a frozen scorer, so that the contributions add up to the very scores that are served
        at = replace(learner.view, scorer=learner.view.scorer.frozen()), learner.position
        explanations = await _explain(at[0], request.carried, explain)
    return scored_by(learner, await learner.served_events.predict(events, at), explanations)


def execute_at_once(learner: LearnerReplica, request: Request) -> Result | None:
    """Score the events of a small predict; None if that has to wait for a thread or the store."""
    assert isinstance(request.events, Events)
    scored = learner.served_events.at_once(request.events)
    return None if scored is None else scored_by(learner, scored)


def scored_by(
    learner: LearnerReplica, scored: ScoredEvents, explanations: Sequence[ScoreExplanation] | None = None
) -> Scored:
    """Return the result for scores of a learner."""
    head = Head(scored.position, scored.view.not_ready is None, scored.remembered, learner.node.stale_seconds)
    return Scored(scored.scores, head, explanations)


async def _explain(view: LearnerView, carried: Any, most: int) -> list[ScoreExplanation]:
    try:
        return await asyncio.to_thread(explain_scores, view.scorer, carried, most)
    except InvalidInput as error:
        raise Invalid("the explanation is refused; nothing was served", error.problems) from None


def encode(request: Request, result: Result, coding: Coding) -> bytes:
    """Encode the reply."""
    if isinstance(result, Learnt):
        return coding.encode_learnt(result, request.events.ids)
    assert isinstance(request.events, Events)
    return coding.encode_scores(result.scores, request.events.ids, result.head, result.explanations)


async def encode_by_size(request: Request, result: Result, coding: Coding) -> bytes:
    """Encode the reply, in a thread if the body was large."""
    if request.size < LARGE:
        return encode(request, result, coding)
    return await asyncio.to_thread(encode, request, result, coding)


async def answer(
    learner: LearnerReplica,
    operation: Operation,
    body: bytes,
    read: Coding,
    write: Coding,
    explain: int | None = None,
    spend: Callable[[int], None] | None = None,
) -> tuple[bytes, int]:
    """Prepare, execute and encode; return the reply and the number of events. Raises `ServiceError`."""
    request = await prepare_for(learner, operation, body, read, spend)
    result = await execute(learner, request, explain)
    return await encode_by_size(request, result, write), request.event_count
