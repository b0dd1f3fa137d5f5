"""Live metrics of a stream: AUC, F-measure, calibration, drift, history.

Start with `binary` or `ordinal`, which combine the others: `window`, `cumulative`, `history`, `drift`, `stream_stats`.
`definitions` says what each metric is.
"""

from learners.metrics import consistency, sequential_tests
from learners.metrics.binary import BinaryMetrics, BinaryMetricsView
from learners.metrics.definitions import NO_SPREAD, MetricSettings
from learners.metrics.delong import AucEstimates, estimate_aucs, interval
from learners.metrics.ordinal import RankMetrics, RankMetricsView
from learners.metrics.rings import lengthen, ring_capacity
from learners.metrics.sequential_tests import SequentialTest

__all__ = [
    "NO_SPREAD",
    "AucEstimates",
    "BinaryMetrics",
    "BinaryMetricsView",
    "MetricSettings",
    "RankMetrics",
    "RankMetricsView",
    "SequentialTest",
    "consistency",
    "estimate_aucs",
    "interval",
    "lengthen",
    "ring_capacity",
    "sequential_tests",
]
