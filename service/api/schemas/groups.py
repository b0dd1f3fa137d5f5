"""Documents of groups of learners."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from service.api.schemas.document import Document, Moment
from service.api.schemas.events import ClassCounts, EventDocument, PredictReply, UpdateReply

__all__ = [
    "Comparison",
    "GroupBody",
    "GroupDocument",
    "GroupEvent",
    "GroupEventList",
    "GroupList",
    "GroupPredictReply",
    "GroupUpdateReply",
]


class GroupBody(Document):
    """What a group is created with."""

    learners: list[str] = Field(min_length=2, max_length=8)
    window: int | None = Field(None, ge=1, le=1_000_000, description="labelled events that are compared")
    alpha: float | None = Field(None, gt=0, le=0.5, description="of a wrong verdict, however often one looks")


class Evidence(Document):
    """Of a sequential test: by how much the events are likelier if one learner is better."""

    a_better: float | None
    b_better: float | None


class GroupTest(Document):
    """Which learner of a pair is better, by all events so far; valid at every look."""

    a: str
    b: str
    evidence: Evidence
    verdict: Literal["a", "b"] | None = Field(description="the better one; null: not decided")
    words: str = Field(description="the same for people")
    since_events: int | None = Field(description="compared events at the verdict")
    since_clock: Moment | None
    blocks: int


class GroupAuc(Document):
    """The AUC of a learner over the window."""

    auc: float | None
    interval: list[float] | None


class GroupDifference(Document):
    """The difference of two AUCs over the window."""

    a: str
    b: str
    difference: float | None
    interval: list[float] | None


class ComparedWindow(Document):
    """The last compared events."""

    size: int
    events: int
    class_counts: ClassCounts
    auc: dict[str, GroupAuc]
    differences: list[GroupDifference]


class GroupDocument(Document):
    """A group as it stands."""

    name: str
    config: GroupBody = Field(description="with every default written out")
    position: int = Field(description="of its own log")
    events: int = Field(description="that have been compared")
    failed: str | None
    tests: list[GroupTest] | None = Field(
        None, description="in a list with tests=true: as in `compare`, for each pair the evidence and the verdict"
    )


class GroupList(Document):
    """Every group of this node, by name."""

    groups: list[GroupDocument]
    unavailable: dict[str, str] = Field(description="groups that cannot be recovered, and why")
    cursor: str | None = Field(description="for the next page; null after the last")


class GroupUpdateReply(Document):
    """The replies of the group's learners, by name."""

    position: int
    compared: int
    learners: dict[str, UpdateReply]


class GroupPredictReply(Document):
    """The replies of the group's learners, by name."""

    learners: dict[str, PredictReply]


class Comparison(Document):
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
    clock: Moment | None
    window: ComparedWindow = Field(description="AUC of each learner and difference of each pair, with intervals")
    tests: list[GroupTest] = Field(description="for each pair the evidence for either, and the verdict")
    undefined: dict[str, str]


class GroupEvent(Document):
    """A scored event, as each learner of the group remembers it."""

    id: str
    learners: dict[str, EventDocument | None] = Field(description="by name; null if the learner does not remember it")


class GroupEventList(Document):
    """A page of scored events of a group."""

    learner: str = Field(description="whose events, filters and order these are")
    events: list[GroupEvent]
    cursor: int | None = Field(description="for the next page; null after the oldest")
    newest: int = Field(description="of a first page: `after` of a later request for what was scored since")
    scanned: int = Field(description="events looked through for this page")
