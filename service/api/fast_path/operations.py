"""The hot operations, whatever door a body comes through: decode -> learn or score -> encode.

A coding is how a body is written: JSON here (`wire.py`). All give the same columns, so the log, the state and its
digest do not depend on the door.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from learners import InvalidInput, LearnerView, ScoreExplanation, explain_scores
from service.engine import LARGE, run_by_size
from service.engine.replica import LearnerReplica, ScoredEvents
from service.errors import Invalid
from service.wire import Coding, Head, Labelled, Learnt, Operation

__all__ = ["answer", "at_once", "labelled", "told"]


async def answer(
    learner: LearnerReplica,
    operation: Operation,
    body: bytes,
    read: Coding,
    write: Coding,
    explain: int | None = None,
    counted: list[int] | None = None,
    spend: Callable[[int], None] | None = None,
) -> bytes:
    """The reply to a body. Raises `ServiceError`; `explain`: contributions to give to each score of a predict.

    How many events the body has is added to `counted` as soon as that is known, and then `spend` is told, which may
    refuse them: nothing has been done with them by then.
    """
    config = learner.learner.config
    if operation == "predict":
        small = len(body) < LARGE  # as most are: then not even a coroutine is made to decide it
        decode = read.decode_events
        events, carried = decode(body, config) if small else await run_by_size(len(body), decode, body, config)
        if counted is not None:
            counted.append(len(events.ids))
        if spend is not None:
            spend(len(events.ids))
        if learner.feature_names.looking:
            await run_by_size(len(body), learner.feature_names.look, events.rows, carried)
        explained, at = None, None
        if explain is not None:
            # frozen, so that the sums are those of the very scores that are served
            at = replace(learner.view, scorer=learner.view.scorer.frozen()), learner.position
            explained = await _explained(at[0], carried, explain)
        said = await learner.served_events.predict(events, at)
        head = _head(learner, said)
        if small:
            return write.encode_scores(said.scores, events.ids, head, explained)
        return await run_by_size(len(body), write.encode_scores, said.scores, events.ids, head, explained)
    came = await labelled(learner, operation, body, read)
    if counted is not None:
        counted.append(len(came.labels))
    if spend is not None:
        spend(len(came.labels))
    return await told(await learner.label(came), came, len(body), write)


def at_once(learner: LearnerReplica, body: bytes, read: Coding, write: Coding) -> tuple[bytes, int] | None:
    """The reply to a small body of a predict, and how many events that has. Raises `ServiceError`.

    None: it has to wait, for a thread or for the store.
    """
    events, carried = read.decode_events(body, learner.learner.config)
    said = learner.served_events.at_once(events)
    if said is None:
        return None
    if learner.feature_names.looking:
        learner.feature_names.look(events.rows, carried)
    return write.encode_scores(said.scores, events.ids, _head(learner, said), None), len(events.ids)


def _head(learner: LearnerReplica, said: ScoredEvents) -> Head:
    return Head(said.position, said.view.not_ready is None, said.remembered, learner.node.stale_seconds)


async def labelled(learner: LearnerReplica, operation: Operation, body: bytes, read: Coding) -> Labelled:
    """The labelled events of the body of an update, or of labels. Raises `ServiceError`."""
    decode = read.decode_update if operation == "update" else read.decode_labels
    events, carried = await run_by_size(len(body), decode, body, learner.learner.config)
    if learner.feature_names.looking:
        await run_by_size(len(body), learner.feature_names.look, events.rows, carried)
    return events


async def told(learnt: Learnt, events: Labelled, size: int, write: Coding) -> bytes:
    """The reply to labelled events that came in a body of so many bytes."""
    return await run_by_size(size, write.encode_learnt, learnt, events.ids)


async def _explained(view: LearnerView, carried: Any, most: int) -> list[ScoreExplanation]:
    try:
        return await asyncio.to_thread(explain_scores, view.scorer, carried, most)
    except InvalidInput as error:
        raise Invalid("the explanation is refused; nothing was served", error.problems) from None
