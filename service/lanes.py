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

from service.errors import BadBody, Invalid, RateLimited, ServiceError
from service.frames import Request, joint
from service.hosted import Hosted, Learnt
from service.hot import answer, labelled, told
from service.serving import Labelled

__all__ = ["Lane", "Owner"]

_JOINED = 2**17  # bytes of messages that are made one body


class Owner(Protocol):
    """What a lane needs of its connection."""

    async def hold(self, name: str) -> Hosted:
        """The learner of this name, awake until it is let go of. Raises `ServiceError`."""
        ...

    async def reply(self, requests: Sequence[Request], replies: Sequence[bytes]) -> None:
        """Answer requests of one form."""
        ...

    async def refuse(self, requests: Sequence[Request], error: ServiceError) -> None:
        """Answer requests of one form with an error."""
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
        """Have a message carried out after those that are here."""
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
            requests = self._neighbours()
            try:
                await self._carried_out(requests)
            except ServiceError as error:
                of_some = isinstance(error, (BadBody, Invalid, RateLimited))
                if len(requests) > 1 and of_some:  # nothing was changed
                    self._waiting.extendleft(one.apart() for one in reversed(requests))
                    continue
                await self._landed()
                await self._owner.refuse(requests, error)

    def _neighbours(self) -> list[Request]:
        """The messages that come next and can be made one."""
        waiting = self._waiting
        first = waiting.popleft()
        requests = [first]
        size = first.size
        while waiting and first.make is not None and waiting[0].make == first.make:
            size += waiting[0].size
            if size > _JOINED:
                break
            requests.append(waiting.popleft())
        return requests

    async def _landed(self) -> None:
        """Until the updates that are under way have been answered."""
        if self._last is not None:
            await asyncio.wait([self._last])
            self._last = None

    async def _carried_out(self, requests: Sequence[Request]) -> None:
        first = requests[0]
        if first.error is not None:
            raise first.error
        learner = await self._owner.hold(self._name)
        held = True
        try:
            if first.operation == "predict":
                await self._landed()
                await learner.at_least(first.at_least)
                await self._owner.reply(requests, await _predicted(learner, requests, self._owner.spend))
                return
            assert first.operation is not None  # or there would be an error
            body = joint(requests)
            events = await labelled(learner, first.operation, body, first.form.coding)
            if self._owner.spend is not None:
                self._owner.spend(len(events.labels))
            plain = events.plain
            if not plain:
                await self._landed()
            held = False  # from here on the task holds it
        finally:
            if held:
                learner.let_go()
        self._last = self._begun(self._learnt(learner, requests, events, len(body), self._last))
        if not plain:
            await self._landed()

    async def _learnt(
        self,
        learner: Hosted,
        requests: Sequence[Request],
        events: Labelled,
        size: int,
        before: asyncio.Task[None] | None,
    ) -> None:
        """Learn what came in a body of so many bytes, let go of the learner, and answer after those before."""
        failure, replies = None, []
        try:
            learnt = await learner.label(events)
            replies = await self._told(learnt, requests, events, size)
        except ServiceError as error:
            failure = error
        finally:
            learner.let_go()
        if before is not None and not before.done():
            await asyncio.wait([before])
        if failure is not None:
            await self._owner.refuse(requests, failure)
        else:
            await self._owner.reply(requests, replies)

    @staticmethod
    async def _told(learnt: Learnt, requests: Sequence[Request], events: Labelled, size: int) -> list[bytes]:
        form = requests[0].form
        if len(requests) > 1:
            return form.joining.labelled(requests, learnt, events.ids)
        return [form.answered(requests[0].seq, await told(learnt, events, size, form.coding))]


async def _predicted(learner: Hosted, requests: Sequence[Request], spend: Callable[[int], None] | None) -> list[bytes]:
    """The replies to neighbouring predicts."""
    first = requests[0]
    coding, joining = first.form.coding, first.form.joining
    reply = await answer(learner, "predict", joint(requests), coding, coding, first.explain, spend=spend)
    if len(requests) == 1:
        return [first.form.answered(first.seq, reply)]

    def standing(content: Any) -> int:
        ids, times = joining.named(content)
        now = time.time()
        given = np.array([now if one is None else one for one in times])
        return learner.serving.standing(ids, given) if ids else 0

    return joining.predicted(requests, reply, standing)
