"""From a score to a decision: calibration, threshold objectives, the alert budget.

Start with `calibration`, then `threshold`, whose compiled rules are in `threshold_kernels`.
"""

from learners.decisions import calibration, threshold, threshold_kernels
from learners.decisions.calibration import Calibration, CalibrationState
from learners.decisions.fused_scoring import dense_look, read_by
from learners.decisions.threshold import Threshold

__all__ = [
    "Calibration",
    "CalibrationState",
    "Threshold",
    "calibration",
    "dense_look",
    "read_by",
    "threshold",
    "threshold_kernels",
]
