"""OpenAPI models of updates, predictions and labels in JSON, which the package `wire` decodes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from service.api.schemas.document import Document, EventTime, IsoTime, Moment, Seconds
from service.wire import MAX_EVENTS

__all__ = [
    "ClassCounts",
    "Contribution",
    "ErasedEvent",
    "Event",
    "EventDocument",
    "EventList",
    "EventStep",
    "LabelledEvent",
    "LabelsBody",
    "LateLabel",
    "OrdinalPredictReply",
    "OrdinalPrediction",
    "OrdinalUpdateReply",
    "OrdinalUpdateResult",
    "PredictBody",
    "PredictReply",
    "Prediction",
    "ScoreExplanationDocument",
    "Source",
    "UpdateBody",
    "UpdateReply",
    "UpdateResult",
]


FieldValue = str | float | bool | list[str | float | bool | None] | None


class Event(Document):
    """One event. Its features are one of `x` (dense), `indices` and `values` (sparse), `features` (named, table)."""

    id: str | int | None = Field(
        None, description="the event's own name: it is learnt once, and a label may come later by it"
    )
    time: EventTime | None = Field(
        None,
        description="seconds since the epoch or an ISO 8601 time (UTC without a zone), from 1980 to a day ahead of now",
    )
    x: list[float] | None = Field(None, description="dense: as many numbers as the learner's dim")
    indices: list[int] | None = Field(None, description="sparse: ascending columns from 0")
    values: list[float] | None = Field(None, description="sparse: one number per index")
    features: dict[str, FieldValue] | None = Field(
        None, description="named and table: numbers, strings, booleans, lists of tokens, null"
    )


class LabelledEvent(Event):
    """An event whose truth is known. Without features it is the label of an event that was served, by its id."""

    label: int | bool = Field(
        ge=-1, le=64, description="1 or true: positive; 0, -1 or false: negative; of an ordinal learner a rank from 1"
    )
    weight: float | None = Field(None, ge=0, le=1e6, description="multiplies the event's learning step; 1 if absent")


class LateLabel(Document):
    """The label of an event that was served."""

    id: str | int
    label: int | bool = Field(ge=-1, le=64)
    weight: float | None = Field(None, ge=0, le=1e6, description="multiplies the event's learning step; 1 if absent")
    time: EventTime | None = Field(None, description="when the label became known; now if absent")


class Source(Document):
    """Where the events come from: event i of the request is number `offset + i` of the source, or `offsets[i]`."""

    name: str = Field(min_length=1, max_length=200)
    offset: int | None = Field(None, ge=0, le=2**53)
    offsets: list[Annotated[int, Field(ge=0, le=2**53)]] | None = Field(
        None, description="one for each event, ascending, instead of `offset`: numbers between them do not exist"
    )
    after: int | None = Field(
        None, ge=0, le=2**53, description="numbers from here to the first event's do not exist; that one's if absent"
    )


class UpdateBody(Document):
    """Labelled events, in the order to learn them in."""

    events: list[LabelledEvent] = Field(min_length=1, max_length=MAX_EVENTS)
    source: Source | None = None


class LabelsBody(Document):
    """Labels, in the order to learn them in."""

    events: list[LateLabel] = Field(min_length=1, max_length=MAX_EVENTS)


class PredictBody(Document):
    """Events to score."""

    events: list[Event] = Field(min_length=1, max_length=MAX_EVENTS)


_Status = Literal["applied", "duplicate", "relabelled", "unknown", "expired"]


class ClassCounts(Document):
    """Labelled events learnt, by class."""

    negative: int
    positive: int


class UpdateResult(Document):
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


class UpdateReply(Document):
    """All events are in the log, and learnt."""

    applied: int
    duplicate: int
    relabelled: int
    unknown: int
    expired: int
    position: int = Field(description="of the newest record that was applied")
    class_counts: ClassCounts
    results: list[UpdateResult]


class OrdinalUpdateResult(Document):
    """What became of one event of an ordinal learner; score and rank are those from before it was learnt."""

    id: str | None
    status: _Status
    score: float | None
    rank: int | None


class OrdinalUpdateReply(Document):
    """All events are in the log, and learnt."""

    applied: int
    duplicate: int
    relabelled: int
    unknown: int
    expired: int
    position: int
    class_counts: dict[str, int] = Field(description="labelled events learnt, by rank")
    results: list[OrdinalUpdateResult]


class Contribution(Document):
    """What one feature of an event adds to its score."""

    name: str
    contribution: float


class ScoreExplanationDocument(Document):
    """A score as a sum: intercept, the largest contributions, and the rest of them."""

    intercept: float = Field(description="the score of an event whose features add nothing")
    features: list[Contribution]
    rest: float = Field(description="the sum of the contributions that are not listed")


class Prediction(Document):
    """The prediction for one event."""

    id: str | None
    score: float | None = Field(description="higher: more likely positive; null where it is beyond float64")
    probability: float
    threshold: float | None = Field(description="null while the learner is not ready")
    label: Literal[0, 1] | None = Field(
        description="1: an alert: probability >= threshold, and within the budget where there is one; null while the "
        "learner is not ready"
    )
    explanation: ScoreExplanationDocument | None = None


class PredictReply(Document):
    """Scores at one position of the learner's life."""

    position: int
    ready: bool = Field(description="false until both classes have been seen: scores are not meaningful yet")
    remembered: int = Field(description="events with an id, whose labels may come later; 0 while the store is away")
    stale_seconds: Seconds = Field(description="how long the store has not been reached; 0 while it answers")
    results: list[Prediction]


class OrdinalPrediction(Document):
    """What an ordinal learner says of one event."""

    id: str | None
    score: float | None = Field(
        description="higher: more likely a high rank; also orders events of one rank; null where it is beyond float64"
    )
    rank: int | None = Field(description="null while the learner is not ready")


class OrdinalPredictReply(Document):
    """Ranks at one position of the learner's life."""

    position: int
    ready: bool = Field(description="false until two ranks have been seen")
    remembered: int
    stale_seconds: Seconds
    results: list[OrdinalPrediction]


class EventStep(Document):
    """Something that happened to a scored event."""

    kind: Literal["served", "labelled", "corrected", "assumed"]
    time: Moment | None = Field(description="of the event, or when the label became known; null if that is not known")
    time_iso: IsoTime | None
    position: int | None = Field(
        description="of the learner's log; null of a label that was assumed or came with features"
    )
    label: int | None = Field(description="null when it was served")


class EventDocument(Document):
    """An event that was scored with an id, and its label if that is known."""

    id: str
    time: Moment = Field(description="of the event")
    time_iso: IsoTime | None
    position: int = Field(description="of the learner's log, at which it was scored")
    score: float | None = Field(description="null: too large for a number")
    probability: float | None = Field(description="null of an ordinal learner")
    threshold: float | None = Field(description="on the probability, by which it was decided; null if there was none")
    decision: int = Field(description="0, 1 or the rank")
    status: Literal["unlabelled", "labelled", "expired"] = Field(
        description="`expired`: no label came within `late.label_ttl`"
    )
    label: int | None = Field(description="the latest label: 0, 1 or the rank; null if the learner remembers none")
    label_source: Literal["given", "assumed"] | None = Field(
        description="`assumed`: by `late.unlabelled`; null without a label"
    )
    label_time: Moment | None = Field(
        description="when the label became known, in seconds since the epoch; null if it came with features"
    )
    label_time_iso: IsoTime | None
    label_delay: Seconds | None = Field(description="seconds from the event's time to `label_time`")
    x: list[float | None] | None = Field(
        None, description="its features, in the members of a request; null if the learner does not keep them"
    )
    indices: list[int] | None = None
    values: list[float] | None = None
    features: dict[str, FieldValue] | None = None
    explanation: ScoreExplanationDocument | None = Field(
        None, description="of the score that the present model gives it; null if its features are not kept"
    )
    history: list[EventStep] | None = Field(
        None, description="of an event asked for by its id: its last score, and the last 32 labels since; oldest first"
    )


class EventList(Document):
    """A page of scored events."""

    events: list[EventDocument]
    cursor: int | None = Field(description="for the next page; null after the oldest")
    newest: int = Field(description="of a first page: `after` of a later request for what was scored since")
    scanned: int = Field(description="events looked through for this page")


class ErasedEvent(Document):
    """What was erased of an event, and what ages out."""

    id: str
    position: int = Field(
        description="of the log: records up to here may still have its id and encoded features, until the log is "
        "trimmed behind snapshots that are younger"
    )
