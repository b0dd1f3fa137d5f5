"""The documents of the HTTP interface, as the OpenAPI page shows them.

The hot routes decode their bodies themselves (`wire.py`); these models describe them. Settings of a learner are
described by the library (`Parameters.schema`), so that a new algorithm is documented by existing.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["MODELS", "request_body"]


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Event(_Document):
    """One event. Its features are one of `x` (dense), `indices` and `values` (sparse), `features` (named, table)."""

    id: str | int | None = Field(None, description="the event's own name; learning it again changes nothing")
    x: list[float] | None = Field(None, description="dense: as many numbers as the learner's dim")
    indices: list[int] | None = Field(None, description="sparse: ascending columns from 0")
    values: list[float] | None = Field(None, description="sparse: one number per index")
    features: dict[str, Any] | None = Field(
        None, description="named and table: numbers, strings, booleans, lists of tokens, null"
    )


class LabelledEvent(Event):
    """An event whose truth is known."""

    label: int | bool = Field(
        ge=-1, le=64, description="1 or true: positive; 0, -1 or false: negative; of an ordinal learner a rank from 1"
    )
    weight: float | None = Field(None, ge=0, le=1e6, description="multiplies the event's learning step; 1 if absent")
    time: float | None = Field(None, ge=-1e12, le=1e12, description="seconds since the epoch")


class Source(_Document):
    """Where the events come from: event i of the request is number `offset + i` of the source."""

    name: str = Field(min_length=1, max_length=200)
    offset: int = Field(ge=0, le=2**53)


class UpdateBody(_Document):
    """Labelled events, in the order to learn them in."""

    events: list[LabelledEvent] = Field(min_length=1)
    source: Source | None = None


class PredictBody(_Document):
    """Events to score."""

    events: list[Event] = Field(min_length=1)


class ClassCounts(_Document):
    """Labelled events learnt, by class."""

    negative: int
    positive: int


class UpdateResult(_Document):
    """What became of one event; the figures are those from before it was learnt, null for a duplicate."""

    id: str | None
    status: Literal["applied", "duplicate"]
    score: float | None
    probability: float | None
    threshold: float | None
    decision: Literal[0, 1] | None = Field(description="what was decided before: probability >= threshold")


class UpdateReply(_Document):
    """All events are in the log, and learnt."""

    applied: int
    duplicate: int
    position: int = Field(description="of the newest record that was applied")
    class_counts: ClassCounts
    results: list[UpdateResult]


class OrdinalUpdateResult(_Document):
    """What became of one event of an ordinal learner; score and rank are those from before it was learnt."""

    id: str | None
    status: Literal["applied", "duplicate"]
    score: float | None
    rank: int | None


class OrdinalUpdateReply(_Document):
    """All events are in the log, and learnt."""

    applied: int
    duplicate: int
    position: int
    class_counts: dict[str, int] = Field(description="labelled events learnt, by rank")
    results: list[OrdinalUpdateResult]


class Prediction(_Document):
    """What is said of one event."""

    id: str | None
    score: float = Field(description="higher: more likely positive")
    probability: float
    threshold: float
    label: Literal[0, 1] | None = Field(description="probability >= threshold; null while the learner is not ready")


class PredictReply(_Document):
    """Scores at one position of the learner's life."""

    position: int
    ready: bool = Field(description="false until both classes have been seen: scores mean nothing yet")
    stale_seconds: float = Field(description="how long the store has not been reached; 0 while it answers")
    results: list[Prediction]


class OrdinalPrediction(_Document):
    """What an ordinal learner says of one event."""

    id: str | None
    score: float = Field(description="higher: more likely a high rank; also orders events of one rank")
    rank: int | None = Field(description="null while the learner is not ready")


class OrdinalPredictReply(_Document):
    """Ranks at one position of the learner's life."""

    position: int
    ready: bool = Field(description="false until two ranks have been seen")
    stale_seconds: float
    results: list[OrdinalPrediction]


class LearnerConfig(_Document):
    """What a learner is created with. See `/v1/algorithms` for the settings of each part."""

    algorithm: str
    params: dict[str, Any] | None = Field(None, description="of the algorithm")
    features: dict[str, Any] = Field(description="kind: dense, sparse, named or table, with its settings")
    scaling: dict[str, Any] | None = Field(None, description="kind: none, unit, standard or maxabs; clip")
    embedding: dict[str, Any] | None = Field(None, description="kind: none, nystroem or fourier, with its settings")
    calibration: dict[str, Any] | None = None
    threshold: dict[str, Any] | None = None
    window: int | None = Field(None, ge=1, le=1_000_000, description="labelled events the live figures look back on")
    remembered_ids: int | None = Field(None, ge=1, le=2**26, description="event ids kept to tell duplicates")
    refit_every: int | None = Field(None, ge=1, le=10**9, description="batch algorithms: labelled events between fits")
    refit_window: int | None = Field(None, ge=2, le=1_000_000, description="batch algorithms: events retained for fits")
    seed: int | None = Field(None, ge=0, le=2**53)


class SnapshotDocument(_Document):
    """A retained snapshot."""

    position: int
    size: int = Field(description="bytes")
    time: float = Field(description="seconds since the epoch")


class SnapshotList(_Document):
    """Newest first."""

    snapshots: list[SnapshotDocument]


class FitDocument(_Document):
    """How far the fits of a learner are: of its embedding, or of the model of a batch algorithm."""

    events: int = Field(description="that had been learnt when the last fit took its data; 0: none yet")
    running: bool = Field(description="a fit is asked for, being made, or not in the log yet")
    waiting: bool = Field(description="it waits for other learners' fits: a node makes one in the background at a time")
    failed: str | None = Field(description="why the last one failed; the model before it goes on serving")


class LearnerDocument(_Document):
    """A learner as it stands."""

    name: str
    config: dict[str, Any] = Field(description="with every default written out")
    position: int
    events: int
    class_counts: dict[str, int] = Field(description="by class: negative and positive, or the ranks")
    ready: bool
    not_ready: str | None = Field(description="why it is not ready")
    fit: FitDocument | None = Field(description="null for an algorithm that learns from each event as it is")
    columns: int = Field(description="feature columns that have a meaning so far")
    sources: dict[str, int] = Field(description="the number of the next new event of each source")
    queued_events: int
    snapshot: SnapshotDocument | None = Field(description="the newest")
    stale_seconds: float
    failed: str | None = Field(description="why it cannot move on, if it cannot")


class LearnerList(_Document):
    """Every learner of this node, by name."""

    learners: list[LearnerDocument]
    unavailable: dict[str, str] = Field(description="learners that cannot be recovered, and why")


class Digest(_Document):
    """A hash of the whole state at a position: replicas must agree."""

    position: int
    digest: str


class Restored(_Document):
    """The learner goes on from the snapshot; the roll-back itself stands in the log at `position`."""

    position: int


class Confusion(_Document):
    """Decisions against labels."""

    tp: int
    fp: int
    tn: int
    fn: int


class WindowFigures(_Document):
    """Over the last `size` labelled events; null where undefined, with the reason under `undefined`."""

    size: int
    events: int
    class_counts: ClassCounts
    auc: float | None
    f1: float | None
    precision: float | None
    recall: float | None
    accuracy: float | None
    confusion: Confusion


class TotalFigures(_Document):
    """Since the start; AUC from a sketch of fixed size."""

    auc: float | None
    auc_error: float | None = Field(description="the largest possible error of `auc`")
    f1: float | None
    precision: float | None
    recall: float | None
    accuracy: float | None
    confusion: Confusion


class Metrics(_Document):
    """The live figures: all prequential, every event scored and decided before its label was learnt."""

    name: str
    position: int
    threshold: float
    events: int
    class_counts: ClassCounts
    duplicates: int
    window: WindowFigures
    since_start: TotalFigures
    undefined: dict[str, str] = Field(description="JSON pointer of each null figure -> why")


class RankFigures(_Document):
    """Predicted against true ranks; null where undefined."""

    class_counts: dict[str, int]
    mae: float | None = Field(description="mean absolute error, in ranks")
    mse: float | None = Field(description="mean squared error")
    accuracy: float | None
    confusion: list[list[int]] = Field(description="rows: the true rank, columns: the predicted one")


class WindowRankFigures(RankFigures):
    """Over the last `size` labelled events."""

    size: int
    events: int


class OrdinalMetrics(_Document):
    """The live figures of an ordinal learner, all prequential."""

    name: str
    position: int
    events: int
    class_counts: dict[str, int]
    duplicates: int
    window: WindowRankFigures
    since_start: RankFigures
    undefined: dict[str, str]


class OrdinalHistoryPoint(_Document):
    """Figures of the window after `events` events."""

    events: int
    mae: float | None
    accuracy: float | None


class OrdinalHistory(_Document):
    """A bounded number of points, `stride` events apart."""

    stride: int
    points: list[OrdinalHistoryPoint]


class HistoryPoint(_Document):
    """Figures of the window after `events` events."""

    events: int
    auc: float | None
    f1: float | None
    threshold: float
    positives: int
    alerts: int


class History(_Document):
    """A bounded number of points, `stride` events apart."""

    stride: int
    points: list[HistoryPoint]


class AlgorithmDocument(_Document):
    """An entry of the catalogue."""

    name: str
    summary: str
    description: str
    params: dict[str, Any] = Field(description="JSON schema")
    dense: bool
    sparse: bool
    max_columns: int
    posterior: bool
    ordinal: bool = Field(description="labels are ranks from 1 to params.ranks")
    batch: bool = Field(description="fitted every refit_every events instead of learning from each")
    defaults: dict[str, Any] = Field(description="of a learner's other parts, where they are not the usual ones")


class Catalogue(_Document):
    """Every algorithm, and the JSON schemas of the other parts of a learner."""

    algorithms: list[AlgorithmDocument]
    parts: dict[str, Any]


class Health(_Document):
    """Whether the node can take updates."""

    status: Literal["ok", "starting", "store-unavailable"]
    detail: str | None = None
    learners: int
    stale_seconds: float


class ProblemItem(_Document):
    """One thing that is wrong."""

    pointer: str = Field(description="JSON pointer to it in the body")
    detail: str


class ProblemDocument(_Document):
    """RFC 9457."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    errors: list[ProblemItem]
    request_id: str


MODELS: list[type[BaseModel]] = [UpdateBody, PredictBody, LearnerConfig, ProblemDocument, UpdateReply, PredictReply]


def request_body(model: type[BaseModel], examples: dict[str, Any]) -> dict[str, Any]:
    """The OpenAPI entry of a body that the route decodes itself."""
    named = {name: {"value": value} for name, value in examples.items()}
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema, "examples": named}}}}
