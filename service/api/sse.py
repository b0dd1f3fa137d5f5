"""Server-sent events: streams of live metrics for pages that stay open.

Of a learner

    point       a row of the history         id: <roll-backs>.<points>.<alarms>.<changes>, the counts so far
    alarm       a detected change
    changes     alarms were raised, resolved, reopened or acknowledged, or annotations came: ask for them again
    figures     the present metrics; several changes in a short time give one event
    reset       the learner was rolled back: forget all points, the valid ones follow
    gone        the learner was deleted; the stream ends

Of a learner's alerts

    alert       an event that was called positive         id: its number among the served events
    gone        the learner was deleted; the stream ends

Of all learners and groups

    learners    the document of `GET /v1/learners?figures=true`: the first event
    changed     the difference since the last event: `learners` that are new or changed, the names that are `gone`, and
                each other member of the document that changed
    groups      the document of `GET /v1/groups?tests=true`, at first and after each change

Of a group

    comparison  the document of `GET /v1/groups/{name}/compare`, at first and after each change
    gone        the group was deleted; the stream ends

A client that reconnects to a learner's stream with its last id, as browsers do by themselves, gets the missed alarms
and the points that the history still has. An id counts points rather than labelled events, because served traffic adds
points while nothing is learnt. The other streams begin anew with everything. A slow client gets fewer events, each with
all changes since the last one, and delays nobody.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, NamedTuple

import msgspec
from fastapi.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from service.api.body import Disconnected, read_in_time
from service.api.overview import OverviewDocument
from service.api.state import AppState
from service.auth import UNRESTRICTED, Permissions
from service.engine.replica import LearnerReplica
from service.errors import ServiceError, TooManyStreams, UnknownGroup

__all__ = [
    "EventCursor",
    "News",
    "alert_news",
    "all_news",
    "figures_of",
    "group_news",
    "learner_news",
    "opened",
    "parsed_id",
    "stream",
]

LEARNER_PACE = 0.25  # seconds between two `figures`
ALERT_PACE = 0.5  # the same for `alert`, and so on below
GROUP_PACE = 2.0
ALL_PACE = 1.0
SPREAD_PACE = 2.0  # if other nodes are asked for their learners
_GROUPS = 5.0  # seconds between two looks at all groups
_PING = 15.0  # seconds without news after which a comment shows that the connection lives

# Events; after the last one, the asyncio.Event to wait for besides the pace, or None
News = AsyncGenerator[bytes | asyncio.Event | None, None]


async def stream(
    news: News, pace: float, closing: asyncio.Event, permissions: Permissions = UNRESTRICTED
) -> AsyncGenerator[bytes]:
    """Yield the bytes of one connection; look for news every `pace` seconds until the node stops or the key ends."""
    last_sent = time.monotonic()
    async with aclosing(news):
        async for item in news:
            if isinstance(item, bytes):
                yield item
                last_sent = time.monotonic()
                continue
            await _any(pace, closing)
            if item is not None:
                await _any(_PING, item, closing)
            if closing.is_set() or permissions.over:
                return
            if time.monotonic() - last_sent >= _PING:
                yield b": still here\n\n"
                last_sent = time.monotonic()


async def _any(seconds: float, *events: asyncio.Event) -> None:
    """Wait for one of the events."""
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()


def opened(state: AppState, news: News, pace: float, permissions: Permissions) -> StreamingResponse:
    """Return a streaming reply of the application with this state. Raises `TooManyStreams`."""
    if state.streams >= state.settings.max_streams:
        raise TooManyStreams(f"{state.streams} streams are open, this node's limit")
    return _Counted(state, stream(news, pace, state.closing, permissions))


class _Counted(StreamingResponse):
    """A stream that counts as open until its connection ends, whether or not the client read any of it.

    A client that reads nothing for long is dropped, because it would occupy its place for good.
    """

    def __init__(self, state: AppState, events: AsyncGenerator[bytes]) -> None:
        super().__init__(events, media_type="text/event-stream", headers={"cache-control": "no-store"})
        self._state = state
        self._events = events
        state.streams += 1

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        bounded_send = read_in_time(send, self._state.settings.ws_stall_seconds, "a stream")
        try:
            if scope["method"] == "HEAD":
                await Response(headers=dict(self.headers))(scope, receive, send)
            else:
                await super().__call__(scope, receive, bounded_send)
        except Disconnected:  # the server closes a connection whose reply has no end
            return
        finally:
            self._state.streams -= 1
            await self._events.aclose()


def _event(kind: str, data: Any, seen: EventCursor | None = None) -> bytes:
    id_ = "" if seen is None else f"id: {'.'.join(map(str, seen))}\n"
    return f"{id_}event: {kind}\ndata: ".encode() + msgspec.json.encode(data) + b"\n\n"


# A learner


def figures_of(learner: LearnerReplica, document: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the document of a learner's live metrics; `document`: its metrics if they are already computed."""
    view = learner.view
    return {"name": learner.name, "position": learner.position, **view.as_json(document)}


class EventCursor(NamedTuple):
    """The progress of a client, as the id of an event states it."""

    rollbacks: int
    points: int  # number of the last one
    alarms: int
    changes: int = 0  # an id of an earlier release has none


def parsed_id(text: str) -> EventCursor | None:
    """Parse the id of an event; None if it is malformed."""
    parts = text.split(".")
    if not len(EventCursor._fields) - 1 <= len(parts) <= len(EventCursor._fields) or not all(
        part.isascii() and part.isdecimal() and len(part) < 19 for part in parts
    ):
        return None
    return EventCursor(*map(int, parts))


async def learner_news(learner: LearnerReplica, since: EventCursor | None = None) -> News:
    """Yield the events of a learner that follow `since`, or those from now on."""
    view = learner.view
    seen = since or EventCursor(view.rollbacks, view.figures.point_count, view.figures.alarm_count, view.changes)
    last: int | None = None  # position of the last `figures`
    with learner.mailbox.watch() as changed:
        while True:
            changed.clear()
            view = learner.view
            if view.rollbacks != seen.rollbacks or view.figures.point_count < seen.points:
                seen = EventCursor(view.rollbacks, 0, min(seen.alarms, view.figures.alarm_count), view.changes)
                yield _event("reset", {}, seen)
            for number, point in view.figures.points_since(seen.points):
                seen = seen._replace(points=number)
                yield _event("point", point, seen)
            for alarm in view.alarms(seen.alarms):
                seen = seen._replace(alarms=int(alarm["number"]) + 1)
                yield _event("alarm", alarm, seen)
            if view.changes != seen.changes:
                seen = seen._replace(changes=view.changes)
                yield _event("changes", {"changes": view.changes}, seen)
            if learner.failure is not None:
                yield _event("gone", {"code": learner.failure.code, "detail": learner.failure.detail}, seen)
                return
            if last != learner.position:
                last = learner.position
                yield _event("figures", figures_of(learner), seen)
            yield changed


async def alert_news(learner: LearnerReplica, after: int) -> News:
    """Yield the alerts scored after the event with this number."""
    yield b"id: %d\n\n" % after  # so that a client that has had no alert yet can reconnect by an id, too
    looked = -1  # the position up to which all are sent
    with learner.mailbox.watch() as changed:
        while True:
            changed.clear()
            if learner.failure is not None:
                yield _event("gone", {"code": learner.failure.code, "detail": learner.failure.detail})
                return
            position = learner.position
            while looked != position:
                try:
                    alerts, after = await learner.alerts_after(after)
                except ServiceError:  # the store does not answer: the client comes again, with the last id
                    return
                for alert in alerts:
                    yield b"id: %d\n" % alert.number + _event("alert", alert.document)
                if not alerts:  # else there may be more than are listed at once
                    looked = position
            yield changed


# All of them, and a group


async def all_news(
    learners: Callable[[], Awaitable[OverviewDocument]] | None, groups: Callable[[], Awaitable[bytes]]
) -> News:
    """Yield the events of all learners, unless None, and all groups; both return the present document."""
    last: OverviewDocument | None = None
    last_groups: bytes | None = None
    next_look = 0.0
    while True:
        if learners is not None:
            now = await learners()
            if last is None:
                yield _event("learners", now.document())
            elif (changes := now.since(last)) is not None:
                yield _event("changed", changes)
            last = now
        if time.monotonic() >= next_look:
            listed = await groups()
            if listed != last_groups:
                yield _event("groups", msgspec.Raw(listed))
            last_groups, next_look = listed, time.monotonic() + _GROUPS
        yield None


async def group_news(compared: Callable[[], Awaitable[dict[str, Any]]]) -> News:
    """Yield the events of a group; `compared` returns its comparison and raises `UnknownGroup` after a deletion."""
    last = None
    while True:
        try:
            now = await compared()
        except ServiceError as error:
            if isinstance(error, UnknownGroup):
                yield _event("gone", {"code": error.code, "detail": error.detail})
            return  # a new request gets this error
        if now != last:
            yield _event("comparison", now)
        last = now
        yield None
