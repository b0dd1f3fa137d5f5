"""Figures of this node in the form that Prometheus scrapes, at /metrics."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from service.engine import Engine

__all__ = ["CONTENT_TYPE", "exposed"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class _Learners(Collector):
    """What the learners of a node have met. Only what is counted anyway: a scrape computes nothing."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        """One sample per learner, and class or kind."""
        events = CounterMetricFamily("rarestream_events", "Labelled events learnt.", labels=["learner", "class"])
        alarms = CounterMetricFamily("rarestream_drift_alarms", "Drift alarms.", labels=["learner", "kind"])
        position = GaugeMetricFamily("rarestream_position", "Records of the log applied.", labels=["learner"])
        queued = GaugeMetricFamily("rarestream_queued_events", "Events that wait to be learnt.", labels=["learner"])
        learners = GaugeMetricFamily("rarestream_learners", "Learners of this node.", labels=["state"])
        learners.add_metric(["resident"], len(self._engine.hosted))
        learners.add_metric(["asleep"], len(self._engine.asleep))
        for name, hosted in sorted(self._engine.hosted.items()):
            view = hosted.view
            for which, count in view.class_counts.items():
                events.add_metric([name, which], count)
            for kind, count in view.figures.alarm_counts.items():
                alarms.add_metric([name, kind], count)
            position.add_metric([name], hosted.position)
            queued.add_metric([name], hosted.queued_events)
        yield from (learners, events, alarms, position, queued)


class _Node(Collector):
    """What the node itself has open."""

    def __init__(self, websockets: int) -> None:
        self._websockets = websockets

    def collect(self) -> Iterator[Metric]:
        """One sample each."""
        yield GaugeMetricFamily("rarestream_websockets", "Websockets that are open.", self._websockets)


def exposed(engine: Engine, websockets: int) -> bytes:
    """The text of one scrape; `websockets`: how many are open."""
    registry = CollectorRegistry()
    registry.register(_Learners(engine))
    registry.register(_Node(websockets))
    return generate_latest(registry)
