"""Selects the learners that `/metrics` reports, and adds the samples of each to the families.

The metrics of the window are those of `GET /v1/learners/NAME/metrics`. The first reader after a change computes them,
in some tens of microseconds per learner. Undefined values, such as an AUC before the first positive, have no sample.
Evicted learners stay evicted and have no samples either.

Of several processes behind one port one reports. All have the same learners. Each has a `LocalStatus` of its own, for
example its queue; the report has the worst or the newest of these.
"""

from __future__ import annotations

import heapq
import math
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from prometheus_client import Metric

from learners import LearnerView
from learners.features import REMARKS, FieldKind
from learners.metrics import RankMetricsView
from service.engine import Engine
from service.engine.replica import LearnerReplica

__all__ = ["LearnerSeries", "LocalStatus"]

_STEP = 600.0  # seconds; see `LearnerSeries.choose`

# name, type, documentation; the samples of a counter end in _total
_FAMILIES = (
    ("rarestream_events", "counter", "Labelled events learnt, by class or rank."),
    ("rarestream_duplicate_events", "counter", "Labelled events that had been learnt before, by their id."),
    ("rarestream_corrected_labels", "counter", "Labels that were replaced by others."),
    ("rarestream_assumed_labels", "counter", "Unlabelled events treated as negative after label_ttl."),
    ("rarestream_served_events", "counter", "Events scored under an id."),
    ("rarestream_served_alerts", "counter", "Events scored under an id that were called positive."),
    ("rarestream_served_labelled_events", "counter", "Events scored under an id whose label has arrived."),
    ("rarestream_drift_alarms", "counter", "Drift alarms, by kind."),
    ("rarestream_open_alarms", "gauge", "Drift alarms that are open and not acknowledged, by kind."),
    ("rarestream_window_events", "gauge", "Labelled events in the window of the metrics, by class or rank."),
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
    ("rarestream_label_coverage_ratio", "gauge", "Share of the last served events whose label has arrived."),
    ("rarestream_threshold_ratio", "gauge", "Threshold on the probability, as it is served."),
    ("rarestream_member_weight", "gauge", "Log-odds per standard deviation of the score, by model of auto."),
    ("rarestream_clock_timestamp_seconds", "gauge", "Largest time of an event or label, seconds since the epoch."),
    ("rarestream_times_ahead", "counter", "Times of events or labels ahead of the node's clock, which counted as now."),
    ("rarestream_learner_ready", "gauge", "1 if the learner is ready: both classes were seen, and any fit has run."),
    ("rarestream_learner_failed", "gauge", "1 while the learner cannot apply its log."),
    ("rarestream_fit_failed", "gauge", "1 if the last background fit failed."),
    ("rarestream_fields", "gauge", "Fields of named events, by kind."),
    ("rarestream_absent_fields", "gauge", "Declared fields that none of the first 1,000 or more events had."),
    ("rarestream_field_values", "counter", "Values of fields, by how they were sent."),
    ("rarestream_odd_fields", "gauge", "Fields that are constant, new in each event, rounded, or stopped coming."),
    ("rarestream_field_events", "counter", "Events since the first with a field, once for each field, by its kind."),
    ("rarestream_field_missing", "counter", "Of these, events without a value of the field."),
    ("rarestream_field_contradictions", "counter", "Values that contradict the kind of their field."),
    ("rarestream_field_new_categories", "counter", "Categories that the learner had not seen before."),
    ("rarestream_field_out_of_range", "counter", "Numbers far outside the robust range of their field."),
    ("rarestream_position", "gauge", "Records of the log applied."),
    ("rarestream_queued_events", "gauge", "Events that wait to be learnt."),
    ("rarestream_queued_bytes", "gauge", "Bytes of the events that wait to be learnt."),
    ("rarestream_snapshot_age_seconds", "gauge", "Time since the newest snapshot was taken."),
    ("rarestream_unsaved_events", "gauge", "Events and other records since the newest snapshot."),
    ("rarestream_remembered_events", "gauge", "Served events that are kept for their labels."),
    ("rarestream_remembered_bytes", "gauge", "Bytes of the served events that are kept for their labels."),
    ("rarestream_expired_events", "counter", "Served events that were dropped after label_ttl."),
    ("rarestream_evicted_events", "counter", "Served events that were forgotten because there were too many."),
    ("rarestream_large_events", "counter", "Served events whose features were not kept because they were over 64 KiB."),
)
_OF_WINDOW = {  # metric -> family
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
_PENDING = (  # in the order of `LocalStatus.pending`
    "rarestream_remembered_events",
    "rarestream_remembered_bytes",
    "rarestream_expired_events",
    "rarestream_evicted_events",
)


class LocalStatus(msgspec.Struct, array_like=True, frozen=True):
    """The part of a learner's state that is local to a process and not in the log."""

    position: int
    queued_events: int
    queued_bytes: int
    failed: bool
    fit_failed: bool
    snapshot_time: float | None  # seconds since the epoch, of the newest snapshot
    unsaved: int  # events and other records since then
    times_ahead: int  # of this process
    features_left_out: int  # of this process: events whose features were too large to keep
    pending: tuple[int, int, int, int] | None  # by the last reply of the store: events, bytes, expired, evicted

    @classmethod
    def of(cls, replica: LearnerReplica) -> LocalStatus:
        """Return the present status of a replica."""
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
            replica.times_ahead,
            replica.served_events.features_left_out,
            None if pending is None else (pending.events, pending.bytes, pending.expired, pending.evicted),
        )

    def merge(self, others: Iterable[LocalStatus]) -> LocalStatus:
        """Merge with other processes: the fullest queue, because it refuses events; the newest snapshot; any failure.

        The counts of served events are the newest ones, which cover the most events.
        """
        statuses = (self, *others)
        pending = [status.pending for status in statuses if status.pending is not None]
        times = [status.snapshot_time for status in statuses if status.snapshot_time is not None]
        return LocalStatus(
            max(status.position for status in statuses),
            max(status.queued_events for status in statuses),
            max(status.queued_bytes for status in statuses),
            any(status.failed for status in statuses),
            any(status.fit_failed for status in statuses),
            max(times, default=None),
            min(status.unsaved for status in statuses),
            sum(status.times_ahead for status in statuses),
            sum(status.features_left_out for status in statuses),
            max(pending, key=lambda counts: (counts[0] + counts[2] + counts[3], counts), default=None),
        )


class LearnerSeries:
    """Remembers from scrape to scrape the reported learners and their metrics."""

    def __init__(self, limit: int) -> None:
        """`limit`: number of learners to report."""
        self._limit = limit
        self._reported: dict[str, tuple[LearnerView, dict[str, Any]] | None] = {}

    def choose(self, engine: Engine) -> list[LearnerReplica]:
        """Return the learners to report, by name: the most recently used of those in memory.

        Their age counts in steps of ten minutes. Within a step the learners of the last scrape stay, so that the same
        ones have series from scrape to scrape if more are in use than the limit allows.
        """
        resident = engine.replicas.values()
        if len(engine.replicas) > self._limit:
            now = time.monotonic()

            def last(replica: LearnerReplica) -> tuple[int, bool, float]:
                age = 0.0 if replica.users else now - replica.last_used
                return int(age / _STEP), replica.name not in self._reported, age

            replicas = heapq.nsmallest(self._limit, resident, key=last)
        else:
            replicas = list(resident)
        replicas.sort(key=lambda replica: replica.name)
        self._reported = {replica.name: self._reported.get(replica.name) for replica in replicas}
        return replicas

    @staticmethod
    def families() -> dict[str, Metric]:
        """Return all families by name, without samples."""
        return {name: Metric(name, documentation, kind) for name, kind, documentation in _FAMILIES}

    def add_samples(
        self, replica: LearnerReplica, families: Mapping[str, Metric], now: float, others: Iterable[LocalStatus] = ()
    ) -> None:
        """Add a learner's samples; `now` in seconds since the epoch. Runs on the event loop because the view is live.

        `others`: the statuses in the other processes behind the port.
        """
        view = replica.view
        status = LocalStatus.of(replica).merge(others)
        learner = {"learner": replica.name}

        def add(family: str, value: float | None, labels: Mapping[str, str] = learner) -> None:
            if value is not None and math.isfinite(value):
                metric = families[family]
                metric.add_sample(f"{family}_total" if metric.type == "counter" else family, dict(labels), float(value))

        figures, window = view.figures, self._window(replica.name, view)
        for label, count in view.class_counts.items():
            add("rarestream_events", count, {**learner, "class": label})
        for label, count in window["class_counts"].items():
            add("rarestream_window_events", count, {**learner, "class": label})
        for family, alarms in (("drift_alarms", figures.alarm_counts), ("open_alarms", view.open_alarms)):
            for kind, count in alarms.items():
                add(f"rarestream_{family}", count, {**learner, "kind": kind})
        duplicates, corrections, *assumed = figures.counters.tolist()
        add("rarestream_duplicate_events", duplicates)
        add("rarestream_corrected_labels", corrections)
        add("rarestream_assumed_labels", assumed[0] if assumed else None)
        served, alerts, labelled = figures.stats.served
        add("rarestream_served_events", served)
        if view.scorer.config.labels.ranks is None:  # ranks are not alerts
            add("rarestream_served_alerts", alerts)
        add("rarestream_served_labelled_events", labelled)
        for name, family in _OF_WINDOW.items():
            add(family, window.get(name))
        lower, upper = window.get("auc_interval") or (None, None)
        add("rarestream_auc_lower_ratio", lower)
        add("rarestream_auc_upper_ratio", upper)
        add("rarestream_threshold_ratio", view.threshold)
        for member, weight in (view.member_weights or {}).items():
            add("rarestream_member_weight", weight, {**learner, "member": member})
        add("rarestream_clock_timestamp_seconds", figures.clock)
        add("rarestream_times_ahead", status.times_ahead)
        add("rarestream_learner_ready", view.not_ready is None)
        add("rarestream_learner_failed", status.failed)
        if view.fitted_events is not None:
            add("rarestream_fit_failed", status.fit_failed)
        if (fields := view.fields) is not None:
            kinds = Counter(field.kind for field in fields if field.last is not None)
            counts: Counter[str] = Counter()
            counted_events, missing = Counter[FieldKind](), Counter[FieldKind]()
            for field in fields:
                counts.update(field.counts)
                counted_events[field.kind] += view.field_events
                missing[field.kind] += view.field_events - field.values
            for field_kind in list(FieldKind)[1:]:  # without `unknown`
                of_kind = {**learner, "kind": field_kind.name.lower()}
                add("rarestream_fields", kinds[field_kind], of_kind)
                add("rarestream_field_events", counted_events[field_kind], of_kind)
                add("rarestream_field_missing", missing[field_kind], of_kind)
            add("rarestream_absent_fields", len(view.absent_fields))
            remarks = Counter(remark for field in fields for remark in field.remarks(view.field_events))
            for remark in REMARKS:
                add("rarestream_odd_fields", remarks[remark], {**learner, "remark": remark})
            add("rarestream_field_contradictions", counts.pop("contradictions", 0))
            add("rarestream_field_new_categories", counts.pop("new_categories", 0))
            add("rarestream_field_out_of_range", counts.pop("out_of_range", 0))
            for value_kind, count in counts.items():
                add("rarestream_field_values", count, {**learner, "sent": value_kind})
        add("rarestream_position", status.position)
        add("rarestream_queued_events", status.queued_events)
        add("rarestream_queued_bytes", status.queued_bytes)
        if status.snapshot_time is not None:
            add("rarestream_snapshot_age_seconds", max(now - status.snapshot_time, 0.0))
        add("rarestream_unsaved_events", status.unsaved)
        add("rarestream_large_events", status.features_left_out)
        if status.pending is not None:
            for family, value in zip(_PENDING, status.pending, strict=True):
                add(family, value)

    def _window(self, name: str, view: LearnerView) -> dict[str, Any]:
        """Return the metrics of the window, computed if the learner changed since the last scrape."""
        last = self._reported.get(name)
        if last is not None and last[0] is view:
            return last[1]
        figures = view.figures
        if isinstance(figures, RankMetricsView):
            window: dict[str, Any] = figures.as_json()["window"]
        else:
            window = {**figures.window.figures(figures.settings)[0], **figures.stats.figures("window")[0]}
        self._reported[name] = view, window
        return window
