"""The parts of the campaign, and how much of its time each gets."""

from __future__ import annotations

from typing import Protocol

from tests.campaigns.fuzz.bodies import bodies, bombs
from tests.campaigns.fuzz.bounds import bounds
from tests.campaigns.fuzz.connections import floods, idle_websockets, slow_clients
from tests.campaigns.fuzz.openapi import openapi
from tests.campaigns.fuzz.report import Report
from tests.campaigns.fuzz.rows import rows
from tests.campaigns.fuzz.sockets import frames, messages
from tests.campaigns.fuzz.stored import records, remembered, snapshots

__all__ = ["PARTS", "SHARES", "Part"]


class Part(Protocol):
    """One part: for so many seconds, or up to `count` of each thing it tries."""

    def __call__(self, seconds: float, seed: int = 0, count: int | None = None) -> Report:
        """Return what was tried, and what came of it."""
        ...


PARTS: dict[str, Part] = {
    "openapi": openapi,
    "bodies": bodies,
    "bombs": bombs,
    "messages": messages,
    "frames": frames,
    "records": records,
    "snapshots": snapshots,
    "remembered": remembered,
    "rows": rows,
    "bounds": bounds,
    "slow": slow_clients,
    "floods": floods,
    "idle": idle_websockets,
}
SHARES = {
    **dict.fromkeys(PARTS, 1.0),
    "openapi": 3.0,
    "records": 2.0,
    "snapshots": 2.0,
    "bodies": 2.0,
    "rows": 2.0,
    "bounds": 2.0,
    "bombs": 0.5,
    "remembered": 0.5,
    "slow": 0.5,
    "floods": 0.3,
    "idle": 0.3,
}
