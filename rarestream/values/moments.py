"""Reads times as seconds since the epoch, which everything computes with, by one rule for all doors."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rarestream.values.plain_value import plain_value

__all__ = ["EARLIEST_TIME", "LATEST_TIME", "parse_time", "plain_times"]

EARLIEST_TIME = 315_532_800.0  # of 1980: a time before it counts something else, such as hours or rows
LATEST_TIME = 4_102_444_800.0  # of 2100, for readers without a clock
_ISO = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?(Z|[+-][0-9]{2}:[0-9]{2})?)?",
)
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


def plain_times(times: Any) -> NDArray[Any] | list[Any]:
    """Return times of Python as JSON has them: seconds since the epoch, text as it was given, None or NaN for no time.

    A date, or a time without a zone, is UTC. Raises ValueError for what JSON does not have. O(times).
    """
    array = np.asarray(times)
    if array.dtype.kind == "M":
        return (array.astype("datetime64[us]") - np.datetime64(0, "us")) / np.timedelta64(1, "s")
    if array.ndim and array.dtype.kind in "iuf":
        return array
    return [_plain_time(time) for time in times]


def _plain_time(value: Any) -> Any:
    plain = plain_value(value)
    if isinstance(plain, str) and not isinstance(value, str):
        seconds = parse_time(plain)  # of a date, or a date and a time
        return plain if seconds is None else seconds
    return plain
