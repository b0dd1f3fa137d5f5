"""Metrics of this node in the text format that Prometheus scrapes, at /metrics.

    learners   `prometheus_learners.py`   the most recently used, as many as the settings allow
    requests   `telemetry`                by route and status, and the lines of the log
    node       `engine`                   store calls, applied records, open streams, bytes in memory
    process    prometheus_client          memory, CPU time, file descriptors, garbage collection

Every application has its own metrics; a registry of the process would mix those of two applications. A scrape runs on
the event loop, the only place where the metrics of learners may be read, and yields every millisecond.

Any of several processes behind one port (`worker_peers.py`) answers a scrape for all:

    1. it asks each process for its counts and gauges, and for its own part of each learner's state
    2. the first process, always the same one, reports the learners at the latest position of any process

Counts have the label `worker`: a restarted process counts from 0 again, and a sum would hide that. Gauges are added up.
The node is ready, and its store up, if that is true of every process.
"""

from __future__ import annotations

import asyncio
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial

import msgspec
from fastapi import APIRouter, Depends
from fastapi.responses import Response
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.gc_collector import GCCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from learners.numerics import kernel_counts, kernel_trouble
from rarestream import __version__
from service.api.prometheus_learners import LearnerSeries, LocalStatus
from service.api.routes import AccessRoute, KeyPermissions, RequiredScope
from service.api.state import AppState
from service.api.worker_peers import Siblings
from service.auth import UNRESTRICTED, Permissions
from service.engine import Engine
from service.errors import ServiceError
from service.telemetry import Access, histograms

__all__ = ["Exposition"]

_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_SLICE = 1e-3  # seconds of work before a yield
_LINES = 100  # samples written in one go
_CATCH_UP = 1.0  # seconds to catch up with another process behind the same port


class _SingleFamily(Collector):
    """A collector of one family, as the encoder takes it."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterator[Metric]:
        """Yield the family."""
        yield self._family


class _Yielder:
    """Yields to the event loop now and then."""

    def __init__(self) -> None:
        self._since = time.perf_counter()

    async def pause(self) -> None:
        """Yield if enough work was done."""
        if time.perf_counter() - self._since > _SLICE:
            await asyncio.sleep(0)
            self._since = time.perf_counter()


class Family(msgspec.Struct, array_like=True, frozen=True):
    """A family of samples as one process sends it to another."""

    name: str
    documentation: str
    type: str
    samples: list[tuple[str, dict[str, str], float]]

    @classmethod
    def of(cls, family: Metric) -> Family:
        """Convert a family, without time stamps and exemplars, which this service does not use."""
        samples = [(sample.name, dict(sample.labels), float(sample.value)) for sample in family.samples]
        return cls(family.name, family.documentation, family.type, samples)


class ProcessMetrics(msgspec.Struct, frozen=True):
    """The metrics of one process, and its own part of each learner's state."""

    families: list[Family]
    learners: dict[str, LocalStatus]


class Question(msgspec.Struct, frozen=True):
    """A question of one process to another: its `ProcessMetrics`, or the text of the learners' families.

    For the text it gets the states of the other processes.
    """

    others: dict[str, list[LocalStatus]] | None = None


class Exposition:
    """The metrics of one application."""

    def __init__(self, state: AppState) -> None:
        self._state = state
        self._series = LearnerSeries(state.settings.metrics_learners)
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)
        GCCollector(registry=self._process)
        self.siblings: Siblings | None = None  # the other processes behind this port, if any

    def router(self) -> APIRouter:
        """Return the router of /metrics."""
        router = APIRouter(include_in_schema=False, route_class=AccessRoute)

        @router.get("/metrics", dependencies=[Depends(RequiredScope("read", any_query=True))])
        async def metrics(permissions: KeyPermissions) -> Response:
            """Serve the metrics of this node to Prometheus, restricted to the learners that the key allows."""
            return Response(await self.text(permissions), media_type=_CONTENT_TYPE)

        return router

    async def text(self, permissions: Permissions = UNRESTRICTED) -> bytes:
        """Return one scrape of the application, with the learners that the key may read."""
        if self.siblings is not None:
            return await self._scrape_all(self.siblings, permissions)
        return await _text(await self.families(permissions))

    async def families(self, permissions: Permissions = UNRESTRICTED) -> list[Metric]:
        """Return every family of this process that has a sample."""
        families = [*await self._learners({}, permissions), *self._process_families()]
        return [family for family in families if family.samples]

    async def answer(self, data: msgspec.Raw) -> ProcessMetrics | bytes:
        """Answer a question of another process of the same port."""
        question = msgspec.msgpack.decode(data, type=Question)
        if question.others is None:
            return self._figures()
        return await _text(await self._learners(question.others))

    async def _scrape_all(self, siblings: Siblings, permissions: Permissions) -> bytes:
        metrics = {siblings.number: self._figures(), **await siblings.ask_all(Question(), ProcessMetrics)}
        first = min(metrics)
        others: dict[str, list[LocalStatus]] = {}
        for number, process in metrics.items():
            for name, status in process.learners.items() if number != first else ():
                others.setdefault(name, []).append(status)
        learners = None
        if first != siblings.number and permissions.all_learners:
            learners = await siblings.ask(first, Question(others), bytes)
        if learners is None:  # this process is the first, the first is gone, or the key may read some learners only
            learners = await _text(await self._learners(others, permissions))
        return learners + await _text(_merge(metrics))

    def _figures(self) -> ProcessMetrics:
        engine = self._state.engine
        families = [Family.of(family) for family in self._process_families()]
        return ProcessMetrics(families, {name: LocalStatus.of(replica) for name, replica in engine.replicas.items()})

    async def _learners(
        self, others: Mapping[str, Sequence[LocalStatus]], permissions: Permissions = UNRESTRICTED
    ) -> list[Metric]:
        """Return the families of the learners at the latest position of any process."""
        engine = self._state.engine
        yielder = _Yielder()
        families = self._series.families()
        replicas, now = self._series.choose(engine), time.time()
        behind = [
            replica
            for replica in replicas
            if any(other.position > replica.position for other in others.get(replica.name, ()))
        ]
        with suppress(ServiceError, TimeoutError):  # then at the position of this process; its counters may fall back
            async with asyncio.timeout(_CATCH_UP):
                await asyncio.gather(*(replica.log.catch_up() for replica in behind))
        for replica in replicas:
            if permissions.sees(replica.name):
                self._series.add_samples(replica, families, now, others.get(replica.name, ()))
                await yielder.pause()
        left_out = len(engine.replicas) - len(replicas)
        return [
            _gauge("rarestream_learners_left_out", "Learners in memory that have no series here.", left_out),
            *families.values(),
        ]

    def _process_families(self) -> Iterator[Metric]:
        """Yield the families of this process, without the learners."""
        yield from _node(self._state)
        yield from _requests(self._state.access)
        yield from _timings(self._state.engine)
        yield from self._process.collect()


# Gauges of the node that combine those of its processes. Of all others the first process has the value.
_TOGETHER: dict[str, Callable[[list[float]], float]] = {
    "rarestream_workers": sum,
    "rarestream_websockets": sum,
    "rarestream_streams": sum,
    "rarestream_handshakes": sum,
    "rarestream_webhook_waiting": sum,
    "rarestream_body_bytes": sum,
    "rarestream_body_limit_bytes": sum,
    "rarestream_node_ready": min,
    "rarestream_store_full": max,
    "rarestream_store_fault": max,
    "rarestream_store_caution": max,
    "rarestream_kernels_fault": max,
    "rarestream_store_up": min,
    "rarestream_store_stale_seconds": max,
    "rarestream_clock_offset_seconds": partial(max, key=abs),
    "rarestream_store_clock_offset_seconds": partial(max, key=abs),
}


def _merge(metrics: Mapping[int, ProcessMetrics]) -> Iterator[Metric]:
    """Merge the families of all processes, by their numbers, into those of one node."""
    by_name: dict[str, list[tuple[int, Family]]] = {}
    for number, process in sorted(metrics.items()):
        for family in process.families:
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
        else:  # the release, the learners of the node, settings: equal in all of them
            for sample_of_first in first.samples:
                merged.add_sample(*sample_of_first)
        yield merged


async def _text(families: Iterable[Metric]) -> bytes:
    """Encode every family that has a sample in the format that Prometheus reads."""
    yielder = _Yielder()
    parts = []
    for family in families:
        if family.samples:
            for part in _parts(family):
                parts.append(part)
                await yielder.pause()
    return b"".join(parts)


def _parts(family: Metric) -> Iterator[bytes]:
    """Encode a family in parts. Only the first has the heading, which is two lines."""
    for start in range(0, len(family.samples), _LINES):
        part = Metric(family.name, family.documentation, family.type)
        part.samples = family.samples[start : start + _LINES]
        text = generate_latest(_SingleFamily(part))
        yield text if start == 0 else text.split(b"\n", 2)[2]


def _gauge(name: str, documentation: str, value: float) -> Metric:
    return GaugeMetricFamily(name, documentation, value)


def _node(state: AppState) -> Iterator[Metric]:
    """Yield the build, the gauges and the counts of the node."""
    engine = state.engine
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
    forwarded = "Requests that were passed on to another node, or answered with its address."
    yield CounterMetricFamily("rarestream_forwarded_requests", forwarded, state.forwarding.forwarded)
    yield _gauge("rarestream_groups", "Groups of this node.", len(engine.groups))
    yield _gauge("rarestream_node_ready", "1 once every learner is here, and while the store answers.", _ready(engine))
    yield _gauge("rarestream_store_full", "1 while the store has no room.", float(engine.node.full is not None))
    store = engine.node.store
    yield _gauge("rarestream_store_fault", "1 while the store may delete any key.", float(store.fault is not None))
    yield _gauge("rarestream_store_caution", "1 while health warns of the store.", float(store.caution is not None))
    yield _gauge("rarestream_store_up", "1 while the store answers.", float(engine.node.unreachable is None))
    yield _gauge("rarestream_store_stale_seconds", "How long the store has not answered.", engine.node.stale_seconds)
    check = engine.node.clock_check
    meaning = "Seconds that this node's clock is ahead of the time that it gives to events, for example after a step."
    yield _gauge("rarestream_clock_offset_seconds", meaning, check.offset)
    meaning = "Seconds that this node's clock is ahead of the store's clock; 0 if the store has none."
    yield _gauge("rarestream_store_clock_offset_seconds", meaning, check.store_offset)
    yield _gauge("rarestream_websockets", "Websockets that are open.", len(state.websockets))
    yield _gauge("rarestream_streams", "Open streams of live metrics.", state.streams)
    handshakes = state.handshakes
    yield _gauge("rarestream_handshakes", "Connections that are not authenticated yet.", len(handshakes))
    closed = CounterMetricFamily(
        "rarestream_connections_closed", "Connections closed because of a deadline or a limit.", labels=["reason"]
    )
    for reason, count in handshakes.closed.items():
        closed.add_metric([reason], count)
    yield closed
    errors = CounterMetricFamily("rarestream_task_errors", "Background tasks ended by an error.", labels=["task"])
    for task, count in engine.node.background.errors.items():
        errors.add_metric([task], count)
    yield errors
    webhooks = engine.node.webhooks
    posts = CounterMetricFamily("rarestream_webhook_posts", "Alarms and alerts for the webhook.", labels=["outcome"])
    posts.add_metric(["delivered"], webhooks.total("deliveries"))
    posts.add_metric(["lost"], webhooks.total("losses"))  # given up after many attempts
    yield posts
    yield _gauge("rarestream_webhook_waiting", "Posts that are tried, or wait behind one.", webhooks.total("waiting"))
    yield _gauge("rarestream_body_bytes", "Bytes of bodies that are not answered yet.", state.bodies.bytes)
    counts = kernel_counts()
    kernels = GaugeMetricFamily("rarestream_kernels", "Kernels that were called or rehearsed.", labels=["state"])
    kernels.add_metric(["compiled"], counts.compiled)
    kernels.add_metric(["waiting"], counts.waiting)  # called, and run as plain Python until they are compiled
    kernels.add_metric(["failed"], counts.failed)
    kernels.add_metric(["later"], max(0, counts.all - counts.compiled - counts.waiting - counts.failed))
    yield kernels
    fault = float(kernel_trouble() is not None)
    yield _gauge("rarestream_kernels_fault", "1 while health says why kernels are not compiled.", fault)
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
        (((method, route, str(status)), times) for (method, route, status), times in sorted(access.requests.items())),
    )
    yield histograms(
        "rarestream_websocket_message_seconds",
        "Time from a message of a websocket to its answer.",
        ["operation", "status"],
        (((operation, str(status)), times) for (operation, status), times in sorted(access.messages.items())),
    )
    lines = access.lines
    if lines is not None:
        yield CounterMetricFamily("rarestream_log_lines", "Lines that were logged.", lines.written)
        dropped = CounterMetricFamily("rarestream_log_lines_dropped", "Lines that were not.", labels=["reason"])
        dropped.add_metric(["rate"], access.left_out)  # more requests in a second than the limit of lines
        dropped.add_metric(["full"], lines.dropped)  # nobody read the lines in time
        yield dropped


def _timings(engine: Engine) -> Iterator[Metric]:
    timings = engine.node.timings
    yield histograms(
        "rarestream_store_seconds",
        "Time of a call of the store; of `append` until the record is durable.",
        ["operation"],
        (((operation,), times) for operation, times in timings.store.items()),
    )
    errors = CounterMetricFamily("rarestream_store_errors", "Calls that the store failed.", labels=["operation"])
    for operation, count in timings.store_errors.items():
        errors.add_metric([operation], count)
    yield errors
    rewound = "Times that the store's log of a learner or group had lost records which this node had applied."
    yield CounterMetricFamily("rarestream_log_rewound", rewound, timings.rewound)
    yield histograms("rarestream_apply_seconds", "Time to learn a record of the log.", (), [((), timings.apply)])
