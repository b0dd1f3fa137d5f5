"""Settings of labels that arrive late, by the event's id, or never."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from learners.settings import Parameters, param

__all__ = ["LateLabels"]

DAY = 86_400.0  # seconds


@dataclass(frozen=True)
class LateLabels(Parameters):
    """Bounds within which events scored with an id are remembered for their labels."""

    label_ttl: float = param(
        90 * DAY,
        "seconds, by the events' time, that a served event is remembered for its label",
        above=0,
        most=1e10,
        unit="seconds",
    )
    unlabelled: Literal["nothing", "negative"] = param(
        "nothing", "what an event becomes whose label has not come within label_ttl"
    )
    max_events: int = param(1_000_000, "served events that are remembered at most", least=1, most=10**8)
    max_bytes: int = param(
        2**30, "bytes of served events that are remembered at most", least=2**10, most=2**40, unit="bytes"
    )
    keep_features: bool = param(
        False, "whether a served event is remembered with its features, for those who may see events"
    )
