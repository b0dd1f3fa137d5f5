"""Documents of groups of learners."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from service.api.schemas.document import Document, Moment
from service.api.schemas.events import PredictReply, UpdateReply

__all__ = [
    "Comparison",
    "GroupBody",
    "GroupDocument",
    "GroupList",
    "GroupPredictReply",
    "GroupUpdateReply",
]


class GroupBody(Document):
    """What a group is created with."""

    learners: list[str] = Field(min_length=2, max_length=8)
    window: int | None = Field(None, ge=1, le=1_000_000, description="labelled events that are compared")
    alpha: float | None = Field(None, gt=0, le=0.5, description="of a wrong verdict, however often one looks")


class GroupDocument(Document):
    """A group as it stands."""

    name: str
    config: dict[str, Any]
    position: int = Field(description="of its own log")
    events: int = Field(description="that have been compared")
    failed: str | None
    tests: list[dict[str, Any]] | None = Field(
        None, description="in a list with tests=true: as in `compare`, for each pair the evidence and the verdict"
    )


class GroupList(Document):
    """Every group of this node, by name."""

    groups: list[GroupDocument]
    unavailable: dict[str, str] = Field(description="groups that cannot be recovered, and why")


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
    window: dict[str, Any] = Field(description="AUC of each learner and difference of each pair, with intervals")
    tests: list[dict[str, Any]] = Field(description="for each pair the evidence for either, and the verdict")
    undefined: dict[str, str]
