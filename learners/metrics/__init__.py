"""Live metrics of a stream: AUC, F-measure, calibration, drift, history.

Start with `binary` or `ordinal`, which combine the others: `window`, `cumulative`, `history`, `drift`, `stream_stats`.
`definitions` says what each metric is.
"""

from learners.metrics import consistency, sequential_tests
from learners.metrics.binary import Metrics, MetricsView
from learners.metrics.definitions import NO_SPREAD, Figures
from learners.metrics.delong import Areas, areas, interval
from learners.metrics.ordinal import OrdinalFigures, OrdinalMetrics
from learners.metrics.sequential_tests import Betting

__all__ = [
    "NO_SPREAD",
    "Areas",
    "Betting",
    "Figures",
    "Metrics",
    "MetricsView",
    "OrdinalFigures",
    "OrdinalMetrics",
    "areas",
    "consistency",
    "interval",
    "sequential_tests",
]
