"""Documents of the node itself: algorithms, health, other nodes, keys."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from service.api.schemas.document import Bytes, Document, IsoTime, Moment, PerSecond, Seconds

__all__ = [
    "AlgorithmDocument",
    "Catalogue",
    "Health",
    "KeyDocument",
    "KeyLimits",
    "Nodes",
    "Version",
]


class AlgorithmDocument(Document):
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
    usual: dict[str, dict[str, Any]] = Field(
        description="by kind of features, the default of each of a learner's other settings"
    )


class Catalogue(Document):
    """Every algorithm, and the JSON schemas of the other parts of a learner."""

    algorithms: list[AlgorithmDocument]
    parts: dict[str, Any]
    cursor: int | None = Field(description="for the next page of `algorithms`; null after the last")


class Kernels(Document):
    """Kernels that this process needs: plain Python serves for those that are not compiled yet."""

    compiled: int
    waiting: int = Field(description="that requests have needed, and that are not compiled yet")
    failed: int = Field(description="that cannot be compiled: plain Python serves for them until the next start")
    all: int


class Health(Document):
    """Whether the node can take updates."""

    status: Literal["ok", "degraded", "store-full", "starting", "store-unavailable"] = Field(
        description="degraded: the store lost records or may delete some, learners cannot be recovered or cannot "
        "continue, a snapshot is damaged, a clock is wrong, kernels cannot be compiled, or a background task ended by "
        "an error. store-full: no update can be stored"
    )
    detail: str | None = None
    learners: int
    unavailable: int = Field(description="learners and groups that cannot be recovered, or vanished from the store")
    stale_seconds: Seconds
    kernels: Kernels


class Version(Document):
    """The version of the service, and that of its HTTP interface."""

    version: str
    api: Literal["v1"]


class Nodes(Document):
    """Which nodes are alive, where learners are spread over them."""

    replication: int = Field(description="nodes that host each learner; 0: every node hosts all")
    address: str | None = Field(description="of the node that answers, as it tells it to others")
    nodes: list[str] = Field(description="addresses of those that are alive; none where every node hosts all")
    cursor: str | None = Field(description="for the next page of `nodes`; null after the last")
    hosts: list[str] | None = Field(description="addresses that host the learner that was asked for")


class KeyLimits(Document):
    """What a key may use at most; null: as much as the node's settings allow."""

    requests_per_second: PerSecond | None
    events_per_second: PerSecond | None
    body_bytes: Bytes | None
    learners: int | None
    dimensions: int | None
    remembered_events: int | None


class KeyDocument(Document):
    """What the key of the request may do."""

    name: str | None = Field(description="null where the service asks for no keys")
    id: str | None
    scopes: list[Literal["read", "predict", "update", "events", "admin"]]
    learners: str | None = Field(description="pattern of the names that it is for; null: all")
    limits: KeyLimits
    expires: Moment | None = Field(description="seconds since the epoch; null: never")
    expires_iso: IsoTime | None
