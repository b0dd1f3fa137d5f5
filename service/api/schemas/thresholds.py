"""Documents of thresholds that are tried on the window."""

from __future__ import annotations

from pydantic import Field

from service.api.schemas.document import Document, PerSecond
from service.api.schemas.events import ClassCounts
from service.api.schemas.metrics import Confusion
from service.api.schemas.settings import ThresholdPart

__all__ = ["ThresholdPoints", "ThresholdPreview"]

Interval = list[float] | None


class TrialFigures(Document):
    """Metrics of decisions on the events of the window, each with its 95 % interval; null where undefined."""

    precision: float | None
    precision_interval: Interval
    recall: float | None
    recall_interval: Interval
    f1: float | None
    f1_interval: Interval
    fpr: float | None
    fpr_interval: Interval
    alert_rate: float | None
    alert_rate_interval: Interval
    alerts_per_day: float | None = Field(description="of labelled events, by the learner's clock")
    alerts_per_day_interval: Interval
    cost: float | None = Field(description="of all errors of the window")
    cost_interval: Interval
    confusion: Confusion


class TrialConfusions(Document):
    """Decisions against labels, at each threshold."""

    tp: list[int]
    fp: list[int]
    tn: list[int]
    fn: list[int]


class TrialFigureLists(Document):
    """The same at each threshold; a list is null if the figure is undefined."""

    threshold: list[float] = Field(description="ascending")
    precision: list[float] | None
    precision_interval: list[list[float]] | None
    recall: list[float] | None
    recall_interval: list[list[float]] | None
    f1: list[float] | None
    f1_interval: list[list[float]] | None
    fpr: list[float] | None
    fpr_interval: list[list[float]] | None
    alert_rate: list[float] | None
    alert_rate_interval: list[list[float]] | None
    alerts_per_day: list[float] | None
    alerts_per_day_interval: list[list[float]] | None
    cost: list[float] | None
    cost_interval: list[list[float]] | None
    confusion: TrialConfusions


class TrialWindow(Document):
    """The labelled events that thresholds are tried on."""

    events: int
    class_counts: ClassCounts
    label_coverage: float | None = Field(description="share of served events whose label has arrived")
    events_per_second: PerSecond | None = Field(description="labelled, by the learner's clock")


class TrialCosts(Document):
    """What an error costs."""

    false_positive: float
    false_negative: float


class _ThresholdTrial(Document):
    """What the replies have in common."""

    name: str
    position: int
    window: TrialWindow
    costs: TrialCosts | None = Field(description="null if they depend on a feature")
    actual: TrialFigures = Field(description="of the decisions that were made before the labels were learnt")
    undefined: dict[str, str] = Field(description="JSON pointer of each null figure -> why")


class ThresholdPoints(_ThresholdTrial):
    """What thresholds would have done with the labelled events of the window."""

    threshold: float | None = Field(description="that decides now; null while the learner is not ready")
    points: TrialFigureLists | None
    live: TrialFigures | None = Field(description="of the threshold that decides now, had it been in force throughout")


class ThresholdPreview(_ThresholdTrial):
    """What other settings of the threshold would choose, and would have decided."""

    settings: ThresholdPart = Field(description="of the threshold, after the change")
    threshold: float | None = Field(
        description="that the change would put in force; null while the learner is not ready"
    )
    preview: TrialFigures | None = Field(description="of the window's events, decided and learnt again in order")
    threshold_range: list[float] | None = Field(description="lowest and highest threshold meanwhile")
