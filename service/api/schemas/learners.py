"""Documents of learners, their settings, weights and snapshots."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from service.api.schemas.document import Bytes, Document, Moment, Seconds

__all__ = [
    "CloneBody",
    "Digest",
    "FitDocument",
    "LearnerChange",
    "LearnerConfig",
    "LearnerDocument",
    "LearnerList",
    "PendingDocument",
    "Restored",
    "SnapshotDocument",
    "SnapshotList",
    "Weight",
    "Weights",
]


class LearnerConfig(Document):
    """What a learner is created with. See `/v1/algorithms` for the settings of each part."""

    algorithm: str
    params: dict[str, Any] | None = Field(None, description="of the algorithm")
    features: dict[str, Any] = Field(description="kind: dense, sparse, named or table, with its settings")
    scaling: dict[str, Any] | None = Field(None, description="kind: none, unit, standard or maxabs; clip")
    embedding: dict[str, Any] | None = Field(None, description="kind: none, nystroem or fourier, with its settings")
    calibration: dict[str, Any] | None = None
    threshold: dict[str, Any] | None = Field(None, description="objective, with its settings")
    figures: dict[str, Any] | None = Field(None, description="beta, max_fpr and k of the live figures")
    late: dict[str, Any] | None = Field(None, description="label_ttl, unlabelled, max_events, max_bytes")
    window: int | None = Field(None, ge=1, le=1_000_000, description="labelled events the live figures look back on")
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

    threshold: dict[str, Any] | None = None
    figures: dict[str, Any] | None = None
    late: dict[str, Any] | None = None


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


class PendingDocument(Document):
    """Served events that wait for their labels, or for corrections, in the store."""

    events: int
    bytes: Bytes
    expired: int = Field(description="that were forgotten after label_ttl, ever")
    evicted: int = Field(description="that have been forgotten because there were too many, ever")


class SnapshotDocument(Document):
    """A retained snapshot."""

    position: int
    size: Bytes = Field(description="bytes")
    time: Moment = Field(description="seconds since the epoch")


class SnapshotList(Document):
    """Newest first."""

    snapshots: list[SnapshotDocument]


class FitDocument(Document):
    """How far the fits of a learner are: of its embedding, or of the model of a batch algorithm."""

    events: int = Field(description="that had been learnt when the last fit took its data; 0: none yet")
    running: bool = Field(description="a fit is asked for, being made, or not in the log yet")
    waiting: bool = Field(description="it waits for other learners' fits: a node makes one in the background at a time")
    failed: str | None = Field(description="why the last one failed; the model before it goes on serving")


class LearnerDocument(Document):
    """A learner as it stands."""

    name: str
    config: dict[str, Any] = Field(description="with every default written out")
    position: int
    events: int
    class_counts: dict[str, int] = Field(description="by class: negative and positive, or the ranks")
    ready: bool
    not_ready: str | None = Field(description="why it is not ready")
    threshold: float | None = Field(
        description="of the probability, as it is served now (where a miss costs 1); null while the learner is not "
        "ready, unless it is fixed, and for an ordinal learner"
    )
    fit: FitDocument | None = Field(description="null for an algorithm that learns from each event as it is")
    columns: int = Field(description="feature columns that have a meaning so far")
    state_bytes: Bytes = Field(description="of memory; grows with the columns met, windows and remembered ids")
    sources: dict[str, int] = Field(description="the number of the next new event of each source")
    queued_events: int
    snapshot: SnapshotDocument | None = Field(description="the newest")
    pending: PendingDocument | None = Field(description="as this node last saw it; zeros before any was served")
    stale_seconds: Seconds
    failed: str | None = Field(description="why it cannot move on, if it cannot")


class LearnerList(Document):
    """Every learner of this node, by name."""

    learners: list[LearnerDocument]
    asleep: list[str] = Field(description="names of learners evicted to the store; they are loaded when used")
    unavailable: dict[str, str] = Field(description="learners that cannot be recovered, and why")


class Digest(Document):
    """A hash of the whole state at a position: replicas must agree."""

    position: int
    digest: str


class Restored(Document):
    """The learner goes on from the snapshot; the roll-back itself stands in the log at `position`."""

    position: int
