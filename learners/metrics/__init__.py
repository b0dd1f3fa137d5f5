"""Live metrics of a stream: AUC, F-measure, calibration, drift, history; and the journal of what happened to it.

Start with `binary` or `ordinal`, which combine the others: `window`, `cumulative`, `history`, `drift`, `stream_stats`.
`definitions` says what each metric is; `operating_points` has those of other thresholds.
"""

from learners.metrics import alarm_life, consistency, sequential_tests
from learners.metrics.binary import BinaryMetrics, BinaryMetricsView
from learners.metrics.definitions import MAX_SEGMENT_FIELDS, NO_SPREAD, MetricSettings
from learners.metrics.delong import AucEstimates, estimate_aucs, interval
from learners.metrics.journal import MAX_NOTE, MAX_WRITER, Journal, JournalEntry, text_fault
from learners.metrics.operating_points import (
    DecisionFigures,
    ErrorCosts,
    choose_thresholds,
    confusions_at,
    share_interval,
)
from learners.metrics.ordinal import RankMetrics, RankMetricsView
from learners.metrics.ranking import auc_with_interval
from learners.metrics.ranking_from_bins import ranking
from learners.metrics.rings import lengthen, ring_capacity
from learners.metrics.sequential_tests import SequentialTest
from learners.metrics.window import WindowColumns

__all__ = [
    "MAX_NOTE",
    "MAX_SEGMENT_FIELDS",
    "MAX_WRITER",
    "NO_SPREAD",
    "AucEstimates",
    "BinaryMetrics",
    "BinaryMetricsView",
    "DecisionFigures",
    "ErrorCosts",
    "Journal",
    "JournalEntry",
    "MetricSettings",
    "RankMetrics",
    "RankMetricsView",
    "SequentialTest",
    "WindowColumns",
    "alarm_life",
    "auc_with_interval",
    "choose_thresholds",
    "confusions_at",
    "consistency",
    "estimate_aucs",
    "interval",
    "lengthen",
    "ranking",
    "ring_capacity",
    "sequential_tests",
    "share_interval",
    "text_fault",
]
