"""What `/metrics` says of each learner: which ones it tells of, and a family of samples for each figure.

Window figures are those of `GET /v1/learners/NAME/metrics`: worked out by whoever asks first after a change, some tens
of microseconds for a learner. What is undefined, such as an AUC before the first positive, has no sample. Learners that
sleep are left asleep, and have none either.

Of several processes behind one port one tells. All have the same learners; what each has of its own, such as its queue,
is `Own`, and told as the worst or the newest that any of them has.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from prometheus_client import Metric

from learners import LearnerView
from learners.metrics import RankMetricsView
from service.engine import Engine
from service.engine.replica import LearnerReplica

__all__ = ["LearnerSeries", "Own"]

_STEP = 600.0  # seconds; see `LearnerSeries.chosen`

# name, kind, what it tells; the samples of a counter end in _total
_FAMILIES = (
    ("rarestream_events", "counter", "Labelled events learnt, by class or rank."),
    ("rarestream_duplicate_events", "counter", "Labelled events that had been learnt before, by their id."),
    ("rarestream_corrected_labels", "counter", "Labels that were replaced by others."),
    ("rarestream_assumed_labels", "counter", "Labels that never came and were taken for negative."),
    ("rarestream_served_events", "counter", "Events scored under an id."),
    ("rarestream_served_alerts", "counter", "Events scored under an id that were called positive."),
    ("rarestream_served_labelled_events", "counter", "Events scored under an id whose label has come."),
    ("rarestream_drift_alarms", "counter", "Drift alarms, by kind."),
    ("rarestream_window_events", "gauge", "Labelled events in the window of the figures, by class or rank."),
    ("rarestream_auc_ratio", "gauge", "AUC in the window."),
    ("rarestream_auc_lower_ratio", "gauge", "Lower end of the 95 % interval of the AUC."),
    ("rarestream_auc_upper_ratio", "gauge", "Upper end of the 95 % interval of the AUC."),
    ("rarestream_average_precision_ratio", "gauge", "Average precision in the window."),
    ("rarestream_f1_ratio", "gauge", "F1 of the decisions in the window."),
    ("rarestream_precision_ratio", "gauge", "Precision of the decisions in the window."),
    ("rarestream_recall_ratio", "gauge", "Recall of the decisions in the window."),
    ("rarestream_alert_ratio", "gauge", "Share of labelled events in the window that were called positive."),
    ("rarestream_calibration_error_ratio", "gauge", "Expected calibration error in the window."),
    ("rarestream_accuracy_ratio", "gauge", "Accuracy of the decisions, or of the ranks, in the window."),
    ("rarestream_mean_absolute_error", "gauge", "Mean absolute error in the window, in ranks."),
    ("rarestream_served_alert_ratio", "gauge", "Share of the last served events that were called positive."),
    ("rarestream_label_delay_median_seconds", "gauge", "Median time from an event to its label, in the window."),
    ("rarestream_label_delay_p90_seconds", "gauge", "90th percentile of the time from an event to its label."),
    ("rarestream_label_coverage_ratio", "gauge", "Share of the last served events whose label has come by now."),
    ("rarestream_threshold_ratio", "gauge", "Threshold on the probability, as it is served."),
    ("rarestream_clock_timestamp_seconds", "gauge", "Largest time of an event or label, seconds since the epoch."),
    ("rarestream_learner_ready", "gauge", "1 once scores mean something: both classes met, and fitted."),
    ("rarestream_learner_failed", "gauge", "1 while the learner cannot move on."),
    ("rarestream_fit_failed", "gauge", "1 where the last fit in the background failed."),
    ("rarestream_position", "gauge", "Records of the log applied."),
    ("rarestream_queued_events", "gauge", "Events that wait to be learnt."),
    ("rarestream_queued_bytes", "gauge", "Bytes of the events that wait to be learnt."),
    ("rarestream_snapshot_age_seconds", "gauge", "Time since the newest snapshot was taken."),
    ("rarestream_unsaved_events", "gauge", "Events and other records since the newest snapshot."),
    ("rarestream_remembered_events", "gauge", "Served events that are kept for their labels."),
    ("rarestream_remembered_bytes", "gauge", "Bytes of the served events that are kept for their labels."),
    ("rarestream_expired_events", "counter", "Served events that were forgotten because their time was over."),
    ("rarestream_evicted_events", "counter", "Served events that were forgotten because there were too many."),
)
_OF_WINDOW = {  # figure -> family
    "auc": "rarestream_auc_ratio",
    "average_precision": "rarestream_average_precision_ratio",
    "f1": "rarestream_f1_ratio",
    "precision": "rarestream_precision_ratio",
    "recall": "rarestream_recall_ratio",
    "alert_rate": "rarestream_alert_ratio",
    "calibration_error": "rarestream_calibration_error_ratio",
    "accuracy": "rarestream_accuracy_ratio",
    "mae": "rarestream_mean_absolute_error",
    "served_alert_rate": "rarestream_served_alert_ratio",
    "label_delay_median": "rarestream_label_delay_median_seconds",
    "label_delay_p90": "rarestream_label_delay_p90_seconds",
    "label_coverage": "rarestream_label_coverage_ratio",
}
_PENDING = (  # as `Own.pending` has them
    "rarestream_remembered_events",
    "rarestream_remembered_bytes",
    "rarestream_expired_events",
    "rarestream_evicted_events",
)


class Own(msgspec.Struct, array_like=True, frozen=True):
    """What of a learner is this process's own, not the log's."""

    position: int
    queued_events: int
    queued_bytes: int
    failed: bool
    fit_failed: bool
    snapshot_time: float | None  # seconds since the epoch, of the newest that it knows of
    unsaved: int  # events and other records since that
    pending: tuple[int, int, int, int] | None  # as the store told it last: events, bytes, expired, evicted

    @classmethod
    def of(cls, replica: LearnerReplica) -> Own:
        """As it is now."""
        newest = replica.snapshots.newest
        pending = replica.served_events.pending
        return cls(
            replica.position,
            replica.queued_events,
            replica.queued_bytes,
            replica.failure is not None,
            replica.fits.failure is not None,
            None if newest is None else newest.time,
            replica.snapshots.unsaved,
            None if pending is None else (pending.events, pending.bytes, pending.expired, pending.evicted),
        )

    def along(self, others: Iterable[Own]) -> Own:
        """With what other processes have: the fullest queue, as that is what refuses; the newest snapshot; any fault.

        Of what is remembered the store has told those last who know of the most events.
        """
        found = (self, *others)
        told = [one.pending for one in found if one.pending is not None]
        saved = [one.snapshot_time for one in found if one.snapshot_time is not None]
        return Own(
            max(one.position for one in found),
            max(one.queued_events for one in found),
            max(one.queued_bytes for one in found),
            any(one.failed for one in found),
            any(one.fit_failed for one in found),
            max(saved, default=None),
            min(one.unsaved for one in found),
            max(told, key=lambda one: (one[0] + one[2] + one[3], one), default=None),
        )


class LearnerSeries:
    """Remembers from scrape to scrape which learners were told of, and figures that have not changed since."""

    def __init__(self, most: int) -> None:
        """`most`: learners that are told of."""
        self._most = most
        self._shown: dict[str, tuple[LearnerView, dict[str, Any]] | None] = {}

    def chosen(self, engine: Engine) -> list[LearnerReplica]:
        """The learners that are told of, by name: of those in memory the last used.

        How long ago counts in steps of ten minutes; within a step those that were told of last time stay. So where
        more are in use than there is room for, it is the same ones that have series from scrape to scrape.
        """
        here = engine.replicas.values()
        if len(engine.replicas) > self._most:
            now = time.monotonic()

            def last(replica: LearnerReplica) -> tuple[int, bool, float]:
                age = 0.0 if replica.users else now - replica.last_used
                return int(age / _STEP), replica.name not in self._shown, age

            found = heapq.nsmallest(self._most, here, key=last)
        else:
            found = list(here)
        found.sort(key=lambda replica: replica.name)
        self._shown = {replica.name: self._shown.get(replica.name) for replica in found}
        return found

    @staticmethod
    def families() -> dict[str, Metric]:
        """Every family by its name, empty."""
        return {name: Metric(name, documentation, kind) for name, kind, documentation in _FAMILIES}

    def tell(
        self, replica: LearnerReplica, families: Mapping[str, Metric], now: float, others: Iterable[Own] = ()
    ) -> None:
        """Add a learner's samples; `now` in seconds since the epoch. On the event loop: the view is a live one.

        `others`: what other processes behind the port have of it.
        """
        view = replica.view
        held = Own.of(replica).along(others)
        own = {"learner": replica.name}

        def add(family: str, value: float | None, labels: Mapping[str, str] = own) -> None:
            if value is not None and math.isfinite(value):
                metric = families[family]
                metric.add_sample(f"{family}_total" if metric.type == "counter" else family, dict(labels), float(value))

        figures, window = view.figures, self._window(replica.name, view)
        for label, count in view.class_counts.items():
            add("rarestream_events", count, {**own, "class": label})
        for label, count in window["class_counts"].items():
            add("rarestream_window_events", count, {**own, "class": label})
        for kind, count in figures.alarm_counts.items():
            add("rarestream_drift_alarms", count, {**own, "kind": kind})
        duplicates, corrections, *assumed = figures.counters.tolist()
        add("rarestream_duplicate_events", duplicates)
        add("rarestream_corrected_labels", corrections)
        add("rarestream_assumed_labels", assumed[0] if assumed else None)
        served, alerts, labelled = figures.stats.served
        add("rarestream_served_events", served)
        if view.scorer.config.labels.ranks is None:  # ranks are no alerts
            add("rarestream_served_alerts", alerts)
        add("rarestream_served_labelled_events", labelled)
        for name, family in _OF_WINDOW.items():
            add(family, window.get(name))
        lower, upper = window.get("auc_interval") or (None, None)
        add("rarestream_auc_lower_ratio", lower)
        add("rarestream_auc_upper_ratio", upper)
        add("rarestream_threshold_ratio", view.threshold)
        add("rarestream_clock_timestamp_seconds", figures.clock)
        add("rarestream_learner_ready", view.not_ready is None)
        add("rarestream_learner_failed", held.failed)
        if view.fitted_events is not None:
            add("rarestream_fit_failed", held.fit_failed)
        add("rarestream_position", held.position)
        add("rarestream_queued_events", held.queued_events)
        add("rarestream_queued_bytes", held.queued_bytes)
        if held.snapshot_time is not None:
            add("rarestream_snapshot_age_seconds", max(now - held.snapshot_time, 0.0))
        add("rarestream_unsaved_events", held.unsaved)
        if held.pending is not None:
            for family, value in zip(_PENDING, held.pending, strict=True):
                add(family, value)

    def _window(self, name: str, view: LearnerView) -> dict[str, Any]:
        """The figures of the window, worked out where the learner has moved since the last scrape."""
        known = self._shown.get(name)
        if known is not None and known[0] is view:
            return known[1]
        figures = view.figures
        if isinstance(figures, RankMetricsView):
            window: dict[str, Any] = figures.as_json()["window"]
        else:
            window = {**figures.window.figures(figures.settings)[0], **figures.stats.figures("window")[0]}
        self._shown[name] = view, window
        return window
