"""Online learners for imbalanced streams, as a library.

    from learners import create

    learner = create("cbr", dim=8, C=1.0)
    scores = learner.learn(X, y)        # prequential: each event is scored before it is learnt
    learner.figures()["window"]["auc"]

A learner is a deterministic state machine on NumPy arrays and numba kernels: no clock, no network, no file.

Start with `learner.py`, the state machine; `records.py` has what it takes, `config.py` what it is created with, and
`scorer.py` what readers get. Its stages are `model.py` (features -> score) and `decision.py` (score -> decision).
`comparison.py` compares learners, `explain.py` explains a score, `threshold_review.py` tries other thresholds.

Packages: `features` (events -> columns), `algorithms` (one file each), `decisions` (calibration and thresholds),
`metrics` (live AUC, F-measure, drift), `numerics` (arrays and compilation).
"""

from __future__ import annotations

from typing import Any

from learners.algorithms import algorithms
from learners.comparison import ComparedBatch, GroupComparison, GroupComparisonView, GroupConfig
from learners.config import CHANGEABLE, DEFAULT_ALGORITHM, FEATURE_KINDS, Config, ConfigWarning, LearnerSettings
from learners.decision import Decision
from learners.deduplication import MAX_SOURCE_NAME, Sources
from learners.explain import MAX_FEATURES, ScoreExplanation, explain_scores
from learners.inputs import MAX_TIME, MAX_WEIGHT
from learners.kernel_warmup import REHEARSALS, warm, warm_metrics
from learners.learner import Learner, check_state
from learners.metrics import MAX_NOTE, MAX_WRITER, text_fault
from learners.model import FitJob
from learners.numerics import length
from learners.records import (
    BatchOutcome,
    FitResult,
    LabelledBatch,
    LateColumns,
    Note,
    Rollback,
    Segment,
    ServedBatch,
    SettingsChange,
    Status,
    join_batches,
    join_outcomes,
    merge_batches,
    scatter_rows,
    select_rows,
    slice_rows,
)
from learners.scorer import ABSENT_AFTER, LearnerView, Predictions, Scorer
from learners.settings import ABSENT, InvalidInput, Parameters, Problem, length_mismatch, param, pointer, required, show
from learners.threshold_review import CostChoice, ThresholdReview

__all__ = [
    "ABSENT",
    "ABSENT_AFTER",
    "CHANGEABLE",
    "FEATURE_KINDS",
    "MAX_FEATURES",
    "MAX_NOTE",
    "MAX_SOURCE_NAME",
    "MAX_TIME",
    "MAX_WEIGHT",
    "MAX_WRITER",
    "REHEARSALS",
    "BatchOutcome",
    "ComparedBatch",
    "Config",
    "ConfigWarning",
    "CostChoice",
    "Decision",
    "FitJob",
    "FitResult",
    "GroupComparison",
    "GroupComparisonView",
    "GroupConfig",
    "InvalidInput",
    "LabelledBatch",
    "LateColumns",
    "Learner",
    "LearnerSettings",
    "LearnerView",
    "Note",
    "Parameters",
    "Predictions",
    "Problem",
    "Rollback",
    "ScoreExplanation",
    "Scorer",
    "Segment",
    "ServedBatch",
    "SettingsChange",
    "Sources",
    "Status",
    "ThresholdReview",
    "algorithms",
    "check_state",
    "create",
    "explain_scores",
    "join_batches",
    "join_outcomes",
    "length",
    "length_mismatch",
    "merge_batches",
    "param",
    "pointer",
    "required",
    "restore",
    "scatter_rows",
    "select_rows",
    "show",
    "slice_rows",
    "text_fault",
    "warm",
    "warm_metrics",
]

_SETTINGS = frozenset(Config.__annotations__) - {"algorithm", "params"}
_SHORT_FORMS = {
    "features": "kind",
    "scaling": "kind",
    "embedding": "kind",
    "calibration": "kind",
    "threshold": "objective",
}


def create(algorithm: str = DEFAULT_ALGORITHM, *, dim: int | None = None, **settings: Any) -> Learner:
    """Create a learner.

    `dim` is short for `features={"kind": "dense", "dim": dim}`. The settings are those of the HTTP API: `features`,
    `scaling`, `embedding`, `calibration`, `threshold`, `figures`, `late`, `window`, `window_seconds`, `remembered_ids`,
    `refit_every`, `refit_window`, `seed` and `precision` ("float32": large arrays in half the memory). For the first
    four a string stands for `{"kind": ...}`, for a threshold for `{"objective": ...}`. Any other keyword is a parameter
    of the algorithm. Raises `InvalidInput`, a ValueError that lists every problem. `config.warnings()` of the learner
    lists the settings that rank badly on some streams.
    """
    values: dict[str, Any] = {name: settings.pop(name) for name in list(settings) if name in _SETTINGS}
    if dim is not None and "features" in values:
        raise InvalidInput([Problem("/features", "is given besides dim; expected one of them", "conflict")])
    if dim is not None:
        values["features"] = {"kind": "dense", "dim": dim}
    for name, key in _SHORT_FORMS.items():
        if isinstance(values.get(name), str):
            values[name] = {key: values[name]}
    config = Config.of({"algorithm": algorithm, "params": settings, **values})
    if problems := config.objections(new=True):
        raise InvalidInput(problems)
    return Learner(config)


def restore(config: dict[str, Any], state: dict[str, Any]) -> Learner:
    """Restore a learner from `learner.config.to_json()` and `learner.state()`. Raises `InvalidInput`.

    Accepts a readable configuration that `create` would refuse, because a learner has used it.
    """
    return Learner.restored(Config.of_stored(config), state)
