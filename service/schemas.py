"""The documents of the HTTP interface, as the OpenAPI page shows them.

The hot routes decode their bodies themselves (`wire.py`); these models describe them. Settings of a learner are
described by the library (`Parameters.schema`), so that a new algorithm is documented by existing.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from service.precise import MAX_EVENTS

__all__ = ["MODELS", "request_body"]


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Event(_Document):
    """One event. Its features are one of `x` (dense), `indices` and `values` (sparse), `features` (named, table)."""

    id: str | int | None = Field(
        None, description="the event's own name: it is learnt once, and a label may come later by it"
    )
    time: float | None = Field(
        None, ge=-1e12, le=1e12, description="seconds since the epoch, at most a day ahead of now"
    )
    x: list[float] | None = Field(None, description="dense: as many numbers as the learner's dim")
    indices: list[int] | None = Field(None, description="sparse: ascending columns from 0")
    values: list[float] | None = Field(None, description="sparse: one number per index")
    features: dict[str, Any] | None = Field(
        None, description="named and table: numbers, strings, booleans, lists of tokens, null"
    )


class LabelledEvent(Event):
    """An event whose truth is known. Without features it is the label of an event that was served, by its id."""

    label: int | bool = Field(
        ge=-1, le=64, description="1 or true: positive; 0, -1 or false: negative; of an ordinal learner a rank from 1"
    )
    weight: float | None = Field(None, ge=0, le=1e6, description="multiplies the event's learning step; 1 if absent")


class LateLabel(_Document):
    """The label of an event that was served."""

    id: str | int
    label: int | bool = Field(ge=-1, le=64)
    weight: float | None = Field(None, ge=0, le=1e6, description="multiplies the event's learning step; 1 if absent")
    time: float | None = Field(
        None, ge=-1e12, le=1e12, description="when the label became known, seconds since the epoch; now if absent"
    )


class Source(_Document):
    """Where the events come from: event i of the request is number `offset + i` of the source, or `offsets[i]`."""

    name: str = Field(min_length=1, max_length=200)
    offset: int | None = Field(None, ge=0, le=2**53)
    offsets: list[Annotated[int, Field(ge=0, le=2**53)]] | None = Field(
        None, description="one for each event, ascending, instead of `offset`: numbers between them do not exist"
    )
    after: int | None = Field(
        None, ge=0, le=2**53, description="numbers from here to the first event's do not exist; that one's if absent"
    )


class UpdateBody(_Document):
    """Labelled events, in the order to learn them in."""

    events: list[LabelledEvent] = Field(min_length=1, max_length=MAX_EVENTS)
    source: Source | None = None


class LabelsBody(_Document):
    """Labels, in the order to learn them in."""

    events: list[LateLabel] = Field(min_length=1, max_length=MAX_EVENTS)


class PredictBody(_Document):
    """Events to score."""

    events: list[Event] = Field(min_length=1, max_length=MAX_EVENTS)


_Status = Literal["applied", "duplicate", "relabelled", "unknown", "expired"]


class ClassCounts(_Document):
    """Labelled events learnt, by class."""

    negative: int
    positive: int


class UpdateResult(_Document):
    """What became of one event; the figures are those from before it was learnt, or of when it was served.

    `duplicate`: its id was learnt with this label before. `relabelled`: with another one, which is corrected.
    `unknown`, `expired`: a label by id alone, of an event that was never served, or too long ago. They are null where
    nothing was learnt.
    """

    id: str | None
    status: _Status
    score: float | None
    probability: float | None
    threshold: float | None
    decision: Literal[0, 1] | None = Field(description="what was decided before: probability >= threshold")


class UpdateReply(_Document):
    """All events are in the log, and learnt."""

    applied: int
    duplicate: int
    relabelled: int
    unknown: int
    expired: int
    position: int = Field(description="of the newest record that was applied")
    class_counts: ClassCounts
    results: list[UpdateResult]


class OrdinalUpdateResult(_Document):
    """What became of one event of an ordinal learner; score and rank are those from before it was learnt."""

    id: str | None
    status: _Status
    score: float | None
    rank: int | None


class OrdinalUpdateReply(_Document):
    """All events are in the log, and learnt."""

    applied: int
    duplicate: int
    relabelled: int
    unknown: int
    expired: int
    position: int
    class_counts: dict[str, int] = Field(description="labelled events learnt, by rank")
    results: list[OrdinalUpdateResult]


class Contribution(_Document):
    """What one feature of an event adds to its score."""

    name: str
    contribution: float


class Explained(_Document):
    """A score as a sum: intercept, the largest contributions, and the rest of them."""

    intercept: float = Field(description="the score of an event whose features add nothing")
    features: list[Contribution]
    rest: float = Field(description="the sum of the contributions that are not listed")


class Prediction(_Document):
    """What is said of one event."""

    id: str | None
    score: float = Field(description="higher: more likely positive")
    probability: float
    threshold: float
    label: Literal[0, 1] | None = Field(
        description="1: an alert: probability >= threshold, and within the budget where there is one; null while the "
        "learner is not ready"
    )
    explanation: Explained | None = None


class PredictReply(_Document):
    """Scores at one position of the learner's life."""

    position: int
    ready: bool = Field(description="false until both classes have been seen: scores mean nothing yet")
    remembered: int = Field(description="events with an id, whose labels may come later; 0 while the store is away")
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
    remembered: int
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
    threshold: dict[str, Any] | None = Field(None, description="objective, with its settings")
    figures: dict[str, Any] | None = Field(None, description="beta, max_fpr and k of the live figures")
    late: dict[str, Any] | None = Field(None, description="label_ttl, unlabelled, max_events, max_bytes")
    window: int | None = Field(None, ge=1, le=1_000_000, description="labelled events the live figures look back on")
    window_seconds: float | None = Field(
        None, gt=0, le=1e10, description="seconds of the learner's clock that they look back on at most"
    )
    remembered_ids: int | None = Field(None, ge=1, le=2**26, description="event ids kept to tell duplicates")
    refit_every: int | None = Field(None, ge=1, le=10**9, description="batch algorithms: labelled events between fits")
    refit_window: int | None = Field(None, ge=2, le=1_000_000, description="batch algorithms: events retained for fits")
    seed: int | None = Field(None, ge=0, le=2**53)
    precision: Literal["float64", "float32"] | None = Field(
        None, description="of the large arrays of the state; float32: half the memory"
    )


class LearnerChange(_Document):
    """Settings that may change while the learner lives; what is left out stays."""

    threshold: dict[str, Any] | None = None
    figures: dict[str, Any] | None = None
    late: dict[str, Any] | None = None


class CloneBody(_Document):
    """What a copy is to be called."""

    to: str = Field(description="the new learner's name: 1 to 100 of letters, digits, '.', '_', '-'")


class Weight(_Document):
    """One weight of a linear learner."""

    name: str = Field(description="of the feature; `column 4711` where a hashed one's is not known yet")
    weight: float | None = Field(description="of the feature as scored, after scaling; null where it has overflowed")


class Weights(_Document):
    """What a linear learner scores by: intercept, and a weight for each feature as scored, after scaling."""

    position: int
    intercept: float | None = Field(description="null where there are no weights")
    weights: list[Weight] = Field(description="largest absolute value first")
    total: int = Field(description="how many there are")
    unnamed: int = Field(description="of those given: whose names this node knows once it meets events that have them")
    reason: str | None = Field(description="why there are none: an embedding, several planes, nothing fitted yet")


class PendingDocument(_Document):
    """Served events that wait for their labels, or for corrections, in the store."""

    events: int
    bytes: int
    expired: int = Field(description="that were forgotten after label_ttl, ever")
    evicted: int = Field(description="that have been forgotten because there were too many, ever")


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
    threshold: float | None = Field(
        description="of the probability, as it is served now (where a miss costs 1); null for an ordinal learner"
    )
    fit: FitDocument | None = Field(description="null for an algorithm that learns from each event as it is")
    columns: int = Field(description="feature columns that have a meaning so far")
    state_bytes: int = Field(description="memory of its state; grows with the columns met, windows and remembered ids")
    sources: dict[str, int] = Field(description="the number of the next new event of each source")
    queued_events: int
    snapshot: SnapshotDocument | None = Field(description="the newest")
    pending: PendingDocument | None = Field(description="as this node last saw it; zeros before any was served")
    stale_seconds: float
    failed: str | None = Field(description="why it cannot move on, if it cannot")


class LearnerList(_Document):
    """Every learner of this node, by name."""

    learners: list[LearnerDocument]
    asleep: list[str] = Field(description="names of those swapped out to the store, until somebody asks for them")
    unavailable: dict[str, str] = Field(description="learners that cannot be recovered, and why")


class Alarm(_Document):
    """A change that a detector has found."""

    number: int = Field(description="counts the alarms of the learner from 0")
    kind: Literal["auc", "scores"] = Field(description="a fall of the AUC, or another distribution of served scores")
    events: int = Field(description="labelled events by then")
    clock: float | None
    before: float | None
    after: float | None


class SmallWindow(_Document):
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
    label_delay_median: float | None
    label_coverage: float | None
    events_per_second: float | None = Field(description="by the learner's clock")


class LearnerFigures(_Document):
    """A learner's small live figures, at most a second old."""

    name: str
    algorithm: str
    position: int
    events: int = Field(description="labelled, learnt")
    served: int = Field(description="events that were scored with an id")
    class_counts: dict[str, int]
    clock: float | None
    threshold: float | None
    window: SmallWindow
    trend: list[float | None] = Field(
        description="the AUC (of an ordinal learner the MAE) at the history's last points"
    )
    alarms: dict[str, int] = Field(description="drift alarms so far, by kind")
    last_alarm: Alarm | None
    undefined: dict[str, str] = Field(description="JSON pointer of each null figure of the window -> why")
    ready: bool
    not_ready: str | None
    stale_seconds: float
    failed: str | None


class LearnerFigureList(_Document):
    """The small live figures of every learner of this node that is in memory, by name."""

    learners: list[LearnerFigures]
    asleep: list[str] = Field(description="names of those swapped out to the store; asking for this does not wake them")
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


class _Figures(_Document):
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
    label_delay_median: float | None = Field(description="seconds from an event to its label")
    label_delay_p90: float | None
    label_coverage: float | None = Field(description="share of served events whose label has come by now")
    events_per_second: float | None = Field(description="by the learner's clock")
    confusion: Confusion


class WindowFigures(_Figures):
    """Over the last `size` labelled events, and at most `seconds` of the learner's clock: exact."""

    size: int
    seconds: float | None


class TotalFigures(_Figures):
    """Since the start; what follows from the order of scores is from a sketch, with its largest possible error."""

    auc_error: float | None
    average_precision_error: float | None
    partial_auc_error: float | None
    ks_error: float | None
    recall_at_fpr_error: float | None
    precision_at_k_error: float | None
    label_delay_error: float | None = Field(description="relative, of both quantiles")


class FigureSettings(_Document):
    """What the figures are computed with, in both scopes; PATCH changes it."""

    beta: float = Field(description="of fbeta")
    max_fpr: float = Field(description="of partial_auc and recall_at_fpr")
    k: int = Field(description="of precision_at_k")


class ServedFigures(_Document):
    """Events that were scored with an id."""

    events: int
    labelled: int = Field(description="whose label has come; the others still wait for theirs, or have been forgotten")
    alert_rate: float | None


class Metrics(_Document):
    """The live figures: all prequential, every event scored and decided before its label was learnt."""

    name: str
    position: int
    threshold: float
    events: int
    class_counts: ClassCounts
    duplicates: int
    corrections: int = Field(description="labels that were replaced by others")
    assumed: int = Field(description="labels that never came and were taken for negative")
    served: ServedFigures
    clock: float | None = Field(description="the largest time of any event or label, seconds since the epoch")
    settings: FigureSettings
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
    label_delay_median: float | None
    label_delay_p90: float | None
    label_coverage: float | None
    events_per_second: float | None


class WindowRankFigures(RankFigures):
    """Over the last `size` labelled events, and at most `seconds` of the learner's clock."""

    size: int
    seconds: float | None
    events: int


class TotalRankFigures(RankFigures):
    """Since the start."""

    label_delay_error: float | None = Field(description="relative, of both quantiles")


class OrdinalMetrics(_Document):
    """The live figures of an ordinal learner, all prequential."""

    name: str
    position: int
    events: int
    class_counts: dict[str, int]
    duplicates: int
    corrections: int
    served: int
    clock: float | None
    window: WindowRankFigures
    since_start: TotalRankFigures
    undefined: dict[str, str]


class History(_Document):
    """Figures of the window over the stream: closely near its end, thinned with age, bounded in all.

    A point is made whenever so many events have been served with an id or learnt with their label, by the sum of both.
    """

    by: Literal["clock", "events"] = Field(description="the axis of from, to and step")
    columns: list[str] = Field(description="events (learnt with their label), clock, served (with an id), the figures")
    points: list[dict[str, float | None]] = Field(description="each with all the columns, ascending")


class Alarms(_Document):
    """The last alarms of a learner."""

    counts: dict[str, int]
    alarms: list[Alarm]


class GroupBody(_Document):
    """What a group is created with."""

    learners: list[str] = Field(min_length=2, max_length=8)
    window: int | None = Field(None, ge=1, le=1_000_000, description="labelled events that are compared")
    alpha: float | None = Field(None, gt=0, le=0.5, description="of a wrong verdict, however often one looks")


class GroupDocument(_Document):
    """A group as it stands."""

    name: str
    config: dict[str, Any]
    position: int = Field(description="of its own log")
    events: int = Field(description="that have been compared")
    failed: str | None


class GroupList(_Document):
    """Every group of this node, by name."""

    groups: list[GroupDocument]
    unavailable: dict[str, str] = Field(description="groups that cannot be recovered, and why")


class GroupUpdateReply(_Document):
    """The replies of the group's learners, by name."""

    position: int
    compared: int
    learners: dict[str, UpdateReply]


class GroupPredictReply(_Document):
    """The replies of the group's learners, by name."""

    learners: dict[str, PredictReply]


class Comparison(_Document):
    """The learners of a group on exactly the same events."""

    name: str
    position: int
    gone: list[str] = Field(
        description="learners of the group that no longer exist: what was compared stays, and nothing more can be"
    )
    learners: list[str]
    alpha: float
    events: int
    duplicates: int
    corrections: int
    clock: float | None
    window: dict[str, Any] = Field(description="AUC of each learner and difference of each pair, with intervals")
    tests: list[dict[str, Any]] = Field(description="for each pair the evidence for either, and the verdict")
    undefined: dict[str, str]


class AlgorithmDocument(_Document):
    """An entry of the catalogue."""

    name: str
    summary: str
    description: str
    params: dict[str, Any] = Field(description="JSON schema")
    dense: bool
    sparse: bool
    max_columns: int
    cost: str = Field(
        description="of learning an event, by columns (dim), the event's numbers (values: non-zeros) and parameters"
    )
    posterior: bool
    ordinal: bool = Field(description="labels are ranks from 1 to params.ranks")
    batch: bool = Field(description="fitted every refit_every events instead of learning from each")
    correction: str = Field(description="what a corrected label does to the model; the figures are always exact")
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


class Nodes(_Document):
    """Which nodes are alive, where learners are spread over them."""

    replication: int = Field(description="nodes that host each learner; 0: every node hosts all")
    address: str | None = Field(description="of the node that answers, as it tells it to others")
    nodes: list[str] = Field(description="addresses of those that are alive; none where every node hosts all")
    hosts: list[str] | None = Field(description="addresses that host the learner that was asked for")


class KeyLimits(_Document):
    """What a key may use at most; null: as much as the node's settings allow."""

    requests_per_second: float | None
    events_per_second: float | None
    body_bytes: int | None
    learners: int | None
    dimensions: int | None
    remembered_events: int | None


class KeyDocument(_Document):
    """What the key of the request may do."""

    name: str | None = Field(description="null where the service asks for no keys")
    id: str | None
    scopes: list[Literal["read", "predict", "update", "admin"]]
    learners: str | None = Field(description="pattern of the names that it is for; null: all")
    limits: KeyLimits
    expires: float | None = Field(description="seconds since the epoch; null: never")


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


MODELS: list[type[BaseModel]] = [
    UpdateBody,
    PredictBody,
    LabelsBody,
    LearnerConfig,
    LearnerChange,
    CloneBody,
    GroupBody,
    ProblemDocument,
    UpdateReply,
    PredictReply,
]


def request_body(model: type[BaseModel], examples: dict[str, Any]) -> dict[str, Any]:
    """The OpenAPI entry of a body that the route decodes itself."""
    named = {name: {"value": value} for name, value in examples.items()}
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema, "examples": named}}}}
