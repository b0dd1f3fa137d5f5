"""Server-sent events: what a page that stays open listens to.

Of a learner

    point       a row of the history         id: <roll-backs>.<points>.<alarms>: how many there had been
    alarm       a change that a detector found
    figures     the figures as they stand; several changes in a short time are one
    reset       the learner was rolled back: forget all points, those that stand follow
    gone        the learner was deleted; the stream ends

Of all learners and groups

    learners    the small figures of all, as `GET /v1/learners?figures=true` tells them: the first event
    changed     what differs from what was told: `learners` that changed or came, names that are `gone` from there, and
                each other member of the document that has changed
    groups      what `GET /v1/groups?tests=true` tells, once and when it has changed

Of a group

    comparison  what `GET /v1/groups/{name}/compare` tells, once and when it has changed
    gone        the group was deleted; the stream ends

A client that reconnects to a learner's with the id it has seen last (browsers do so by themselves) gets what it has
missed: the points as they are kept by then, and the alarms. An id names points by their number, not by the labelled
events behind them: those of served traffic come while no event is learnt. The others begin anew, with everything. A
client that reads slowly gets fewer events, each with all that has changed meanwhile, and delays nobody.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, NamedTuple

import msgspec
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from service.api.body import Disconnected, read_in_time
from service.api.overview import Shown
from service.api.state import AppState
from service.auth import FREE, Grant
from service.engine.replica import LearnerReplica
from service.errors import ServiceError, TooManyStreams, UnknownGroup

__all__ = ["News", "Seen", "all_news", "figures_of", "group_news", "learner_news", "opened", "parsed_id", "stream"]

LEARNER_PACE = 0.25  # seconds from one `figures` to the next
GROUP_PACE = 2.0  # seconds from one look at a comparison to the next, as of what follows
ALL_PACE = 1.0
SPREAD_PACE = 2.0  # where other nodes are asked for their learners
_GROUPS = 5.0  # seconds from one look at all groups to the next
_PING = 15.0  # seconds without news after which a comment shows that the connection lives

# events, and whenever all is told what is awaited then, besides the pace: something that is set, or nothing (None)
News = AsyncGenerator[bytes | asyncio.Event | None, None]


async def stream(news: News, pace: float, closing: asyncio.Event, grant: Grant = FREE) -> AsyncGenerator[bytes]:
    """The bytes of one connection: the news, looked for every `pace` seconds; ends when the node or the grant does."""
    said = time.monotonic()
    async with aclosing(news):
        async for one in news:
            if isinstance(one, bytes):
                yield one
                said = time.monotonic()
                continue
            await _any(pace, closing)
            if one is not None:
                await _any(_PING, one, closing)
            if closing.is_set() or grant.over:
                return
            if time.monotonic() - said >= _PING:
                yield b": still here\n\n"
                said = time.monotonic()


async def _any(seconds: float, *events: asyncio.Event) -> None:
    """Wait for one of the events."""
    waiting = [asyncio.ensure_future(one.wait()) for one in events]
    try:
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in waiting:
            one.cancel()


def opened(state: AppState, news: News, pace: float, grant: Grant) -> StreamingResponse:
    """The reply that is a stream. Raises `TooManyStreams`. `state`: the application's."""
    if state.streams >= state.settings.max_streams:
        raise TooManyStreams(f"{state.streams} streams are open, this node's limit")
    return _Counted(state, stream(news, pace, state.closing, grant))


class _Counted(StreamingResponse):
    """A stream, which counts as open until the connection is done with, whether or not anything was read from it.

    A client that takes nothing for long is dropped: it would hold its place, and what is to be told, for good.
    """

    def __init__(self, state: AppState, events: AsyncGenerator[bytes]) -> None:
        super().__init__(events, media_type="text/event-stream", headers={"cache-control": "no-store"})
        self._state = state
        self._events = events
        state.streams += 1

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        sent = read_in_time(send, self._state.settings.ws_stall_seconds, "a stream")
        try:
            await super().__call__(scope, receive, sent)
        except Disconnected:  # the server closes a connection whose reply has no end
            return
        finally:
            self._state.streams -= 1
            await self._events.aclose()


def _event(kind: str, data: Any, seen: Seen | None = None) -> bytes:
    id_ = "" if seen is None else f"id: {'.'.join(map(str, seen))}\n"
    return f"{id_}event: {kind}\ndata: ".encode() + msgspec.json.encode(data) + b"\n\n"


# A learner


def figures_of(learner: LearnerReplica, told: dict[str, Any] | None = None) -> dict[str, Any]:
    """The document of a learner's live figures, which may have been `told` already."""
    view = learner.view
    return {"name": learner.name, "position": learner.position, **view.as_json(told)}


class Seen(NamedTuple):
    """How far a client is: what the id of an event says."""

    rollbacks: int
    points: int  # number of the last one
    alarms: int


def parsed_id(text: str) -> Seen | None:
    """What an event's id says; None where it is not one of ours."""
    parts = text.split(".")
    if len(parts) != len(Seen._fields) or not all(one.isascii() and one.isdecimal() and len(one) < 19 for one in parts):
        return None
    return Seen(*map(int, parts))


async def learner_news(learner: LearnerReplica, since: Seen | None = None) -> News:
    """Of a learner, from after `since` on, or from now."""
    view = learner.view
    seen = since or Seen(view.rollbacks, view.figures.point_count, view.figures.alarm_count)
    shown: int | None = None  # position of the figures sent last
    with learner.mailbox.watch() as changed:
        while True:
            changed.clear()
            view = learner.view
            if view.rollbacks != seen.rollbacks or view.figures.point_count < seen.points:
                seen = Seen(view.rollbacks, 0, min(seen.alarms, view.figures.alarm_count))
                yield _event("reset", {}, seen)
            for number, point in view.figures.points_since(seen.points):
                seen = seen._replace(points=number)
                yield _event("point", point, seen)
            for alarm in view.figures.alarms(seen.alarms):
                seen = seen._replace(alarms=int(alarm["number"]) + 1)
                yield _event("alarm", alarm, seen)
            if learner.failure is not None:
                yield _event("gone", {"detail": learner.failure.detail}, seen)
                return
            if shown != learner.position:
                shown = learner.position
                yield _event("figures", figures_of(learner), seen)
            yield changed


# All of them, and a group


async def all_news(learners: Callable[[], Awaitable[Shown]] | None, groups: Callable[[], Awaitable[bytes]]) -> News:
    """Of all learners, unless None, and all groups: each gives what there is now."""
    shown: Shown | None = None
    told: bytes | None = None
    due = 0.0
    while True:
        if learners is not None:
            now = await learners()
            if shown is None:
                yield _event("learners", now.whole())
            elif (changes := now.since(shown)) is not None:
                yield _event("changed", changes)
            shown = now
        if time.monotonic() >= due:
            listed = await groups()
            if listed != told:
                yield _event("groups", msgspec.Raw(listed))
            told, due = listed, time.monotonic() + _GROUPS
        yield None


async def group_news(compared: Callable[[], Awaitable[dict[str, Any]]]) -> News:
    """Of a group, whose comparison `compared` gives; it raises `UnknownGroup` where there is none any more."""
    told = None
    while True:
        try:
            now = await compared()
        except ServiceError as error:
            if isinstance(error, UnknownGroup):
                yield _event("gone", {"detail": error.detail})
            return  # who asks anew is told what else there is
        if now != told:
            yield _event("comparison", now)
        told = now
        yield None
