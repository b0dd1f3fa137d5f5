"""From a score to a decision: calibration, threshold objectives, the alert budget.

Start with `calibration`, then `threshold`. Its compiled code is in `threshold_kernels`, with `threshold_search`,
`fofo_stages` and `alert_budget` for the objectives. `fused_scoring` scores dense events in one call.
"""

from learners.decisions import calibration, threshold, threshold_kernels
from learners.decisions.calibration import Calibration, CalibrationState
from learners.decisions.fused_scoring import dense_inputs, score_dense
from learners.decisions.threshold import Threshold

__all__ = [
    "Calibration",
    "CalibrationState",
    "Threshold",
    "calibration",
    "dense_inputs",
    "score_dense",
    "threshold",
    "threshold_kernels",
]
