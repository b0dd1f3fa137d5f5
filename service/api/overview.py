"""The small metrics of every learner of this node, as a table of five hundred learners shows them.

A learner's metrics cost a pass over its window. So they are computed once per position, at most once a second, and for
at most a few milliseconds at a stretch. Evicted learners stay evicted.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any, Generic, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import msgspec

from service.api.health import health_of
from service.auth import UNRESTRICTED, Permissions
from service.engine import LARGE_WINDOW, Engine
from service.engine.replica import LearnerReplica

__all__ = ["Overview", "OverviewDocument"]

Encoded = TypeVar("Encoded")

TREND = 40  # points of the history
_LEAST = 1.0  # seconds between two computations of a learner's metrics
_STALE = 5.0  # seconds without the store from which on a row shows them
_STRETCH = 5e-3  # seconds of work on the event loop before a yield
_CLASSES = (
    "auc", "auc_interval", "f1", "precision", "recall", "alert_rate", "label_delay_median", "label_coverage",
    "events_per_second",
)  # fmt: skip
_RANKS = ("mae", "accuracy", "label_delay_median", "label_coverage", "events_per_second")


class _CachedRow(NamedTuple):
    """The computed metrics of a learner."""

    position: int
    until: float  # on the monotonic clock
    body: dict[str, Any]


class OverviewDocument:
    """A document `LearnerFigureList`, encoded in parts, with its difference from the document before it."""

    def __init__(self, document: dict[str, Any], before: OverviewDocument | None = None) -> None:
        """Encode in O(learners); equal rows share their bytes with the document before."""
        last: dict[str, bytes] = {} if before is None else before._rows
        rows = ((learner["name"], msgspec.json.encode(learner)) for learner in document["learners"])
        self._rows: dict[str, bytes] = {name: row if row != last.get(name) else last[name] for name, row in rows}
        self._rest = {name: msgspec.json.encode(value) for name, value in document.items() if name != "learners"}
        self._number: int = 0 if before is None else before._number + 1
        self._changes = None if before is None else self._since(before)

    def document(self) -> dict[str, Any]:
        """Return the document."""
        return {"learners": list(map(msgspec.Raw, self._rows.values())), **_raw(self._rest)}

    def since(self, before: OverviewDocument) -> msgspec.Raw | None:
        """Return the content of the event `changed` after the document `before`; None if nothing differs.

        O(1) for readers of the last document, as all fast readers are; else O(learners).
        """
        if self is before:
            return None
        return self._changes if before._number + 1 == self._number else self._since(before)

    def _since(self, before: OverviewDocument) -> msgspec.Raw | None:
        changed = [msgspec.Raw(row) for name, row in self._rows.items() if row != before._rows.get(name)]
        removals = [name for name in before._rows if name not in self._rows]
        rest = {name: value for name, value in self._rest.items() if value != before._rest[name]}
        if not (changed or removals or rest):
            return None
        return msgspec.Raw(msgspec.json.encode({"learners": changed, "gone": removals, **_raw(rest)}))


def _raw(parts: dict[str, bytes]) -> dict[str, Any]:
    return {name: msgspec.Raw(encoded) for name, encoded in parts.items()}


def _encode(document: dict[str, Any], before: bytes | None) -> bytes:  # noqa: ARG001 - has no differences
    return msgspec.json.encode(document)


class _SharedDocument(Generic[Encoded]):
    """An encoded document that all readers with the same key share."""

    def __init__(self, encode: Callable[[dict[str, Any], Encoded | None], Encoded]) -> None:
        """`encode` gets a document and the result before it."""
        self._encode = encode
        self._lock = asyncio.Lock()
        self._until = 0.0  # on the monotonic clock: when it expires
        self._encoded: Encoded | None = None

    async def fetch(self, seconds: float, document: Callable[[], Awaitable[dict[str, Any]]]) -> Encoded:
        """Return the document, at most so many seconds old."""
        async with self._lock:
            if self._encoded is None or time.monotonic() >= self._until:
                self._encoded = await asyncio.to_thread(self._encode, await document(), self._encoded)
                self._until = time.monotonic() + seconds
            return self._encoded


class Overview:
    """Computes the small metrics of all learners of an engine, and caches them while they are valid."""

    def __init__(self) -> None:
        self._rows: WeakKeyDictionary[LearnerReplica, _CachedRow] = WeakKeyDictionary()
        self._documents: WeakKeyDictionary[Permissions, _SharedDocument[OverviewDocument]] = WeakKeyDictionary()
        self._groups: WeakKeyDictionary[Permissions, _SharedDocument[bytes]] = WeakKeyDictionary()

    async def learners_document(
        self, permissions: Permissions, seconds: float, document: Callable[[], Awaitable[dict[str, Any]]]
    ) -> OverviewDocument:
        """Return the result of `document`, called at most once in so many seconds for all readers with the same key."""
        return await self._documents.setdefault(permissions, _SharedDocument(OverviewDocument)).fetch(seconds, document)

    async def groups(
        self, permissions: Permissions, seconds: float, document: Callable[[], Awaitable[dict[str, Any]]]
    ) -> bytes:
        """Return the same for the groups, in JSON."""
        return await self._groups.setdefault(permissions, _SharedDocument(_encode)).fetch(seconds, document)

    async def document(self, engine: Engine, permissions: Permissions = UNRESTRICTED) -> dict[str, Any]:
        """Return the document `LearnerFigureList` of the learners of this node that the key may read.

        O(learners), and O(window) for each learner that changed.
        """
        learners = []
        began = time.perf_counter()
        for name in sorted(filter(permissions.sees, engine.replicas)):
            replica = engine.replicas.get(name)
            if replica is None:  # evicted or deleted during a yield
                continue
            learners.append(_present(replica, await self._figures(replica)))
            if time.perf_counter() - began > _STRETCH:
                await asyncio.sleep(0)
                began = time.perf_counter()
        left_out = {name: why for name, why in engine.unavailable(groups=False).items() if permissions.sees(name)}
        asleep = sorted(filter(permissions.sees, engine.evicted))
        rows = {
            "learners": learners,
            "asleep": asleep,
            "creating": _creating(engine, permissions),
            "unavailable": left_out,
        }
        return {**rows, "loaded": engine.ready, "trouble": health_of(engine)["detail"]}

    async def _figures(self, replica: LearnerReplica) -> dict[str, Any]:
        cached = self._rows.get(replica)
        now = time.monotonic()
        if cached is not None and (cached.position == replica.position or now < cached.until):
            return cached.body
        position, view = replica.position, replica.view
        figures = view.figures
        alarms = view.alarms(figures.alarm_count - 1) if figures.alarm_count else []
        if replica.learner.config.window > LARGE_WINDOW:
            figures = figures.frozen()
            document = await asyncio.to_thread(figures.as_json)
        else:
            document = figures.as_json()
        classes = replica.learner.config.labels.ranks is None
        named = _CLASSES if classes else _RANKS
        window = document["window"]
        points = figures.points_since(figures.point_count - TREND)
        trend = [point["auc" if classes else "mae"] for _, point in points]
        undefined = {f"/window/{figure}" for figure in named}
        body = {
            "algorithm": replica.learner.config.algorithm,
            "position": position,
            "events": document["events"],
            "served": document["served"]["events"] if classes else document["served"],
            "class_counts": document["class_counts"],
            "clock": document["clock"],
            "threshold": view.threshold,
            "window": {"size": window["size"], "events": window["events"], **{name: window[name] for name in named}},
            "trend": [None if value is None else round(value, 4) for value in trend],
            "alarms": figures.alarm_counts,
            "last_alarm": alarms[0] if alarms else None,
            "open_alarms": sum(view.open_alarms.values()),
            "undefined": {at: why for at, why in document["undefined"].items() if at in undefined},
        }
        self._rows[replica] = _CachedRow(position, now + _LEAST, body)
        return body


def _creating(engine: Engine, permissions: Permissions) -> list[dict[str, Any]]:
    """List the learners in creation, in the order of their requests, which is that of their creation."""
    now = time.monotonic()
    existing = (engine.replicas, engine.evicted, engine.registry.unavailable)
    waiting: dict[str, float] = {}
    for name, since in engine.creations:
        if permissions.sees(name) and not any(name in names for names in existing):
            waiting.setdefault(name, now - since)  # several requests may create the same learner
    return [{"name": name, "seconds": round(seconds, 1)} for name, seconds in waiting.items()]


def _coarse(seconds: float) -> float:
    """Round a growing time down to 0, 5, 10, 20, ..., so that its row does not change every second."""
    return 0.0 if seconds < _STALE else _STALE * 2.0 ** math.floor(math.log2(seconds / _STALE))


def _present(replica: LearnerReplica, figures: dict[str, Any]) -> dict[str, Any]:
    """Return a row: the metrics, and the values that may change without a new record."""
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
