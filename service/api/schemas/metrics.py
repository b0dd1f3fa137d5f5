"""Documents of live metrics, their history and alarms."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from service.api.schemas.document import Document, Moment, PerSecond, Seconds
from service.api.schemas.events import ClassCounts

__all__ = [
    "Alarm",
    "Alarms",
    "Annotation",
    "Annotations",
    "Confusion",
    "FigureSettings",
    "History",
    "LearnerFigureList",
    "LearnerFigures",
    "LearnerInCreation",
    "Metrics",
    "OrdinalMetrics",
    "RankFigures",
    "Segments",
    "ServedFigures",
    "SmallWindow",
    "TotalFigures",
    "TotalRankFigures",
    "WindowFigures",
    "WindowRankFigures",
]


class AlarmChange(Document):
    """When an alarm was raised, resolved or reopened."""

    events: int
    clock: Moment | None


class AlarmSignature(Document):
    """Who acknowledged an alarm since it was raised, or reopened."""

    time: Moment
    by: str | None = Field(description="as they call themselves")
    key: str | None = Field(description="name of their key; null if the service has no keys")
    note: str


class Alarm(Document):
    """A detected change, and its state."""

    number: int = Field(description="counts the alarms of the learner from 0")
    kind: Literal["auc", "scores", "positives", "missing", "new_categories", "contradictions", "out_of_range"] = Field(
        description="a fall of the AUC, another distribution of served scores, positive labels that stopped arriving; "
        "or fields with more missing values, more new categories, more values that contradict their kinds, or more "
        "numbers out of their ranges"
    )
    events: int = Field(description="labelled events by then")
    clock: Moment | None
    before: float | None
    after: float | None
    field: str | None = Field(description="of several fields the one that got worse most; null for other kinds")
    fields: int = Field(description="how many fields got worse; 0 for other kinds")
    state: Literal["open", "acknowledged", "resolved", "reopened", "unknown"] = Field(
        description="resolved: the figure is back; reopened: it went away again; unknown: of an earlier release"
    )
    reopened: int = Field(description="how often")
    changed: AlarmChange = Field(description="the last time that it was raised, resolved or reopened")
    acknowledged: AlarmSignature | None


class SmallWindow(Document):
    """Some of the window's figures: of two classes all but `mae` and `accuracy`, of an ordinal learner those."""

    size: int
    events: int
    auc: float | None = None
    auc_interval: list[float] | None = None
    f1: float | None = None
    precision: float | None = None
    recall: float | None = None
    alert_rate: float | None = None
    mae: float | None = None
    accuracy: float | None = None
    label_delay_median: Seconds | None
    label_coverage: float | None
    events_per_second: PerSecond | None = Field(description="by the learner's clock")


class LearnerFigures(Document):
    """A learner's small live metrics, at most a second old."""

    name: str
    algorithm: str
    position: int
    events: int = Field(description="labelled, learnt")
    served: int = Field(description="events that were scored with an id")
    class_counts: dict[str, int]
    clock: Moment | None
    threshold: float | None
    window: SmallWindow
    trend: list[float | None] = Field(
        description="the AUC (of an ordinal learner the MAE) at the history's last points"
    )
    alarms: dict[str, int] = Field(description="drift alarms so far, by kind")
    last_alarm: Alarm | None
    open_alarms: int = Field(description="alarms that are open and not acknowledged")
    undefined: dict[str, str] = Field(description="JSON pointer of each null figure of the window -> why")
    ready: bool
    not_ready: str | None
    busy: bool = Field(description="events are being learnt, or it changes otherwise")
    stale_seconds: Seconds = Field(
        description="how long the store has not been reached, in steps: 0, 5, 10, 20 and so on"
    )
    failed: str | None


class LearnerInCreation(Document):
    """A learner that was asked for and is not there yet."""

    name: str
    seconds: Seconds = Field(description="since it was asked for")


class LearnerFigureList(Document):
    """The small live metrics of every learner of this node that is in memory, by name."""

    learners: list[LearnerFigures]
    asleep: list[str] = Field(description="names of learners evicted to the store; this request does not load them")
    creating: list[LearnerInCreation] = Field(description="that are made one after another, in this order")
    unavailable: dict[str, str] = Field(description="learners that cannot be recovered, and why")
    cursor: str | None = Field(description="for the next page; null after the last")
    loaded: bool = Field(description="whether this node knows what the store holds; false while it starts")
    trouble: str | None = Field(description="`detail` of this node's health: what is wrong with it or its store")


class Confusion(Document):
    """Decisions against labels."""

    tp: int
    fp: int
    tn: int
    fn: int


class _Figures(Document):
    """Null where undefined, with the reason under `undefined`."""

    events: int
    class_counts: ClassCounts
    auc: float | None
    auc_interval: list[float] | None = Field(description="low and high end of DeLong's 95 % interval")
    average_precision: float | None
    partial_auc: float | None = Field(description="up to the FPR max_fpr, standardised (McClish): 0.5 is chance")
    ks: float | None = Field(description="largest TPR - FPR")
    recall_at_fpr: float | None = Field(description="largest recall at an FPR of at most max_fpr")
    precision_at_k: float | None = Field(description="among the k highest scores")
    f1: float | None
    fbeta: float | None
    precision: float | None
    recall: float | None
    fpr: float | None
    accuracy: float | None
    mcc: float | None = Field(description="Matthews correlation coefficient")
    alert_rate: float | None
    brier: float | None
    log_loss: float | None
    calibration_error: float | None = Field(description="expected calibration error over 15 equal-width bins")
    label_delay_median: Seconds | None = Field(description="seconds from an event to its label")
    label_delay_p90: Seconds | None
    label_coverage: float | None = Field(description="share of served events whose label has arrived")
    events_per_second: PerSecond | None = Field(description="by the learner's clock")
    confusion: Confusion


class WindowFigures(_Figures):
    """Over the last `size` labelled events, and at most `seconds` of the learner's clock: exact."""

    size: int
    seconds: Seconds | None


class TotalFigures(_Figures):
    """Since the start; what follows from the order of scores is from a sketch, with its largest possible error."""

    auc_error: float | None
    average_precision_error: float | None
    partial_auc_error: float | None
    ks_error: float | None
    recall_at_fpr_error: float | None
    precision_at_k_error: float | None
    label_delay_error: float | None = Field(description="relative, of both quantiles")


class FigureSettings(Document):
    """What the figures are computed with, in both scopes; PATCH changes it."""

    beta: float = Field(description="of fbeta")
    max_fpr: float = Field(description="of partial_auc and recall_at_fpr")
    k: int = Field(description="of precision_at_k")
    segments: list[str] = Field(description="fields whose values have figures of their own")


class ServedFigures(Document):
    """Events that were scored with an id."""

    events: int
    labelled: int = Field(description="whose label has arrived; the others still await theirs, or were dropped")
    alert_rate: float | None


class Metrics(Document):
    """The live metrics: all prequential, every event scored and decided before its label was learnt."""

    name: str
    position: int
    threshold: float | None = Field(description="that decides now; null while the learner is not ready")
    events: int
    class_counts: ClassCounts
    duplicates: int
    corrections: int = Field(description="labels that were replaced by others")
    assumed: int = Field(description="unlabelled events treated as negative after label_ttl")
    served: ServedFigures
    clock: Moment | None = Field(description="the largest time of any event or label, seconds since the epoch")
    settings: FigureSettings
    window: WindowFigures
    since_start: TotalFigures
    undefined: dict[str, str] = Field(description="JSON pointer of each null figure -> why")


class RankFigures(Document):
    """Predicted against true ranks; null where undefined."""

    class_counts: dict[str, int]
    mae: float | None = Field(description="mean absolute error, in ranks")
    mse: float | None = Field(description="mean squared error")
    accuracy: float | None
    confusion: list[list[int]] = Field(description="rows: the true rank, columns: the predicted one")
    label_delay_median: Seconds | None
    label_delay_p90: Seconds | None
    label_coverage: float | None
    events_per_second: PerSecond | None


class WindowRankFigures(RankFigures):
    """Over the last `size` labelled events, and at most `seconds` of the learner's clock."""

    size: int
    seconds: Seconds | None
    events: int


class TotalRankFigures(RankFigures):
    """Since the start."""

    label_delay_error: float | None = Field(description="relative, of both quantiles")


class OrdinalMetrics(Document):
    """The live metrics of an ordinal learner, all prequential."""

    name: str
    position: int
    events: int
    class_counts: dict[str, int]
    duplicates: int
    corrections: int
    served: int
    clock: Moment | None
    window: WindowRankFigures
    since_start: TotalRankFigures
    undefined: dict[str, str]


class History(Document):
    """Metrics of the window, and some since the start, over the stream: thinned with age, bounded in all.

    A point is made whenever so many events have been served with an id or learnt with their label, by the sum of both.
    """

    by: Literal["clock", "events"] = Field(description="the axis of from, to and step")
    columns: list[str] = Field(
        description="events (learnt with their label), clock, served (with an id), the figures of the window, and as"
        " since_start_... what some were since the start"
    )
    points: list[dict[str, float | None]] = Field(description="each with all the columns, ascending")


class Alarms(Document):
    """The last alarms of a learner."""

    counts: dict[str, int] = Field(description="so far, by kind")
    open: dict[str, int] = Field(description="open and not acknowledged, by kind")
    alarms: list[Alarm]
    cursor: int | None = Field(description="for the next page; null after the last")


class Annotation(Document):
    """A note of a person, or a change of the learner, at its place on the time line."""

    number: int = Field(description="ascending")
    kind: Literal["note", "settings", "restore", "fit"]
    events: int = Field(description="labelled events by then")
    clock: Moment | None = Field(description="the learner's clock by then")
    time: Moment | None = Field(description="of the node, when it was noted; null for changes")
    by: str | None = Field(description="who noted it, as they call themselves")
    key: str | None = Field(description="name of their key")
    text: str
    data: dict[str, Any] = Field(
        description="the changed settings; `position` of the snapshot; labelled `events` that a fit had"
    )


class Annotations(Document):
    """The last notes and changes of a learner."""

    annotations: list[Annotation]
    cursor: int | None = Field(description="for the next page; null after the last")


class SegmentFigures(Document):
    """Metrics of the labelled events of a segment, each with its 95 % interval; null where undefined."""

    events: int
    class_counts: ClassCounts
    alerts: int = Field(description="events that were decided positive, before the label was learnt")
    auc: float | None
    auc_interval: list[float] | None
    precision: float | None
    precision_interval: list[float] | None
    label_rate: float | None = Field(description="share of positive labels")
    label_rate_interval: list[float] | None
    alert_rate: float | None
    alert_rate_interval: list[float] | None


class ValueFigures(SegmentFigures):
    """Those of one value."""

    value: str = Field(description="as text: 17 and 17.0 are `17`")


class Segments(Document):
    """The window by the values of a field."""

    name: str
    position: int
    by: str
    minimum_positives: int = Field(description="AUC, precision and label rate need so many")
    segments: list[ValueFigures] = Field(description="the largest first")
    other: SegmentFigures = Field(description="of all other values, also lists and values over 64 characters")
    missing: SegmentFigures = Field(description="of events without a value")
    all: SegmentFigures = Field(description="of the whole window")
    pooled_values: int = Field(description="values of `other` that a larger `limit` would show")
    unrecorded: int = Field(description="events of the window from before the field was declared")
    undefined: dict[str, str] = Field(description="JSON pointer of each null figure -> why")
