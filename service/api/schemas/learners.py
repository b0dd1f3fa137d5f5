"""Documents of learners, their settings, weights and snapshots."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from service.api.schemas.document import Bytes, Document, IsoTime, Moment, Seconds
from service.api.schemas.settings import (
    AlgorithmParams,
    CalibrationPart,
    EmbeddingPart,
    FeaturesPart,
    LatePart,
    MetricsPart,
    ScalingPart,
    ThresholdPart,
)

__all__ = [
    "CloneBody",
    "ConfigWarningDocument",
    "Digest",
    "FieldDocument",
    "FieldList",
    "FitDocument",
    "LearnerChange",
    "LearnerConfig",
    "LearnerDocument",
    "LearnerList",
    "MemberDocument",
    "PendingDocument",
    "RestoreReply",
    "SnapshotDocument",
    "SnapshotList",
    "Weight",
    "Weights",
]


class LearnerConfig(Document):
    """What a learner is created with. See `/v1/algorithms` for the settings of each part."""

    algorithm: str | None = Field(None, description="null: auto")
    params: AlgorithmParams | None = Field(None, description="of the algorithm")
    features: FeaturesPart = Field(description="kind: dense, sparse, named or table, with its settings")
    scaling: ScalingPart | None = Field(None, description="kind: none, unit, standard or maxabs; clip")
    embedding: EmbeddingPart | None = Field(None, description="kind: none, nystroem or fourier, with its settings")
    calibration: CalibrationPart | None = None
    threshold: ThresholdPart | None = Field(None, description="objective, with its settings")
    figures: MetricsPart | None = Field(None, description="beta, max_fpr and k of the live metrics")
    late: LatePart | None = Field(None, description="label_ttl, unlabelled, max_events, max_bytes, keep_features")
    window: int | None = Field(None, ge=1, le=1_000_000, description="labelled events the live metrics look back on")
    window_seconds: Seconds | None = Field(
        None, gt=0, le=1e10, description="seconds of the learner's clock that they look back on at most"
    )
    remembered_ids: int | None = Field(None, ge=1, le=2**26, description="event ids kept to tell duplicates")
    refit_every: int | None = Field(None, ge=1, le=10**9, description="batch algorithms: labelled events between fits")
    refit_window: int | None = Field(None, ge=2, le=1_000_000, description="batch algorithms: events retained for fits")
    seed: int | None = Field(None, ge=0, le=2**53)
    precision: Literal["float64", "float32"] | None = Field(
        None, description="of the large arrays of the state; float32: half the memory"
    )


class LearnerChange(Document):
    """Settings that may change while the learner lives; what is left out stays."""

    threshold: ThresholdPart | None = None
    figures: MetricsPart | None = None
    late: LatePart | None = None


class CloneBody(Document):
    """What a copy is to be called."""

    to: str = Field(description="the new learner's name: 1 to 100 of letters, digits, '.', '_', '-'")


class Weight(Document):
    """One weight of a linear learner."""

    name: str = Field(description="of the feature; `column 4711` where a hashed one's is not known yet")
    weight: float | None = Field(description="of the feature as scored, after scaling; null where it has overflowed")


class Weights(Document):
    """What a linear learner scores by: intercept, and a weight for each feature as scored, after scaling."""

    position: int
    intercept: float | None = Field(description="null where there are no weights")
    weights: list[Weight] = Field(description="largest absolute value first")
    total: int = Field(description="how many there are")
    unnamed: int = Field(description="of those given: whose names this node knows once it meets events that have them")
    reason: str | None = Field(description="why there are none: an embedding, several planes, nothing fitted yet")


class FieldDocument(Document):
    """What a learner remembers of one field of named events."""

    name: str
    kind: Literal["unknown", "number", "category", "text", "list", "mixed"] = Field(
        description="declared, or set by the first value; mixed once many values contradict it"
    )
    declared: bool
    values: int = Field(description="events with a value")
    missing: int = Field(description="events without a value")
    missing_texts: int = Field(description="of these: a number's place had a text such as -, NULL or NA")
    numbers: int = Field(description="values sent as numbers")
    numbers_as_text: int = Field(description="values sent as texts that spell numbers")
    booleans: int
    texts: int
    lists: int
    contradictions: int = Field(description="values that contradict the kind")
    new_categories: int = Field(description="values that were new")
    out_of_range: int = Field(description="numbers beyond 4 times, or below a quarter of, the sizes in the range")
    smallest: float | None = Field(description="number, or logarithm of one declared under `log`; null: none yet")
    largest: float | None
    low: float | None = Field(description="the robust range: about the 1 % quantile of the numbers that are not 0,")
    high: float | None = Field(description="and the 99 % quantile; null before 256 of them")
    last: int | None = Field(description="ordinal of the last event that had a value")
    remarks: list[Literal["constant", "unique", "stopped", "rounded"]] = Field(
        description="constant: 1,000 values, all the same, or no change in the last 1,000 events or more, in which 20 "
        "were expected; unique: nine of ten of the last 1,000 values or more were new, as of an id; stopped: none of "
        "the last 1,000 events or more has a value, of which 100 were expected; rounded: numbers beyond 2^53, which "
        "have lost their last digits if they are ids"
    )


class FieldList(Document):
    """The fields of named events: declared ones first, then the others as they appeared."""

    position: int
    events: int = Field(description="learnt since the first that had a field")
    fields: list[FieldDocument]
    cursor: int | None = Field(description="for the next page; null after the last")
    absent: list[str] = Field(description="declared fields that none of the first 1,000 or more events had")
    omitted: bool = Field(description="no further fields are remembered: values of others are learnt, not counted")
    reason: str | None = Field(description="why there are none: the features have no names, or are declared in full")


class PendingDocument(Document):
    """Served events that wait for their labels, or for corrections, in the store."""

    events: int
    bytes: Bytes
    expired: int = Field(description="that were forgotten after label_ttl, ever")
    evicted: int = Field(description="that have been forgotten because there were too many, ever")


class AlertBudgetDocument(Document):
    """Alerts of a budget in the unit of time that the learner's clock is in."""

    alerts: int = Field(description="so far, of events that were served with an id or learnt")
    limit: float
    resets: Moment | None = Field(description="seconds since the epoch; null if no event had a time")
    resets_iso: IsoTime | None


class SnapshotDocument(Document):
    """A retained snapshot."""

    position: int
    size: Bytes = Field(description="bytes")
    time: Moment = Field(description="seconds since the epoch")
    time_iso: IsoTime | None


class SnapshotList(Document):
    """Newest first."""

    snapshots: list[SnapshotDocument]
    cursor: int | None = Field(description="for the next page; null after the last")


class FitDocument(Document):
    """How far the fits of a learner are: of its embedding, or of the model of a batch algorithm."""

    events: int = Field(description="that had been learnt when the last fit took its data; 0: none yet")
    running: bool = Field(description="a fit is asked for, being made, or not in the log yet")
    waiting: bool = Field(description="it waits for other learners' fits: a node makes one in the background at a time")
    failed: str | None = Field(description="why the last one failed; the model before it goes on serving")


class ConfigWarningDocument(Document):
    """Why the configuration may disappoint, and what to choose instead."""

    code: Literal["few-positives", "text", "moving-base-rate"]
    pointer: str = Field(description="JSON pointer to the setting")
    detail: str


class MemberDocument(Document):
    """One model of an ensemble, or last its combination."""

    name: str
    kind: str = Field(description="of model, in words")
    weight: float | None = Field(
        description="what one standard deviation of its score adds to the log-odds; null: the combination"
    )
    auc: float | None = Field(description="of the last 20,000 to 40,000 labelled events; null: one class is missing")
    average_precision: float | None = Field(description="of the same events")
    events: int = Field(description="labelled events that both are of")


class LearnerDocument(Document):
    """A learner as it stands."""

    name: str
    birth: str = Field(description="another one for each learner that is created, also under the same name")
    config: LearnerConfig = Field(description="with every default written out")
    warnings: list[ConfigWarningDocument] = Field(description="settings that rank badly on some streams")
    position: int
    events: int
    class_counts: dict[str, int] = Field(description="by class: negative and positive, or the ranks")
    ready: bool
    not_ready: str | None = Field(description="why it is not ready")
    threshold: float | None = Field(
        description="of the probability, as it is served now (where a miss costs 1); null while the learner is not "
        "ready, unless it is fixed, and for an ordinal learner"
    )
    alert_budget: AlertBudgetDocument | None = Field(description="null without a budget of alerts per unit of time")
    fit: FitDocument | None = Field(description="null for an algorithm that learns from each event as it is")
    members: list[MemberDocument] | None = Field(description="models of an ensemble; null for one model")
    columns: int = Field(description="feature columns that have a meaning so far")
    absent_fields: list[str] = Field(description="declared fields that none of the first 1,000 or more events had")
    state_bytes: Bytes = Field(description="of memory; grows with the columns met, windows and remembered ids")
    sources: dict[str, int] = Field(description="the number of the next new event of each source")
    queued_events: int
    snapshot: SnapshotDocument | None = Field(description="the newest")
    pending: PendingDocument | None = Field(description="as this node last saw it; zeros before any was served")
    stale_seconds: Seconds
    failed: str | None = Field(description="why it cannot apply its log, if it cannot")


class LearnerList(Document):
    """Every learner of this node, by name."""

    learners: list[LearnerDocument]
    asleep: list[str] = Field(description="names of learners evicted to the store; they are loaded when used")
    unavailable: dict[str, str] = Field(description="learners that cannot be recovered, and why")
    cursor: str | None = Field(description="for the next page; null after the last")


class Digest(Document):
    """A hash of the whole state at a position: replicas must agree."""

    position: int
    digest: str


class RestoreReply(Document):
    """The learner continues from the snapshot. `position` is that of the roll-back record."""

    position: int
