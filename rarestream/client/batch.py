"""Arguments of calls with events, and the result of an upload. No NumPy."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["DEFAULT_BOUNDS", "EventBatch", "RequestBounds", "UploadSummary"]


class EventBatch(NamedTuple):
    """Labelled events: the arguments of `update`, and each item of `upload`. A shorter plain tuple works, too."""

    X: Any
    y: Any
    ids: Any = None
    weights: Any = None
    times: Any = None


class RequestBounds(NamedTuple):
    """Size of one request. The service itself takes 16 MiB (`RARESTREAM_MAX_BODY_BYTES`) and 100,000 events."""

    bytes: int = 4 * 2**20
    events: int = 8192


DEFAULT_BOUNDS = RequestBounds()


class UploadSummary(NamedTuple):
    """Sums of an upload so far."""

    events: int = 0  # in answered requests
    requests: int = 0
    repeats: int = 0  # requests sent again
    applied: int = 0
    duplicate: int = 0
    relabelled: int = 0
    unknown: int = 0
    expired: int = 0
    position: int = 0  # of the newest record applied
