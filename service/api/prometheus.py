"""Figures of this node in the text form that Prometheus scrapes, at /metrics.

    learners   `learner_series.py`   as many as the settings allow, those used last
    requests   `access.py`           by route and status, and the log's lines
    node       `node.py`             calls of the store, records applied, what is open and held
    process    prometheus_client     memory, CPU time, file descriptors, garbage collection

Every application has its own figures: there is no registry of the process, where two would share theirs. A scrape works
on the event loop, as the figures of learners may be read there only, and lets others have their turn every millisecond.

Of several processes behind one port (`workers.py`) any is scraped, and answers for all:

    1. it asks each for what it has counted and holds, and for what of each learner is its own
    2. the first of them, always the same one, tells of the learners; of each, as far as any of them has come

What is counted has the label `worker`, since a process that is started again counts from 0 again, which a sum would
hide. What is open or held is added up; the node is ready, and its store there, where that holds of every process.
"""

from __future__ import annotations

import asyncio
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

import msgspec
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.gc_collector import GCCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from rarestream import __version__
from service.api.prometheus_learners import LearnerSeries, Own
from service.api.state import AppState
from service.api.worker_peers import Siblings
from service.auth import FREE, Grant
from service.engine import Engine
from service.errors import ServiceError
from service.settings import Settings
from service.telemetry import Access, histograms

__all__ = ["CONTENT_TYPE", "Exposition"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_SLICE = 1e-3  # seconds of work, after which others have their turn
_LINES = 100  # samples that are written in one go
_CATCH_UP = 1.0  # seconds in which a process comes as far as another behind the same port


class _One(Collector):
    """A family as the encoder takes it."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterator[Metric]:
        """The family."""
        yield self._family


class _Turns:
    """Lets others have theirs, now and then."""

    def __init__(self) -> None:
        self._since = time.perf_counter()

    async def give(self) -> None:
        """If it is time."""
        if time.perf_counter() - self._since > _SLICE:
            await asyncio.sleep(0)
            self._since = time.perf_counter()


class Family(msgspec.Struct, array_like=True, frozen=True):
    """A family of samples as it is sent from one process to another."""

    name: str
    documentation: str
    type: str
    samples: list[tuple[str, dict[str, str], float]]

    @classmethod
    def of(cls, family: Metric) -> Family:
        """Without what this service has none of: time stamps and exemplars."""
        samples = [(one.name, dict(one.labels), float(one.value)) for one in family.samples]
        return cls(family.name, family.documentation, family.type, samples)


class Figures(msgspec.Struct, frozen=True):
    """What a process has counted and holds."""

    families: list[Family]
    learners: dict[str, Own]


class Question(msgspec.Struct, frozen=True):
    """What one process asks of another: its `Figures`, or the text of what it tells of the learners.

    For that it is told what the others have of each.
    """

    others: dict[str, list[Own]] | None = None


class Exposition:
    """The figures of one application."""

    def __init__(self, settings: Settings) -> None:
        self._series = LearnerSeries(settings.metrics_learners)
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)
        GCCollector(registry=self._process)
        self.siblings: Siblings | None = None  # the other processes behind this one's port, if there are any

    async def text(self, state: AppState, grant: Grant = FREE) -> bytes:
        """One scrape of the application that has this state: its engine, its requests and what is open.

        Of the learners it tells of those that are granted.
        """
        if self.siblings is not None:
            return await self._of_all(state, self.siblings, grant)
        return await _text(await self.families(state, grant))

    async def families(self, state: AppState, grant: Grant = FREE) -> list[Metric]:
        """Every family of this process that has a sample."""
        found = [*await self._learners(state, {}, grant), *self._own(state)]
        return [family for family in found if family.samples]

    async def answer(self, state: AppState, asked: msgspec.Raw) -> Figures | bytes:
        """What another process of the same port asks."""
        question = msgspec.msgpack.decode(asked, type=Question)
        if question.others is None:
            return self._figures(state)
        return await _text(await self._learners(state, question.others))

    async def _of_all(self, state: AppState, siblings: Siblings, grant: Grant) -> bytes:
        own = self._figures(state)
        found = {siblings.number: own, **await siblings.ask_all(Question(), Figures)}
        first = min(found)
        others: dict[str, list[Own]] = {}
        for number, figures in found.items():
            for name, one in figures.learners.items() if number != first else ():
                others.setdefault(name, []).append(one)
        learners = None
        if first != siblings.number and grant.all_learners:
            learners = await siblings.ask(first, Question(others), bytes)
        if learners is None:  # it is this one, or is no longer there, or not all of them are asked for
            learners = await _text(await self._learners(state, others, grant))
        return learners + await _text(_merged(found))

    def _figures(self, state: AppState) -> Figures:
        engine = state.engine
        families = [Family.of(one) for one in self._own(state)]
        return Figures(families, {name: Own.of(replica) for name, replica in engine.replicas.items()})

    async def _learners(
        self, state: AppState, others: Mapping[str, Sequence[Own]], grant: Grant = FREE
    ) -> list[Metric]:
        """The families of the learners, and how many have none, as far as any process has come."""
        engine = state.engine
        turns = _Turns()
        families = self._series.families()
        told, now = self._series.chosen(engine), time.time()
        behind = [one for one in told if any(other.position > one.position for other in others.get(one.name, ()))]
        with suppress(ServiceError, TimeoutError):  # then as far as this one has come; counters of it may fall back
            async with asyncio.timeout(_CATCH_UP):
                await asyncio.gather(*(one.log.catch_up() for one in behind))
        for replica in told:
            if grant.sees(replica.name):
                self._series.tell(replica, families, now, others.get(replica.name, ()))
                await turns.give()
        left_out = len(engine.replicas) - len(told)
        return [
            _gauge("rarestream_learners_left_out", "Learners in memory that have no series here.", left_out),
            *families.values(),
        ]

    def _own(self, state: AppState) -> Iterator[Metric]:
        """What this process has counted and holds."""
        yield from _node(state, state.engine)
        yield from _requests(state.access)
        yield from _timings(state.engine)
        yield from self._process.collect()


# Gauges of the node that are not the first process's: what its processes have, taken together.
_TOGETHER: dict[str, Callable[[list[float]], float]] = {
    "rarestream_workers": sum,
    "rarestream_websockets": sum,
    "rarestream_streams": sum,
    "rarestream_body_bytes": sum,
    "rarestream_body_limit_bytes": sum,
    "rarestream_node_ready": min,
    "rarestream_store_up": min,
    "rarestream_store_stale_seconds": max,
}


def _merged(found: Mapping[int, Figures]) -> Iterator[Metric]:
    """The families of all processes, by their numbers, as those of one node."""
    by_name: dict[str, list[tuple[int, Family]]] = {}
    for number, figures in sorted(found.items()):
        for family in figures.families:
            by_name.setdefault(family.name, []).append((number, family))
    for name, families in by_name.items():
        _, first = families[0]
        merged = Metric(name, first.documentation, first.type)
        if name in _TOGETHER:
            merged.add_sample(name, {}, _TOGETHER[name]([family.samples[0][2] for _, family in families]))
        elif first.type in ("counter", "histogram") or not name.startswith("rarestream_"):
            for number, family in families:
                for sample, labels, value in family.samples:
                    merged.add_sample(sample, {**labels, "worker": str(number)}, value)
        else:  # which release it is, what all of them hold, what a setting says
            for one in first.samples:
                merged.add_sample(*one)
        yield merged


async def _text(families: Iterable[Metric]) -> bytes:
    """In the form that Prometheus reads: every family that has a sample."""
    turns = _Turns()
    parts = []
    for family in families:
        if family.samples:
            for part in _parts(family):
                parts.append(part)
                await turns.give()
    return b"".join(parts)


def _parts(family: Metric) -> Iterator[bytes]:
    """The text of a family in parts, of which only the first has the heading: its first two lines."""
    for start in range(0, len(family.samples), _LINES):
        part = Metric(family.name, family.documentation, family.type)
        part.samples = family.samples[start : start + _LINES]
        text = generate_latest(_One(part))
        yield text if start == 0 else text.split(b"\n", 2)[2]


def _gauge(name: str, documentation: str, value: float) -> Metric:
    return GaugeMetricFamily(name, documentation, value)


def _node(state: AppState, engine: Engine) -> Iterator[Metric]:
    """What the node is, has open, and holds."""
    build = {
        "version": __version__,
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
    }
    yield InfoMetricFamily("rarestream_build", "Which release this is, and what runs it.", build)
    yield _gauge("rarestream_workers", "Processes behind the port that answered this scrape.", 1)
    learners = GaugeMetricFamily("rarestream_learners", "Learners of this node.", labels=["state"])
    learners.add_metric(["resident"], len(engine.replicas))
    learners.add_metric(["asleep"], len(engine.evicted))
    learners.add_metric(["unavailable"], len(engine.unavailable(groups=False)))
    yield learners
    yield _gauge(
        "rarestream_nodes",
        "Addresses of nodes that are alive; 0: learners are not spread.",
        len(engine.placement.addresses),
    )
    forwarding = state.forwarding
    forwarded = "Requests that were passed on to another node, or answered with its address."
    yield CounterMetricFamily("rarestream_forwarded_requests", forwarded, forwarding.forwarded)
    yield _gauge("rarestream_groups", "Groups of this node.", len(engine.groups))
    yield _gauge("rarestream_node_ready", "1 once every learner is here, and while the store answers.", _ready(engine))
    yield _gauge("rarestream_store_up", "1 while the store answers.", float(engine.node.unreachable is None))
    yield _gauge("rarestream_store_stale_seconds", "How long the store has not answered.", engine.node.stale_seconds)
    yield _gauge("rarestream_websockets", "Websockets that are open.", len(state.websockets.open))
    yield _gauge("rarestream_streams", "Streams of live figures that are open.", state.streams)
    yield _gauge("rarestream_body_bytes", "Bytes of bodies that are not answered yet.", state.bodies.bytes)
    settings = state.settings
    yield _gauge("rarestream_body_limit_bytes", "Bytes of bodies that may be held.", settings.max_buffered_bytes)
    yield _gauge("rarestream_queue_limit_bytes", "Bytes that may wait in one learner's queue.", settings.queue_bytes)


def _ready(engine: Engine) -> float:
    return float(engine.ready and engine.node.unreachable is None)


def _requests(access: Access) -> Iterator[Metric]:
    yield histograms(
        "rarestream_request_seconds",
        "Time from a request to the end of its reply (of a stream of events: to its head).",
        ["method", "route", "status"],
        (((method, route, str(status)), one) for (method, route, status), one in sorted(access.requests.items())),
    )
    yield histograms(
        "rarestream_websocket_message_seconds",
        "Time from a message of a websocket to its answer.",
        ["operation", "status"],
        (((operation, str(status)), one) for (operation, status), one in sorted(access.messages.items())),
    )
    lines = access.lines
    if lines is not None:
        yield CounterMetricFamily("rarestream_log_lines", "Lines that were logged.", lines.written)
        dropped = CounterMetricFamily("rarestream_log_lines_dropped", "Lines that were not.", labels=["reason"])
        dropped.add_metric(["rate"], access.left_out)  # more requests in a second than have lines
        dropped.add_metric(["full"], lines.dropped)  # nobody read them in time, or at all
        yield dropped


def _timings(engine: Engine) -> Iterator[Metric]:
    timings = engine.node.timings
    yield histograms(
        "rarestream_store_seconds",
        "Time of a call of the store; of `append` until the record is durable.",
        ["operation"],
        (((operation,), one) for operation, one in timings.store.items()),
    )
    errors = CounterMetricFamily("rarestream_store_errors", "Calls that the store failed.", labels=["operation"])
    for operation, count in timings.store_errors.items():
        errors.add_metric([operation], count)
    yield errors
    rewound = "Times that the store's log of a learner or group had lost records which this node had applied."
    yield CounterMetricFamily("rarestream_log_rewound", rewound, timings.rewound)
    yield histograms("rarestream_apply_seconds", "Time to learn a record of the log.", (), [((), timings.apply)])
