"""The small figures of every learner of this node at once: what a table of five hundred of them shows.

A learner's figures cost a pass over its window, so they are worked out once for each position, at most once a second,
and never more than a few milliseconds at a stretch. Learners that are asleep stay asleep.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any, Generic, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import msgspec

from service.auth import FREE, Grant
from service.engine import Engine
from service.engine.replica import LearnerReplica

__all__ = ["LARGE_WINDOW", "Overview", "Shown"]

Told = TypeVar("Told")

LARGE_WINDOW = 200_000  # events above which the figures are left to a thread: more than a millisecond or two
TREND = 40  # points of the history
_LEAST = 1.0  # seconds for which a learner's figures are not worked out anew
_STALE = 5.0  # seconds without the store that are told
_STRETCH = 5e-3  # seconds of the event loop's time, after which others have their turn
_CLASSES = (
    "auc", "auc_interval", "f1", "precision", "recall", "alert_rate", "label_delay_median", "label_coverage",
    "events_per_second",
)  # fmt: skip
_RANKS = ("mae", "accuracy", "label_delay_median", "label_coverage", "events_per_second")


class _Kept(NamedTuple):
    """A learner's figures as they were."""

    position: int
    until: float  # on the monotonic clock
    body: dict[str, Any]


class Shown:
    """A document `LearnerFigureList`, encoded in parts, and what differs from the one that was shown before it."""

    def __init__(self, document: dict[str, Any], before: Shown | None = None) -> None:
        """O(learners); what is as it was before is kept once."""
        known: dict[str, bytes] = {} if before is None else before._rows
        rows = ((one["name"], msgspec.json.encode(one)) for one in document["learners"])
        self._rows: dict[str, bytes] = {name: row if row != known.get(name) else known[name] for name, row in rows}
        self._rest = {name: msgspec.json.encode(told) for name, told in document.items() if name != "learners"}
        self._number: int = 0 if before is None else before._number + 1
        self._changes = None if before is None else self._since(before)

    def whole(self) -> dict[str, Any]:
        """The document."""
        return {"learners": list(map(msgspec.Raw, self._rows.values())), **_raw(self._rest)}

    def since(self, before: Shown) -> msgspec.Raw | None:
        """What differs from the document as it was `before`: nothing, or the event `changed`.

        O(1) for who was shown the last one, as all are who read fast; else O(learners).
        """
        if self is before:
            return None
        return self._changes if before._number + 1 == self._number else self._since(before)

    def _since(self, before: Shown) -> msgspec.Raw | None:
        changed = [msgspec.Raw(row) for name, row in self._rows.items() if row != before._rows.get(name)]
        gone = [name for name in before._rows if name not in self._rows]
        rest = {name: told for name, told in self._rest.items() if told != before._rest[name]}
        if not (changed or gone or rest):
            return None
        return msgspec.Raw(msgspec.json.encode({"learners": changed, "gone": gone, **_raw(rest)}))


def _raw(parts: dict[str, bytes]) -> dict[str, Any]:
    return {name: msgspec.Raw(encoded) for name, encoded in parts.items()}


def _encoded(document: dict[str, Any], before: bytes | None) -> bytes:  # noqa: ARG001 - told whole each time
    return msgspec.json.encode(document)


class _Shared(Generic[Told]):
    """Something that all who come with one key are told."""

    def __init__(self, made: Callable[[dict[str, Any], Told | None], Told]) -> None:
        """`made`: of a document, and of what was told before."""
        self._made = made
        self._turns = asyncio.Lock()
        self._until = 0.0  # on the monotonic clock: when it is made anew
        self._told: Told | None = None

    async def told_of(self, seconds: float, document: Callable[[], Awaitable[dict[str, Any]]]) -> Told:
        """It, at most so many seconds old."""
        async with self._turns:
            if self._told is None or time.monotonic() >= self._until:
                self._told = await asyncio.to_thread(self._made, await document(), self._told)
                self._until = time.monotonic() + seconds
            return self._told


class Overview:
    """Gives the small figures of all learners of an engine, and keeps them as long as they are right."""

    def __init__(self) -> None:
        self._kept: WeakKeyDictionary[LearnerReplica, _Kept] = WeakKeyDictionary()
        self._shown: WeakKeyDictionary[Grant, _Shared[Shown]] = WeakKeyDictionary()
        self._groups: WeakKeyDictionary[Grant, _Shared[bytes]] = WeakKeyDictionary()

    async def shown(self, grant: Grant, seconds: float, document: Callable[[], Awaitable[dict[str, Any]]]) -> Shown:
        """What `document` gives, asked for at most once in so many seconds for all readers with that grant."""
        return await self._shown.setdefault(grant, _Shared(Shown)).told_of(seconds, document)

    async def groups(self, grant: Grant, seconds: float, document: Callable[[], Awaitable[dict[str, Any]]]) -> bytes:
        """The same of the groups, in JSON."""
        return await self._groups.setdefault(grant, _Shared(_encoded)).told_of(seconds, document)

    async def document(self, engine: Engine, grant: Grant = FREE) -> dict[str, Any]:
        """The document `LearnerFigureList` of the learners of this node that are granted.

        O(learners), and O(window) for each that has moved.
        """
        learners = []
        began = time.perf_counter()
        for name in sorted(filter(grant.sees, engine.replicas)):
            replica = engine.replicas.get(name)
            if replica is None:  # it fell asleep, or was deleted, while others had their turn
                continue
            learners.append(_present(replica, await self._figures(replica)))
            if time.perf_counter() - began > _STRETCH:
                await asyncio.sleep(0)
                began = time.perf_counter()
        left_out = {name: why for name, why in engine.unavailable(groups=False).items() if grant.sees(name)}
        asleep = sorted(filter(grant.sees, engine.evicted))
        told = {"learners": learners, "asleep": asleep, "creating": _creating(engine, grant), "unavailable": left_out}
        return {**told, "loaded": engine.ready}

    async def _figures(self, replica: LearnerReplica) -> dict[str, Any]:
        kept = self._kept.get(replica)
        now = time.monotonic()
        if kept is not None and (kept.position == replica.position or now < kept.until):
            return kept.body
        position, figures = replica.position, replica.view.figures
        if replica.learner.config.window > LARGE_WINDOW:
            figures = figures.frozen()
            document = await asyncio.to_thread(figures.as_json)
        else:
            document = figures.as_json()
        classes = replica.learner.config.labels.ranks is None
        named = _CLASSES if classes else _RANKS
        window = document["window"]
        points = figures.points_since(figures.point_count - TREND)
        alarms = figures.alarms(figures.alarm_count - 1) if figures.alarm_count else []
        trend = [point["auc" if classes else "mae"] for _, point in points]
        undefined = {f"/window/{figure}" for figure in named}
        body = {
            "algorithm": replica.learner.config.algorithm,
            "position": position,
            "events": document["events"],
            "served": document["served"]["events"] if classes else document["served"],
            "class_counts": document["class_counts"],
            "clock": document["clock"],
            "threshold": replica.view.threshold,
            "window": {"size": window["size"], "events": window["events"], **{name: window[name] for name in named}},
            "trend": [None if value is None else round(value, 4) for value in trend],
            "alarms": figures.alarm_counts,
            "last_alarm": alarms[0] if alarms else None,
            "undefined": {at: why for at, why in document["undefined"].items() if at in undefined},
        }
        self._kept[replica] = _Kept(position, now + _LEAST, body)
        return body


def _creating(engine: Engine, grant: Grant) -> list[dict[str, Any]]:
    """Learners that are not there yet: the first asked for comes first, as it is made first."""
    now = time.monotonic()
    there = (engine.replicas, engine.evicted, engine.registry.unavailable)
    found: dict[str, float] = {}
    for name, since in engine.creations:
        if grant.sees(name) and not any(name in known for known in there):
            found.setdefault(name, now - since)  # another request may ask for the same one
    return [{"name": name, "seconds": round(seconds, 1)} for name, seconds in found.items()]


def _coarse(seconds: float) -> float:
    """A time that grows, in steps that double (0, 5, 10, 20, ...): a row that has it is not another each second."""
    return 0.0 if seconds < _STALE else _STALE * 2.0 ** math.floor(math.log2(seconds / _STALE))


def _present(replica: LearnerReplica, figures: dict[str, Any]) -> dict[str, Any]:
    """The figures with what may change while the log stands still."""
    not_ready = replica.view.not_ready
    return {
        "name": replica.name,
        **figures,
        "ready": not_ready is None,
        "not_ready": not_ready,
        "busy": replica.mailbox.busy,
        "stale_seconds": _coarse(replica.node.stale_seconds),
        "failed": None if replica.failure is None else replica.failure.detail,
    }
