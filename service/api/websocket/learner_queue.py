"""Queues one connection's messages to one learner; executes and answers them in order of arrival.

    queue -> one body of adjacent messages -> prepare -> execute (several updates at a time) -> replies

The replies are those that a client would get if it waited for each before it sends the next message. Several updates
of events with features may be in flight, because the learner learns them in the order of its own queue. Everything else
(a predict, a label by id) starts when all messages before it are done.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from itertools import accumulate
from typing import Protocol

import numpy as np

from service.api.operations import Request, Scored, encode_by_size, execute, prepare_for
from service.api.websocket.messages import MessageBatch, join_body
from service.engine.replica import LearnerReplica
from service.errors import BadBody, Invalid, RateLimited, ServiceError
from service.wire import Events, Labelled, Learnt

__all__ = ["LearnerQueue", "QueueOwner"]


class QueueOwner(Protocol):
    """The connection, as its queues need it."""

    async def acquire(self, name: str) -> LearnerReplica:
        """Return the learner of this name, which stays in memory until its release. Raises `ServiceError`."""
        ...

    async def reply(self, batch: MessageBatch, replies: Sequence[bytes]) -> None:
        """Send the replies to the messages of a batch."""
        ...

    async def refuse(self, batch: MessageBatch, error: ServiceError) -> None:
        """Send an error to each message of a batch."""
        ...

    @property
    def spend(self) -> Callable[[int], None] | None:
        """A function that gets the number of events before their execution, and may refuse them."""
        ...

    def end_task(self, task: asyncio.Task[None]) -> None:
        """Handle the end of a task, perhaps by a fault of ours."""
        ...


class LearnerQueue:
    """The messages of a connection to one learner."""

    def __init__(self, name: str, owner: QueueOwner) -> None:
        self._name = name
        self._owner = owner
        self._waiting: deque[MessageBatch] = deque()
        self._task: asyncio.Task[None] | None = None  # executes the queue
        self._newest_update: asyncio.Task[None] | None = None  # the newest update; it ends after those before it

    def put(self, batch: MessageBatch) -> None:
        """Append messages."""
        self._waiting.append(batch)
        if self._task is None or self._task.done():
            self._task = self._start(self._run())

    async def idle(self) -> None:
        """Wait until every message has been answered."""
        while pending := [task for task in (self._task, self._newest_update) if task is not None and not task.done()]:
            await asyncio.wait(pending)

    def _start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=f"websocket to {self._name}")
        task.add_done_callback(self._owner.end_task)
        return task

    async def _run(self) -> None:
        while self._waiting:
            batch = self._waiting.popleft()
            while self._waiting and batch.add(self._waiting[0]):
                self._waiting.popleft()
            try:
                await self._execute(batch)
            except ServiceError as error:
                nothing_changed = isinstance(error, (BadBody, Invalid, RateLimited))
                if len(batch) > 1 and nothing_changed and batch.error is None:
                    self._waiting.extendleft(reversed(batch.separate()))
                    continue
                await self._wait_for_in_flight()
                await self._owner.refuse(batch, error)

    async def _wait_for_in_flight(self) -> None:
        """Wait until the updates in flight have been answered."""
        if self._newest_update is not None:
            await asyncio.wait([self._newest_update])
            self._newest_update = None

    async def _execute(self, batch: MessageBatch) -> None:
        if batch.error is not None:
            raise batch.error
        learner = await self._owner.acquire(self._name)
        release = True
        try:
            if batch.operation == "predict":
                await self._wait_for_in_flight()
                await learner.log.wait_for(batch.at_least)
                await self._owner.reply(batch, await _predict(learner, batch, self._owner.spend))
                return
            assert batch.operation is not None  # otherwise there is an error
            request = await prepare_for(
                learner, batch.operation, join_body(batch), batch.form.coding, self._owner.spend
            )
            assert isinstance(request.events, Labelled)
            plain = request.events.plain
            if not plain:
                await self._wait_for_in_flight()
            release = False  # the task releases it
        finally:
            if release:
                learner.release()
        self._newest_update = self._start(self._learn(learner, batch, request, self._newest_update))
        if not plain:
            await self._wait_for_in_flight()

    async def _learn(
        self, learner: LearnerReplica, batch: MessageBatch, request: Request, before: asyncio.Task[None] | None
    ) -> None:
        """Execute labelled events, release the learner, and answer after the updates before."""
        failure, replies = None, []
        try:
            learnt = await execute(learner, request)
            if len(batch) > 1:
                assert isinstance(learnt, Learnt)
                replies = batch.form.replies.encode_learnt(learnt, request.events.ids, batch.seqs, batch.counts)
            else:
                reply = await encode_by_size(request, learnt, batch.form.coding)
                replies = [batch.form.encode_reply(batch.seqs[0], reply)]
        except ServiceError as error:
            failure = error
        finally:
            learner.release()
        if before is not None and not before.done():
            await asyncio.wait([before])
        if failure is not None:
            await self._owner.refuse(batch, failure)
        else:
            await self._owner.reply(batch, replies)


async def _predict(learner: LearnerReplica, batch: MessageBatch, spend: Callable[[int], None] | None) -> list[bytes]:
    """Return the replies to the messages of a predict."""
    form = batch.form
    request = await prepare_for(learner, "predict", join_body(batch), form.coding, spend)
    result = await execute(learner, request, batch.explain)
    if len(batch) == 1:
        return [form.encode_reply(batch.seqs[0], await encode_by_size(request, result, form.coding))]
    assert isinstance(request.events, Events)
    assert isinstance(result, Scored)
    remembered = _count_remembered(learner, request.events, batch.counts, result.head.remembered)
    return form.replies.encode_scores(
        result.scores, request.events.ids, result.head, batch.seqs, batch.counts, remembered
    )


def _count_remembered(learner: LearnerReplica, events: Events, counts: Sequence[int], total: int) -> list[int]:
    """Count the remembered events of each message, given their total. One by one, if that is neither none nor all."""
    parts = [slice(stop - count, stop) for count, stop in zip(counts, accumulate(counts), strict=True)]
    named = [[i for i in range(part.start, part.stop) if events.ids[i] is not None] for part in parts]
    if not total or sum(map(len, named)) == total:
        return [len(places) if total else 0 for places in named]
    now = learner.served_events.present_time()
    times = np.full(len(events.ids), now) if events.times is None else np.nan_to_num(events.times, nan=now)
    return [
        learner.served_events.count_remembered([str(events.ids[i]) for i in places], times[places]) if places else 0
        for places in named
    ]
