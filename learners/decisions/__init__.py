"""From a score to a decision: calibration, threshold objectives, the alert budget.

Start with `calibration`, then `threshold`, whose compiled rules are in `threshold_kernels`.
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
