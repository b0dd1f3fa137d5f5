"""Writes times as text (ISO 8601), beside the seconds since the epoch that everything computes with."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from functools import lru_cache

__all__ = ["ISO_SCHEMA", "iso_time"]

ISO_SCHEMA = {"type": "string", "format": "date-time"}
_FIRST, _END = -62_135_596_800, 253_402_300_800  # seconds of the years 1 and 10000


def iso_time(seconds: float | None) -> str | None:
    """Return a time as text in UTC, cut to milliseconds; None without a time, and beyond the years 1 to 9999."""
    if seconds is None or math.isnan(seconds) or not _FIRST <= seconds < _END - 1:
        return None
    whole, micro = divmod(round(seconds * 1e6), 1_000_000)
    return f"{_second(whole)}.{micro // 1000:03}Z"


@lru_cache(8)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()[:19]
