"""Times as text (ISO 8601), beside the seconds since the epoch that everything computes with."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from functools import lru_cache

__all__ = ["ISO_SCHEMA", "iso_time", "parse_time"]

ISO_SCHEMA = {"type": "string", "format": "date-time"}
_ISO = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?(Z|[+-][0-9]{2}:[0-9]{2})?)?",
)
_FIRST, _END = -62_135_596_800, 253_402_300_800  # seconds of the years 1 and 10000
_LONGEST = 64  # characters


def parse_time(text: str) -> float | None:
    """Return the seconds since the epoch of a date, or a date and a time; None if the text is neither.

    Without a zone it is UTC. Forms with nothing but digits are not taken: they may be meant as seconds.
    """
    if len(text) > _LONGEST or not _ISO.fullmatch(text):
        return None
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def iso_time(seconds: float | None) -> str | None:
    """Return a time as text in UTC, cut to milliseconds; None without a time, and beyond the years 1 to 9999."""
    if seconds is None or math.isnan(seconds) or not _FIRST <= seconds < _END - 1:
        return None
    whole, micro = divmod(round(seconds * 1e6), 1_000_000)
    return f"{_second(whole)}.{micro // 1000:03}Z"


@lru_cache(8)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()[:19]
