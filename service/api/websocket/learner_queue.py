"""A lane: one connection's messages to one learner, carried out and answered in the order they came.

    waiting -> neighbours as one body -> decode -> learner's queue (updates: more may follow meanwhile) -> replies

What is answered is what it would be if the client had waited for each reply before the next message. Updates of events
with features may be under way together, for they are learnt in the order in which they are queued; whatever else there
is (a score, a label by id) begins when everything before it is done.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

import numpy as np

from service.api.operations import Request, answer, encode_by_size, execute, prepare_for
from service.api.websocket.messages import MessageBatch, joint
from service.engine.replica import LearnerReplica
from service.errors import BadBody, Invalid, RateLimited, ServiceError
from service.wire import Labelled, Learnt

__all__ = ["Lane", "Owner"]


class Owner(Protocol):
    """What a lane needs of its connection."""

    async def hold(self, name: str) -> LearnerReplica:
        """The learner of this name, awake until it is let go of. Raises `ServiceError`."""
        ...

    async def reply(self, batch: MessageBatch, replies: Sequence[bytes]) -> None:
        """Answer the messages of a request."""
        ...

    async def refuse(self, batch: MessageBatch, error: ServiceError) -> None:
        """Answer them with an error."""
        ...

    @property
    def spend(self) -> Callable[[int], None] | None:
        """What is to be told of the events of messages before they are carried out; it may refuse them."""
        ...

    def ended(self, task: asyncio.Task[None]) -> None:
        """Called with each task of the lane when it is over: by an error of ours, perhaps."""
        ...


class Lane:
    """The messages of a connection to one learner."""

    def __init__(self, name: str, owner: Owner) -> None:
        self._name = name
        self._owner = owner
        self._waiting: deque[MessageBatch] = deque()
        self._task: asyncio.Task[None] | None = None  # sees to what waits
        self._last: asyncio.Task[None] | None = None  # the update that was begun last; it ends after those before it

    def put(self, batch: MessageBatch) -> None:
        """Have messages carried out after those that are here."""
        self._waiting.append(batch)
        if self._task is None or self._task.done():
            self._task = self._begun(self._run())

    async def idle(self) -> None:
        """Until everything has been answered."""
        while pending := [one for one in (self._task, self._last) if one is not None and not one.done()]:
            await asyncio.wait(pending)

    def _begun(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=f"websocket to {self._name}")
        task.add_done_callback(self._owner.ended)
        return task

    async def _run(self) -> None:
        while self._waiting:
            batch = self._waiting.popleft()
            while self._waiting and batch.add(self._waiting[0]):
                self._waiting.popleft()
            try:
                await self._execute(batch)
            except ServiceError as error:
                of_some = isinstance(error, (BadBody, Invalid, RateLimited))
                if len(batch) > 1 and of_some and batch.error is None:  # nothing was changed
                    self._waiting.extendleft(reversed(batch.apart()))
                    continue
                await self._wait_for_in_flight()
                await self._owner.refuse(batch, error)

    async def _wait_for_in_flight(self) -> None:
        """Wait until the updates in flight have been answered."""
        if self._last is not None:
            await asyncio.wait([self._last])
            self._last = None

    async def _execute(self, batch: MessageBatch) -> None:
        if batch.error is not None:
            raise batch.error
        learner = await self._owner.hold(self._name)
        held = True
        try:
            if batch.operation == "predict":
                await self._wait_for_in_flight()
                await learner.log.wait_for(batch.at_least)
                await self._owner.reply(batch, await _predict(learner, batch, self._owner.spend))
                return
            assert batch.operation is not None  # or there would be an error
            request = await prepare_for(learner, batch.operation, joint(batch), batch.form.coding, self._owner.spend)
            assert isinstance(request.events, Labelled)
            plain = request.events.plain
            if not plain:
                await self._wait_for_in_flight()
            held = False  # from here on the task holds it
        finally:
            if held:
                learner.release()
        self._last = self._begun(self._learn(learner, batch, request, self._last))
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
                replies = batch.form.joining.labelled(batch, learnt, request.events.ids)
            else:
                reply = await encode_by_size(request, learnt, batch.form.coding)
                replies = [batch.form.answered(batch.seqs[0], reply)]
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
    coding, joining = form.coding, form.joining
    reply, _ = await answer(learner, "predict", joint(batch), coding, coding, batch.explain, spend)
    if len(batch) == 1:
        return [form.answered(batch.seqs[0], reply)]

    def count_remembered(content: Any) -> int:
        ids, times = joining.named(content)
        now = time.time()
        moments = np.array([now if moment is None else moment for moment in times])
        return learner.served_events.count_remembered(ids, moments) if ids else 0

    return joining.predicted(batch, reply, count_remembered)
