"""Live figures as server-sent events: what a page that stays open listens to.

    point    a row of the history            id: <roll-backs>.<points>.<alarms>: how many there had been
    alarm    a change that a detector found
    figures  the figures as they stand; several changes in a short time are one
    reset    the learner was rolled back: forget all points, those that stand follow
    gone     the learner was deleted; the stream ends

A client that reconnects with the id it has seen last (browsers do so by themselves) gets what it has missed: the points
as they are kept by then, and the alarms. An id names points by their number, not by the labelled events behind them:
those of served traffic come while no event is learnt. A client that reads slowly gets fewer `figures`, and delays
nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import msgspec

from service.grants import FREE, Grant
from service.hosted import Hosted

__all__ = ["Seen", "figures_of", "parsed_id", "stream"]

_LEAST = 0.25  # seconds from one `figures` to the next
_PING = 15.0  # seconds without news after which a comment shows that the connection lives


def figures_of(learner: Hosted, told: dict[str, Any] | None = None) -> dict[str, Any]:
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


async def stream(
    learner: Hosted, since: Seen | None, closing: asyncio.Event, grant: Grant = FREE
) -> AsyncIterator[bytes]:
    """The events of one connection, from after `since` on, or from now; ends when the node or the grant does."""
    view = learner.view
    seen = since or Seen(view.rollbacks, view.figures.point_count, view.figures.alarm_count)
    shown: int | None = None  # position of the figures sent last
    with learner.watched() as changed:
        while not closing.is_set() and not grant.over:
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
            if learner.failed is not None:
                yield _event("gone", {"detail": learner.failed.detail}, seen)
                return
            if shown != learner.position:
                shown = learner.position
                yield _event("figures", figures_of(learner), seen)
            await _any(_LEAST, closing)
            if not await _any(_PING, changed, closing):
                yield b": still here\n\n"


async def _any(seconds: float, *events: asyncio.Event) -> bool:
    """Wait for one of the events; whether it came in time."""
    waiting = [asyncio.ensure_future(one.wait()) for one in events]
    try:
        done, _ = await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in waiting:
            one.cancel()
    return bool(done)


def _event(kind: str, data: dict[str, Any], seen: Seen) -> bytes:
    return f"id: {'.'.join(map(str, seen))}\nevent: {kind}\ndata: ".encode() + msgspec.json.encode(data) + b"\n\n"
