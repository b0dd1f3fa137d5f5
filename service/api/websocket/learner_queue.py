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

from service.api.fast_path import answer, labelled, told
from service.api.websocket.messages import Request, joint
from service.engine.replica import LearnerReplica
from service.errors import BadBody, Invalid, RateLimited, ServiceError
from service.wire import Labelled, Learnt

__all__ = ["Lane", "Owner"]


class Owner(Protocol):
    """What a lane needs of its connection."""

    async def hold(self, name: str) -> LearnerReplica:
        """The learner of this name, awake until it is let go of. Raises `ServiceError`."""
        ...

    async def reply(self, request: Request, replies: Sequence[bytes]) -> None:
        """Answer the messages of a request."""
        ...

    async def refuse(self, request: Request, error: ServiceError) -> None:
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
        self._waiting: deque[Request] = deque()
        self._task: asyncio.Task[None] | None = None  # sees to what waits
        self._last: asyncio.Task[None] | None = None  # the update that was begun last; it ends after those before it

    def put(self, request: Request) -> None:
        """Have messages carried out after those that are here."""
        self._waiting.append(request)
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
            request = self._waiting.popleft()
            while self._waiting and request.add(self._waiting[0]):
                self._waiting.popleft()
            try:
                await self._carried_out(request)
            except ServiceError as error:
                of_some = isinstance(error, (BadBody, Invalid, RateLimited))
                if len(request) > 1 and of_some and request.error is None:  # nothing was changed
                    self._waiting.extendleft(reversed(request.apart()))
                    continue
                await self._landed()
                await self._owner.refuse(request, error)

    async def _landed(self) -> None:
        """Until the updates that are under way have been answered."""
        if self._last is not None:
            await asyncio.wait([self._last])
            self._last = None

    async def _carried_out(self, request: Request) -> None:
        if request.error is not None:
            raise request.error
        learner = await self._owner.hold(self._name)
        held = True
        try:
            if request.operation == "predict":
                await self._landed()
                await learner.log.wait_for(request.at_least)
                await self._owner.reply(request, await _predicted(learner, request, self._owner.spend))
                return
            assert request.operation is not None  # or there would be an error
            body = joint(request)
            events = await labelled(learner, request.operation, body, request.form.coding)
            if self._owner.spend is not None:
                self._owner.spend(len(events.labels))
            plain = events.plain
            if not plain:
                await self._landed()
            held = False  # from here on the task holds it
        finally:
            if held:
                learner.release()
        self._last = self._begun(self._learnt(learner, request, events, len(body), self._last))
        if not plain:
            await self._landed()

    async def _learnt(
        self,
        learner: LearnerReplica,
        request: Request,
        events: Labelled,
        size: int,
        before: asyncio.Task[None] | None,
    ) -> None:
        """Learn what came in a body of so many bytes, let go of the learner, and answer after those before."""
        failure, replies = None, []
        try:
            learnt = await learner.label(events)
            replies = await self._told(learnt, request, events, size)
        except ServiceError as error:
            failure = error
        finally:
            learner.release()
        if before is not None and not before.done():
            await asyncio.wait([before])
        if failure is not None:
            await self._owner.refuse(request, failure)
        else:
            await self._owner.reply(request, replies)

    @staticmethod
    async def _told(learnt: Learnt, request: Request, events: Labelled, size: int) -> list[bytes]:
        form = request.form
        if len(request) > 1:
            return form.joining.labelled(request, learnt, events.ids)
        return [form.answered(request.seqs[0], await told(learnt, events, size, form.coding))]


async def _predicted(learner: LearnerReplica, request: Request, spend: Callable[[int], None] | None) -> list[bytes]:
    """The replies to the messages of a predict."""
    form = request.form
    coding, joining = form.coding, form.joining
    reply = await answer(learner, "predict", joint(request), coding, coding, request.explain, spend=spend)
    if len(request) == 1:
        return [form.answered(request.seqs[0], reply)]

    def standing(content: Any) -> int:
        ids, times = joining.named(content)
        now = time.time()
        given = np.array([now if one is None else one for one in times])
        return learner.served_events.count_remembered(ids, given) if ids else 0

    return joining.predicted(request, reply, standing)
