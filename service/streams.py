"""Live figures as server-sent events: what a page that stays open listens to.

    point    a row of the history            id: <labelled events>.<alarms>, of all that has been sent by then
    alarm    a change that a detector found
    figures  the figures as they stand; several changes in a short time are one
    reset    the learner was rolled back: forget the points after `events`
    gone     the learner was deleted; the stream ends

A client that reconnects with the id it has seen last (browsers do so by themselves) gets what it has missed: the points
as they are kept by then, and the alarms. A client that reads slowly gets fewer `figures`, and delays nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from service.hosted import Hosted

__all__ = ["figures_of", "parsed_id", "stream"]

_LEAST = 0.25  # seconds from one `figures` to the next
_PING = 15.0  # seconds without news after which a comment shows that the connection lives


def figures_of(learner: Hosted) -> dict[str, Any]:
    """The document of a learner's live figures."""
    view = learner.view
    head: dict[str, Any] = {"name": learner.name, "position": learner.position}
    if view.scorer.threshold is not None:
        head["threshold"] = view.scorer.threshold
    return {**head, **view.figures.as_json()}


def parsed_id(text: str) -> tuple[int, int] | None:
    """(labelled events, alarms) of an event's id; None where it is not one of ours."""
    events, _, alarms = text.partition(".")
    if not (events.isascii() and events.isdecimal() and alarms.isascii() and alarms.isdecimal()):
        return None
    return int(events[:18]), int(alarms[:18])


async def stream(learner: Hosted, since: tuple[int, int] | None, closing: asyncio.Event) -> AsyncIterator[bytes]:
    """The events of one connection, from after `since` on, or from now; ends when the node does."""
    view = learner.view.figures
    events, alarms = since or (int(view.counts.sum()), view.alarm_count)
    shown: int | None = None  # position of the figures sent last
    rollbacks = learner.rollbacks
    with learner.watched() as changed:
        while not closing.is_set():
            changed.clear()
            view = learner.view.figures
            now = int(view.counts.sum())
            if now < events or view.alarm_count < alarms or learner.rollbacks != rollbacks:
                rollbacks = learner.rollbacks
                events, alarms = min(events, now), min(alarms, view.alarm_count)
                yield _event("reset", {"events": events}, events, alarms)
            for point in view.points_since(events):
                events = int(point["events"])
                yield _event("point", point, events, alarms)
            for alarm in view.alarms(alarms):
                alarms = int(alarm["number"]) + 1
                yield _event("alarm", alarm, events, alarms)
            if learner.failed is not None:
                yield _event("gone", {"detail": learner.failed.detail}, events, alarms)
                return
            if shown != learner.position:
                shown = learner.position
                yield _event("figures", figures_of(learner), events, alarms)
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


def _event(kind: str, data: dict[str, Any], events: int, alarms: int) -> bytes:
    return f"id: {events}.{alarms}\nevent: {kind}\ndata: ".encode() + msgspec.json.encode(data) + b"\n\n"
