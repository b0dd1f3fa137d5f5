"""Review of a learner's threshold: what other thresholds would have done with the labelled events of the window.

    points     figures at many thresholds
    preview    what other settings would choose now, and what they would have decided

The window has the probability of each event from before its label was learnt. So the figures of a threshold are the
values that it would have reached if it had been in force throughout.

An objective moves its threshold. So a preview replays the window in order: each event is decided, then its label is
learnt. The replay starts with what the threshold's state has learnt by now, as a change of the settings does. This
state has seen the window, in histograms of 256 bins, so the preview may be slightly better than what follows. A start
from nothing would be worse by far: a young threshold is cautious, and learns for hundreds of labels. A budget is spent
by its plan where the window begins, so that a part of a day gets its part of the alerts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from learners.config import Config
from learners.decision import BinaryDecision
from learners.decisions import Threshold
from learners.learner import Learner
from learners.metrics import (
    BinaryMetrics,
    DecisionFigures,
    ErrorCosts,
    WindowColumns,
    choose_thresholds,
    confusions_at,
)
from learners.numerics import Counts
from learners.scorer import live_threshold

__all__ = ["CostChoice", "ThresholdReview"]

Document = dict[str, Any]

_EMPTY = "no labelled events in the window"


class CostChoice(NamedTuple):
    """What errors cost in a review; None: what the settings of the threshold say."""

    false_positive: float | None = None
    false_negative: float | None = None


@dataclass(frozen=True)
class ThresholdReview:
    """What a review reads, copied at one moment."""

    config: Config
    columns: WindowColumns
    decision: BinaryDecision
    threshold: float | None  # in force; None while the learner is not ready
    not_ready: str | None
    stream: Document  # statistics of the stream in the window
    reasons: dict[str, str]  # why some of these are undefined, by JSON pointer

    @classmethod
    def of(cls, learner: Learner) -> ThresholdReview:
        """Copy what a review of a learner of two classes reads. O(window)."""
        view = learner.view()
        assert isinstance(learner.metrics, BinaryMetrics)
        assert isinstance(view.scorer.decision, BinaryDecision)
        stream, reasons = view.figures.stats.figures("window")
        decision = view.scorer.decision.frozen()
        return cls(learner.config, learner.metrics.columns(), decision, view.threshold, view.not_ready, stream, reasons)

    @property
    def settings(self) -> Threshold:
        """The present settings of the threshold."""
        assert self.config.threshold is not None
        return self.config.threshold

    def points(self, most: int, costs: CostChoice) -> Document:
        """Return the figures at up to `most` thresholds, at the live one, and of what was decided, as JSON.

        O(n log n + most) for n events of the window. Raises ValueError for fewer than two thresholds.
        """
        if most < 2:
            raise ValueError(f"points is {most}; expected at least 2")
        document, figures = self._document(costs, self.settings)
        probabilities, labels = self.columns.probabilities, self.columns.labels
        negatives, positives = np.sort(probabilities[labels == 0]), np.sort(probabilities[labels == 1])
        thresholds = choose_thresholds(negatives, positives, most)
        points = live = None
        if len(thresholds):
            table = figures.table(confusions_at(negatives, positives, thresholds), "points")
            points = {"threshold": thresholds.tolist(), **table}
        else:
            figures.undefined["/points"] = _EMPTY
        if self.threshold is None:
            figures.undefined.update(dict.fromkeys(("/threshold", "/live"), str(self.not_ready)))
        elif self.settings.field is not None:
            figures.undefined["/live"] = _by_field(self.settings)
        else:
            # no alert even for a probability of 1
            alerts_blocked = self.decision.depends_on_order and self.threshold == 1.0
            level = np.array([np.inf if alerts_blocked else self.threshold])
            live = figures.of(confusions_at(negatives, positives, level)[0].tolist(), "live")
        return {
            "threshold": self.threshold,
            **document,
            "points": points,
            "live": live,
            "actual": figures.of(_confusion(labels, self.columns.decisions), "actual"),
            "undefined": figures.undefined,
        }

    def preview(self, changed: Config, costs: CostChoice) -> Document:
        """Return what the threshold of `changed` would be, and what it would have decided, as JSON.

        O(events), and O(256) for each search.
        """
        settings = changed.threshold
        assert settings is not None
        document, figures = self._document(costs, settings if settings.objective == "cost" else self.settings)
        decision = self.decision.frozen()
        if settings != self.settings:
            decision.change(settings)
        threshold = live_threshold(settings, decision.threshold, self.not_ready)
        if threshold is None:
            figures.undefined["/threshold"] = str(self.not_ready)
        preview = extent = None
        if settings.field is not None:
            figures.undefined.update(dict.fromkeys(("/preview", "/threshold_range"), _by_field(settings)))
        else:
            columns = self.columns
            y = np.where(columns.labels == 1, 1.0, -1.0)
            rate = self.stream["events_per_second"]
            event_rate = math.nan if rate is None else rate
            thresholds, decisions = decision.replay(columns.probabilities, y, columns.clocks, event_rate)
            preview = figures.of(_confusion(columns.labels, decisions), "preview")
            if len(thresholds):
                extent = [float(thresholds.min()), float(thresholds.max())]
            else:
                figures.undefined["/threshold_range"] = _EMPTY
        return {
            "settings": settings.to_json(),
            "threshold": threshold,
            **document,
            "preview": preview,
            "threshold_range": extent,
            "actual": figures.of(_confusion(self.columns.labels, self.columns.decisions), "actual"),
            "undefined": figures.undefined,
        }

    def _document(self, choice: CostChoice, settings: Threshold) -> tuple[Document, DecisionFigures]:
        """Describe the window and the costs; return what computes the figures, too."""
        labels = self.columns.labels
        positives = int(np.count_nonzero(labels))
        stream_metrics = ("label_coverage", "events_per_second")
        undefined = {at: why for at, why in self.reasons.items() if at.rpartition("/")[2] in stream_metrics}
        reasons = {"alerts_per_day": self.reasons.get("/window/events_per_second", _EMPTY)}
        false_positive, false_negative = choice
        costs = None
        if settings.field is not None and false_negative is None:
            undefined["/costs"] = reasons["cost"] = (
                f"the cost of a missed positive depends on {settings.field!r}, and the window has no values of features"
            )
        else:
            costs = ErrorCosts(
                settings.false_positive if false_positive is None else false_positive,
                settings.false_negative if false_negative is None else false_negative,
            )
        window = {
            "events": len(labels),
            "class_counts": {"negative": len(labels) - positives, "positive": positives},
            **{name: self.stream[name] for name in stream_metrics},
        }
        document = {"window": window, "costs": None if costs is None else costs._asdict()}
        return document, DecisionFigures(self.stream["events_per_second"], costs, reasons, undefined)


def _confusion(labels: NDArray[np.int8], decisions: Counts | NDArray[np.int8]) -> list[int]:
    """Count tn, fp, fn, tp."""
    cells: list[int] = np.bincount(2 * labels.astype(np.int64) + decisions, minlength=4).tolist()
    return cells


def _by_field(settings: Threshold) -> str:
    return f"decisions depend on {settings.field!r}, and the window has no values of features"
