"""What is new of one learner for those who are told: its drift alarms, and its alerts.

    alarm raised, resolved or reopened -> the learner's state  \\
                                                                > what is behind the bookmarks of the webhook -> posts
    event called positive, with an id  -> the served events    /

A bookmark in the store says how far the webhook was told. So news outlast restarts, and wait for the receiver in the
state and the store instead of in memory. The node with the learner's lease posts them. If it ends between a post and
the move of the bookmark, the post is repeated.

A learner that had no bookmarks begins with what comes then: nobody wants the alarms of last year.
"""

from __future__ import annotations

import asyncio
import math
from typing import Any, NamedTuple

import numpy as np

from service.engine.records import served_document, unpack_served
from service.engine.replica.learner_machine import LearnerMachine
from service.engine.replica.learner_store import LearnerStore
from service.engine.replica.lease import Lease
from service.engine.replica.log_follower import LogFollower

__all__ = ["Alert", "News", "Post", "alerts_after", "newest_number"]

_ALARMS, _ALERTS = "posted-alarms", "posted-alerts"  # bookmarks: alarm changes; the number of a served event
_MOST = 1_000  # alerts that are listed at once
_STEP = 1_000  # served events that are decoded together


class Alert(NamedTuple):
    """An event that was called positive when it was scored."""

    number: int  # among the served events, in the order in which they were scored
    document: dict[str, Any]


class Post(NamedTuple):
    """Something to be posted."""

    document: dict[str, Any]
    bookmark: str
    place: int  # of the bookmark afterwards


async def newest_number(stored: LearnerStore) -> int:
    """Return the number of the newest served event that is stored; 0 if there is none."""
    page = await stored.served(1)
    return page.numbers[0] if page.numbers else 0


async def alerts_after(stored: LearnerStore, machine: LearnerMachine, after: int) -> tuple[list[Alert], int]:
    """Return the alerts scored after the event with this number, the oldest first, and the number looked at last.

    About `_MOST` at most: the next call, with that number, returns later ones. O(events looked at).
    """
    config = machine.core.config
    like, what = config.encode([]), f"a served event of {stored.name}"
    alerts: list[Alert] = []
    more = True
    while more and len(alerts) < _MOST:
        page = await stored.served_after(_STEP, after)
        if page.events:
            columns = await asyncio.to_thread(unpack_served, [event.data for event in page.events], like, what)
            positive = np.flatnonzero(columns.decisions == 1).tolist()
            alerts += [Alert(page.numbers[i], served_document(page.events[i], columns, i)) for i in positive]
            after = page.numbers[-1]
        more = page.more
    return alerts, after


class News:
    """What of one learner is not posted yet."""

    def __init__(self, log: LogFollower[LearnerMachine], stored: LearnerStore, lease: Lease, alerts: bool) -> None:
        """`alerts`: whether these are posted, too."""
        self.learner = log.name
        self._lease = lease
        self._log = log
        self._stored = stored
        self.alerts = alerts and log.machine.core.config.labels.ranks is None  # whether they are posted
        self._first = log.machine.core.metrics.alarm_changes  # of a learner that has no bookmark yet
        self._new = log.position <= 1  # only its creation is logged: it has no old alerts
        self._most = math.inf  # alarm changes that a rollback left
        self._looked = 0  # the number of the served event up to which all alerts are posted

    def note_rollback(self, changes: int) -> None:
        """Note that a rollback took back all alarm changes but so many."""
        self._most = min(self._most, changes)

    async def leads(self) -> bool:
        """Tell whether this node has the lease. Raises `ServiceError`."""
        return await self._lease.take()

    async def unposted(self) -> list[Post]:
        """Return what is not posted yet, the oldest first. Raises `ServiceError`."""
        posts = await self._unposted_alarms()
        return [*posts, *await self._unposted_alerts()] if self.alerts else posts

    async def note_posted(self, post: Post) -> None:
        """Move the bookmark. Raises `ServiceError`."""
        await self._stored.move_bookmark(post.bookmark, post.place)

    async def _unposted_alarms(self) -> list[Post]:
        place = await self._stored.bookmark(_ALARMS)
        if place is not None and place > self._log.machine.core.metrics.alarm_changes:
            await self._log.catch_up()  # the node that posted is ahead of this one, or there was a rollback
        view = self._log.machine.view
        changes, most = view.figures.alarm_changes, self._most
        if place is None or place > min(changes, most):
            place = int(min(self._first if place is None else changes, most))
            await self._stored.move_bookmark(_ALARMS, place)
        if self._most == most:  # else another rollback came meanwhile
            self._most = math.inf
        if place == changes:
            return []
        ordinals = view.figures.drift.last_changes()
        alarms = sorted(view.alarms(change=place), key=lambda alarm: ordinals[alarm["number"]])
        return [
            Post({"type": "alarm", "learner": self.learner, **alarm}, _ALARMS, ordinals[alarm["number"]] + 1)
            for alarm in alarms
        ]

    async def _unposted_alerts(self) -> list[Post]:
        place = await self._stored.bookmark(_ALERTS)
        if place is None:
            place = 0 if self._new else await newest_number(self._stored)
            await self._stored.move_bookmark(_ALERTS, place)
        alerts, looked = await alerts_after(self._stored, self._log.machine, max(place, self._looked))
        if not alerts:
            self._looked = looked
        return [
            Post({"type": "alert", "learner": self.learner, **alert.document}, _ALERTS, alert.number)
            for alert in alerts
        ]
